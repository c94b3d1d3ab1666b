"""Reads a method's row file once: hashes it, checks every line, copies and hands on what is valid.

Row files are UTF-8 with no byte order mark, LF only, a final LF, no blank line, and lines of at
most 16 MiB, read as bytes. A task plugs in a ``RowChecker``: its quick way accepts what is
certainly valid; every other line goes the strict way (strict parser, JSON Schema by both
validators, the task's own rules), which says what is wrong. Memory holds one block of lines, and a
byte a planned row for uniqueness.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Generic, Protocol, TypeVar, cast

from runner import schemas
from runner.model import RowsReport
from runner.progress_text import printable
from runner.rows.faults import FaultLog, RowRefused
from runner.rows.retrieval import MAX_RANKING, RetrievalIds, RetrievalRow, RetrievalRows
from runner.schema_faults import shown
from runner.strict_json import strict_loads
from runner.trec import trec_to_rows

__all__ = [
    "FaultLog",
    "RetrievalIds",
    "RetrievalRow",
    "RetrievalRows",
    "RowChecker",
    "RowRefused",
    "RowsResult",
    "file_lines",
    "read_rows",
    "trec_to_rows",
]

MAX_LINE_BYTES = 16 << 20  # with its LF
#: More values than any valid row has; counted in lines so long that parsing more would cost
#: hundreds of megabytes. Brackets and commas inside ids count as well.
MAX_OPENINGS, MAX_COMMAS = MAX_RANKING + 2, 2 * MAX_RANKING + 3
COUNTED_FROM_BYTES = 1 << 20
#: What is wrong with longer lines is said in general: the reference takes 1 us a byte.
MAX_EXPLAINED_BYTES = 1 << 16
MAX_FIRST_ERROR = 200
BLOCK_BYTES = 1 << 20
BLOCK_ROWS = 4096
READ_BUFFER = 1 << 20

#: A row is a named tuple: the first field is its key (query id, pair id, reviewer id), the last
#: is the method's own error or None.
RowT = TypeVar("RowT", bound=tuple[Any, ...])
RowT_co = TypeVar("RowT_co", bound=tuple[Any, ...], covariant=True)


class RowChecker(Protocol[RowT_co]):
    """What a task knows about its rows."""

    @property
    def kind(self) -> str:
        """The schema of one row."""

    @property
    def key_noun(self) -> str:
        """What messages call the key."""

    @property
    def expected(self) -> Mapping[str, int] | None:
        """The planned keys with their positions 0, 1, ...; None where they are unknown."""

    def quick(self, line: bytes) -> RowT_co | None:
        """Return the row of a line that is certainly valid, or None to look closer."""

    def build(self, document: dict[str, Any]) -> RowT_co:
        """Return the row of a schema-valid object, or raise ``RowRefused``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsResult:
    """What one pass over a row file found.

    Where so much was refused that the rest was not read, ``report.whole`` is False; ``lines`` and
    the counts then cover what was.
    """

    report: RowsReport
    lines: int


def read_rows(  # noqa: PLR0913 - independent options, by keyword only
    source: BinaryIO | Iterable[bytes],
    checker: RowChecker[RowT],
    *,
    sink: Callable[[bytes], object] | None = None,
    on_block: Callable[[list[RowT]], object] | None = None,
    faults: FaultLog | None = None,
    reference: bool = False,
) -> RowsResult:
    """Read rows from a binary file or from lines; never raises for what the rows hold.

    ``sink`` gets the valid lines unchanged, several whole lines a call. ``on_block`` gets the
    parsed rows in file order, some thousands a call; it must not keep them if memory is to stay
    flat. ``faults`` continues a log that a converter has begun. ``reference`` parses and
    validates every line in the strict way.
    """
    log = FaultLog() if faults is None else faults
    reader = _Reader(checker, log, sink, on_block, reference)
    reader.read(_lines_of(source))
    return reader.result()


def _lines_of(source: BinaryIO | Iterable[bytes]) -> Iterable[bytes]:
    # A BinaryIO is itself an iterator of lines, but of lines without bound.
    if hasattr(source, "readline"):
        return file_lines(cast(BinaryIO, source))
    return source


