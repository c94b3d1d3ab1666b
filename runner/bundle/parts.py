"""Files of a bundle while they are written: hashed as they grow, durable when they close."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from runner.bundle import durable
from runner.bundle.manifest import FileEntry, Role
from runner.bundle.paths import MAX_FILE
from runner.errors import BundleError, Where

JSONL = "application/jsonl"
CSV = "text/csv"
_BLOCK = 1 << 20

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

    def __init__(self, target: Path, path: str, kind: FileKind, register: Register) -> None:
        self.path = path
        self.size = 0
        self._lines = 0
        self._counts_lines = kind.media_type in {JSONL, CSV}
        self._kind = kind
        self._register = register
        self._target = target
        self._digest = hashlib.sha256()
        self._buffer = bytearray()
        with durable.storage_errors(target):
            target.unlink(missing_ok=True)
            self._descriptor = durable.create_file(target)

    def write(self, data: bytes) -> None:
        """Append bytes as they are; ``BundleError`` where the file would grow too large."""
        if self.size + len(data) > MAX_FILE:
            raise BundleError(
                "bundle.file-too-large",
                f"a file of a bundle holds at most {MAX_FILE} bytes",
                fix="let the method write less: its output limit is in the run manifest",
                where=Where(file=self.path),
            )
        if self._counts_lines:
            self._lines += data.count(b"\n")
        self.size += len(data)
        self._buffer += data
        if len(self._buffer) >= _BLOCK:
            self._flush()

    def close(self) -> None:
        """Flush, fsync and register the file; a second call does nothing."""
        if self._descriptor < 0:
            return
        try:
            self._flush()
            with durable.storage_errors(self._target):
                os.fsync(self._descriptor)
        finally:
            self.drop()
        self._register(
            FileEntry(
                path=self.path,
                size=self.size,
                sha256=self._digest.hexdigest(),
                role=self._kind.role,
                media_type=self._kind.media_type,
                schema=self._kind.schema,
                rows=self._rows(),
            )
        )

    def _rows(self) -> int | None:
        """The lines, less a CSV file's header: no field of ours has a line end in it."""
        if not self._counts_lines:
            return None
        return self._lines if self._kind.media_type == JSONL else max(self._lines - 1, 0)

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

    def _flush(self) -> None:
        with durable.storage_errors(self._target):
            durable.write_all(self._descriptor, self._buffer)
        self._digest.update(self._buffer)
        self._buffer = bytearray()
