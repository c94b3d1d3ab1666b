"""The faults of row files: how one is raised, counted and kept."""

from __future__ import annotations

from runner.model import RowFault

#: Faults kept for the record; the rest are only counted.
FAULTS_KEPT = 100
#: A file with more bad lines, or more bytes in bad lines, is not read to its end: refusing a line
#: costs more than reading a valid one, and a gigabyte can hold a billion lines.
MAX_BAD_LINES = 20_000
MAX_BAD_BYTES = 64 << 20
#: The error of a row that is made for a query of which an imported file says nothing.
NO_RESULT = "the imported file has no result for this query"


class RowRefused(Exception):
    """A line is no valid row. Internal to the readers: it ends as a ``model.RowFault``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class FaultLog:
    """Counts every fault and keeps the first ``limit``: a bad file cannot fill the memory."""

    def __init__(self, limit: int = FAULTS_KEPT) -> None:
        self.limit = limit
        self.count = 0
        self.bad_bytes = 0
        self.kept: list[RowFault] = []

    @property
    def full(self) -> bool:
        """True once further faults are only counted; their messages need not be made."""
        return len(self.kept) >= self.limit

    @property
    def exhausted(self) -> bool:
        """True once reading on makes no sense."""
        return self.count > MAX_BAD_LINES or self.bad_bytes > MAX_BAD_BYTES

    def add(self, line: int, code: str, message: str, *, size: int = 0) -> None:
        """Count one fault of a 1-based line of ``size`` bytes."""
        self.count += 1
        self.bad_bytes += size
        if not self.full:
            self.kept.append(RowFault(line=line, code=code, message=message))