def file_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines with their LF. A longer line than allowed comes in pieces without one."""
    if not isinstance(stream, io.RawIOBase):
        while line := stream.readline(MAX_LINE_BYTES):
            yield line
        return
    # An unbuffered file reads a byte at a time to find the LF.
    buffered = io.BufferedReader(stream, READ_BUFFER)
    try:
        while line := buffered.readline(MAX_LINE_BYTES):
            yield line
    finally:
        buffered.detach()  # or it would close the caller's file


class _Reader(Generic[RowT]):
    """State of one pass. One fault a line: the first one found."""

    def __init__(
        self,
        checker: RowChecker[RowT],
        log: FaultLog,
        sink: Callable[[bytes], object] | None,
        on_block: Callable[[list[RowT]], object] | None,
        reference: bool,
    ) -> None:
        self._checker = checker
        self._log = log
        self._sink = sink
        self._on_block = on_block
        self._reference = reference
        self._keys = _Keys(checker)
        self._number = 0  # of the current line
        self._errors = 0
        self._first_error: str | None = None
        self._valid = 0
        self._in_long_line = False
        self._good: list[bytes] = []  # the valid lines of the current block,
        self._rows: list[RowT] = []  # what they say,
        self._held = 0  # and how many lines
        self._pending = 0  # of how many bytes were read for it

    def read(self, lines: Iterable[bytes]) -> None:
        """Read to the end. The loop is bare: it runs once a row of millions."""
        quick, claim = self._checker.quick, self._keys.claim
        careful, keep, log = self._reference, self._on_block is not None, self._log
        for line in lines:
            self._held += 1
            self._pending += len(line)
            if self._in_long_line:
                self._in_long_line = not line.endswith(b"\n")
                if self._pending >= BLOCK_BYTES:  # its pieces must not pile up
                    self._flush()
                continue
            self._number += 1
            try:
                if len(line) > COUNTED_FROM_BYTES:
                    _refuse_crowd(line)
                clean = not careful and b"\r" not in line and line[-1:] == b"\n"
                row = (quick(line) if clean else None) or self._strict(line)
                claim(row[0])
            except RowRefused as refused:
                log.add(self._number, refused.code, refused.message, size=len(line))
                if log.exhausted:
                    return
            else:
                self._good.append(line)
                if row[-1] is not None:
                    self._errors += 1
                    if self._first_error is None:
                        self._first_error = printable(row[-1], MAX_FIRST_ERROR)
                if keep:
                    self._rows.append(row)
            if self._pending >= BLOCK_BYTES or self._held >= BLOCK_ROWS:
                self._flush()

    def result(self) -> RowsResult:
        """Close the last block and say what was found."""
        self._flush()
        expected = self._checker.expected
        planned = self._valid if expected is None else len(expected)
        return RowsResult(
            report=RowsReport(
                expected=planned,
                valid=self._valid,
                missing=planned - self._valid,
                errors=self._errors,
                faults=tuple(self._log.kept),
                fault_count=self._log.count,
                whole=not self._log.exhausted,
                first_error=self._first_error,
            ),
            lines=self._number,
        )

    def _flush(self) -> None:
        good, rows = self._good, self._rows
        self._held, self._good, self._rows, self._pending = 0, [], [], 0
        self._valid += len(good)
        if good and self._sink is not None:
            self._sink(b"".join(good))
        if rows and self._on_block is not None:
            self._on_block(rows)

    def _strict(self, line: bytes) -> RowT:
        """Decide a line for certain, with a message; the reference has the last word."""
        if not line.endswith(b"\n"):
            if len(line) >= MAX_LINE_BYTES:
                self._in_long_line = True
                raise RowRefused(
                    "rows.line-too-long", f"a line of more than {MAX_LINE_BYTES} bytes"
                )
            raise RowRefused("rows.half-line", "the last line has no end: it may be cut off")
        if b"\r" in line:
            raise RowRefused("rows.crlf", "lines end in LF alone; this one holds a CR")
        if not line.strip():
            raise RowRefused("rows.blank-line", "the line is blank")
        document = strict_loads(line)
        if self._log.full or len(line) > MAX_EXPLAINED_BYTES:
            # Strict JSON holds no value that only a report would look for.
            kind = self._checker.kind
            if self._reference:
                fits = schemas.is_valid(kind, document, reference=True)
            else:
                fits = schemas.fast_check(kind)(document)
            if not fits:
                raise RowRefused("schema.invalid", "does not fit the schema of a row")
        else:
            self._refuse_schema_faults(document)
        assert isinstance(document, dict)  # noqa: S101 - the schema has just said so
        return self._checker.build(document)

    def _refuse_schema_faults(self, document: object) -> None:
        kind = self._checker.kind
        faults = list(schemas.iter_faults(kind, document, reference=self._reference))
        if faults:
            first, more = faults[0], len(faults) - 1
            others = f" (and {more} more)" if more else ""
            raise RowRefused(first.code, f"{first.json_path}: {first.message}{others}")


def _refuse_crowd(line: bytes) -> None:
    if line.count(b"[") + line.count(b"{") > MAX_OPENINGS or line.count(b",") > MAX_COMMAS:
        raise RowRefused("rows.too-many-values", "more values than a row can have")


class _Keys:
    """Every planned key at most once, and no other."""

    def __init__(self, checker: RowChecker[Any]) -> None:
        self._noun = checker.key_noun
        self._expected = checker.expected
        self._seen_positions = bytearray(0 if self._expected is None else len(self._expected))
        self._seen: set[str] = set()

    def claim(self, key: str) -> None:
        """Mark a key as seen or raise ``RowRefused``."""
        if self._expected is None:
            if key in self._seen:
                self._refuse_duplicate(key)
            self._seen.add(key)
            return
        position = self._expected.get(key)
        if position is None:
            raise RowRefused("rows.unknown-id", f"{self._noun} {shown(key)} was not planned")
        if self._seen_positions[position]:
            self._refuse_duplicate(key)
        self._seen_positions[position] = 1

    def _refuse_duplicate(self, key: str) -> None:
        raise RowRefused("rows.duplicate-id", f"{self._noun} {shown(key)} has a row already")
