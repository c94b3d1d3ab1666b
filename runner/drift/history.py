"""The history of a drift watch: one canonical JSON line a look, appended, never rewritten."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.bundle import durable
from runner.bundle.documents import earlier, parse_canonical
from runner.canonical import canonical_bytes
from runner.errors import BundleError, StorageError, Where

SCHEMA = "sealbench/drift/v1"
MAX_HISTORY = 256 << 20


def read_history(path: Path) -> list[dict[str, Any]]:
    """Return the records, oldest first; none where there is no file.

    A last line without its end is what a crash left: it is not read, and the next record replaces
    it. ``StorageError`` for anything else that no watch wrote.
    """
    if not path.exists():
        return []
    with durable.storage_errors(path), path.open("rb") as stream:
        data = stream.read(MAX_HISTORY + 1)
    if len(data) > MAX_HISTORY:
        raise _damaged(path, None, f"more than {MAX_HISTORY} bytes")
    records: list[dict[str, Any]] = []
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            record = parse_canonical(line, kind="drift", file=str(path))
        except BundleError as error:
            raise _damaged(path, number, error.message) from error
        if record["sequence"] != number:
            raise _damaged(path, number, f"its sequence is {record['sequence']}")
        records.append(record)
    return records


def append_history(path: Path, record: Mapping[str, Any]) -> None:
    """Append one record and make it durable; what a crash left of a line is cut off first."""
    line = canonical_bytes(dict(record))
    parse_canonical(line, kind="drift", file=str(path))  # never write what could not be read
    with durable.storage_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            data = os.pread(descriptor, MAX_HISTORY, 0)
            end = data.rfind(b"\n") + 1
            os.ftruncate(descriptor, end)
            os.lseek(descriptor, end, os.SEEK_SET)
            durable.write_all(descriptor, line + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    durable.fsync_directory(path.parent)


def clock_notes(records: Sequence[Mapping[str, Any]], now: str) -> list[str]:
    """Say so where the clock is behind the last record: the order of looks is their sequence."""
    if records and earlier(now, records[-1]["time"]):
        return [f"the clock was set back: the last look was at {records[-1]['time']}, now is {now}"]
    return []


def _damaged(path: Path, line: int | None, problem: str) -> StorageError:
    return StorageError(
        "drift.history-damaged",
        f"the history was changed by something else: {problem}",
        fix="restore it from a copy, or move it away to begin a new one",
        where=Where(file=str(path), line=line),
    )
