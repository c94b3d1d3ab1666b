"""Writes rows into part files of bounded size: all of them whole, or none at all."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from pathlib import Path

from runner.errors import StorageError

MAX_PART_BYTES = 1 << 30
_PART = re.compile(r"part-[0-9]{5}\.jsonl(\.new)?")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class PartWriter:
    """Takes pieces of whole lines. No part has its final name before ``commit``, and the folder
    is made with the first one.

    Every failure of the disk is a ``StorageError``; call ``discard`` after it.
    """

    def __init__(self, folder: Path, *, max_bytes: int = MAX_PART_BYTES) -> None:
        """Parts of an earlier attempt at the unit are removed: their rows are not of this one."""
        self._folder, self._max_bytes = folder, max_bytes
        self._parts: list[_NewPart] = []
        try:
            self._remove_parts()
        except OSError as error:
            raise storage_error(error) from error

    def write(self, lines: bytes) -> None:
        """Append whole lines; a part that would grow too large is followed by another one."""
        try:
            if not self._parts:
                self._folder.mkdir(parents=True, exist_ok=True)
            if not self._parts or self._parts[-1].size + len(lines) > self._max_bytes:
                path = self._folder / f"part-{len(self._parts):05}.jsonl"
                self._parts.append(_NewPart(path))
            self._parts[-1].write(lines)
        except OSError as error:
            raise storage_error(error) from error

    def commit(self) -> None:
        """Make every part durable, then give all of them their names."""
        try:
            for part in self._parts:
                part.settle()
            for part in self._parts:
                part.new_path.rename(part.path)
            if self._parts:
                sync_folder(self._folder)
        except OSError as error:
            raise storage_error(error) from error

    def discard(self) -> None:
        """Remove what was written; never raises."""
        for part in self._parts:
            part.close()
        self._parts = []
        try:
            self._remove_parts()
        except OSError:
            return  # nothing has a final name, and the next attempt starts by removing

    def _remove_parts(self) -> None:
        if not self._folder.is_dir():
            return
        for path in self._folder.iterdir():
            if _PART.fullmatch(path.name):
                path.unlink()
        with suppress(OSError):
            self._folder.rmdir()  # a bundle has no empty folders


class _NewPart:
    """A part under its temporary name."""

    def __init__(self, path: Path) -> None:
        self.path, self.new_path = path, path.with_name(f"{path.name}.new")
        self.size = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd: int | None = os.open(self.new_path, flags, 0o644)
        os.fchmod(self._fd, 0o644)  # whatever the umask

    def write(self, lines: bytes) -> None:
        view = memoryview(lines)
        while view and self._fd is not None:
            view = view[os.write(self._fd, view) :]
        self.size += len(lines)

    def settle(self) -> None:
        if self._fd is not None:
            os.fsync(self._fd)
        self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def storage_error(error: OSError) -> StorageError:
    """What a person can do about a failing disk."""
    reason = os.strerror(error.errno or 0)
    if error.errno in _FULL:
        return StorageError(
            "storage.full",
            f"the output disk is full: {reason}",
            fix="free some space, then start the run again: it resumes",
        )
    place = f" {error.filename}" if error.filename else ""
    return StorageError(
        "storage.failed",
        f"cannot write{place}: {reason}",
        fix="see that the output folder exists, is yours and is writable",
    )
