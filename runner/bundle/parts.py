"""Files of a bundle while they are written: hashed as they grow, durable when they close.

Rows are appended by whole lines, so after a crash everything up to the last line feed is good:
``resume`` cuts the rest off and goes on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from runner.bundle import durable
from runner.bundle.manifest import FileEntry, Role
from runner.bundle.paths import MAX_FILE, MAX_LINE, MAX_PART
from runner.errors import BundleError, Where

JSONL = "application/jsonl"
SHARD_BYTES = MAX_PART
_BLOCK = 1 << 20
_BOM = b"\xef\xbb\xbf"

Register = Callable[[FileEntry], None]


@dataclass(frozen=True, slots=True)
class FileKind:
    """What the manifest says of a file besides its bytes; ``schema_kind`` such as ``plan``."""

    role: Role
    media_type: str
    schema_kind: str | None = None

    @property
    def schema(self) -> str | None:
        """The schema as the manifest names it: ``sealbench/<kind>/v1``."""
        return None if self.schema_kind is None else f"sealbench/{self.schema_kind}/v1"


class Part:
    """One open file of a bundle. Closing it makes it durable and registers it.

    Leaving the ``with`` block by an exception closes the file without registering it.
    """

    def __init__(
        self, target: Path, path: str, kind: FileKind, register: Register, *, resume: bool = False
    ) -> None:
        self.path = path
        self.size = 0
        self.lines = 0
        self._counts_lines = kind.media_type == JSONL
        self._kind = kind
        self._register = register
        self._target = target
        self._digest = hashlib.sha256()
        self._buffer = bytearray()
        with durable.storage_errors(target):
            if resume and target.exists():
                self._descriptor = self._reopen()
            else:
                target.unlink(missing_ok=True)
                self._descriptor = durable.create_file(target)

    def write_line(self, line: bytes) -> None:
        """Append one row: UTF-8, no BOM, no carriage return, not blank, one final line feed."""
        problem = line_problem(line)
        if problem is not None:
            raise BundleError(
                "bundle.line",
                f"row refused: {problem}",
                fix="write each row as one line of UTF-8 with a line feed",
                where=Where(file=self.path, line=self.lines + 1),
            )
        self._append(line)
        self.lines += 1

    def write(self, data: bytes) -> None:
        """Append bytes as they are (logs, tables); for rows use ``write_line``."""
        if self._counts_lines:
            self.lines += data.count(b"\n")
        self._append(data)

    def sync(self) -> None:
        """Make everything written so far survive a crash."""
        self._flush()
        with durable.storage_errors(self._target):
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Flush, fsync and register the file; a second call does nothing."""
        if self._descriptor < 0:
            return
        try:
            self.sync()
        finally:
            self.drop()
        rows = self.lines if self._counts_lines else None
        self._register(
            FileEntry(
                path=self.path,
                size=self.size,
                sha256=self._digest.hexdigest(),
                role=self._kind.role,
                media_type=self._kind.media_type,
                schema=self._kind.schema,
                rows=rows,
            )
        )

    def drop(self) -> None:
        """Close the file without registering it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Part:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.drop()

    def _append(self, data: bytes) -> None:
        if self.size + len(data) > MAX_FILE:
            raise BundleError(
                "bundle.file-too-large",
                f"a file of a bundle holds at most {MAX_FILE} bytes",
                fix="split it into shards",
                where=Where(file=self.path),
            )
        self.size += len(data)
        self._buffer += data
        if len(self._buffer) >= _BLOCK:
            self._flush()

    def _flush(self) -> None:
        with durable.storage_errors(self._target):
            durable.write_all(self._descriptor, self._buffer)
        self._digest.update(self._buffer)
        self._buffer = bytearray()

    def _reopen(self) -> int:
        """Cut an unfinished last line off, hash and count what stays, and go on behind it."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._target, flags)
        keep = position = 0
        while block := os.pread(descriptor, _BLOCK, position):
            last = block.rfind(b"\n")
            if last >= 0:
                keep = position + last + 1
            position += len(block)
        os.ftruncate(descriptor, keep)
        while block := os.read(descriptor, _BLOCK):
            self._digest.update(block)
            self.lines += block.count(b"\n")
        self.size = keep
        return descriptor


class Shards:
    """Rows in files ``<prefix>/part-00000.jsonl`` and on, each of at most ``MAX_PART`` bytes."""

    def __init__(self, open_part: Callable[[str], Part], prefix: str, limit: int) -> None:
        self.lines = 0
        self._open_part = open_part
        self._prefix = prefix
        self._limit = limit
        self._number = 0
        self._part = open_part(f"{prefix}/part-00000.jsonl")

    def write_line(self, line: bytes) -> None:
        """Append one row, into a new shard when this one is full."""
        if self._part.size and self._part.size + len(line) > self._limit:
            self._part.close()
            self._number += 1
            self._part = self._open_part(f"{self._prefix}/part-{self._number:05d}.jsonl")
        self._part.write_line(line)
        self.lines += 1

    def close(self) -> None:
        """Close and register the last shard."""
        self._part.close()

    def __enter__(self) -> Shards:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._part.drop()


def line_problem(line: bytes) -> str | None:
    """Return why bytes are no line of a row file, or None. Pure."""
    for wrong, problem in (
        (len(line) > MAX_LINE, f"longer than {MAX_LINE} bytes"),
        (not line.endswith(b"\n"), "no line feed at its end"),
        (line.find(b"\n") != len(line) - 1, "a line feed inside it"),
        (b"\r" in line, "a carriage return"),
        (not line.strip(), "a blank line"),
        (line.startswith(_BOM), "a byte order mark"),
    ):
        if wrong:
            return problem
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"byte {error.start + 1} is no UTF-8"
    return None
