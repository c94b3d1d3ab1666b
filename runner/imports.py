"""Results that somebody else's run made, to be scored under the protocol: read, never executed.

The file is hashed when the plan is made: its content is the method's identity. It is hashed again
while its rows are taken, and one that was changed in between is not scored. What its rows mean is
for the task to say; they go through the same checks as those of a method that ran here.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from runner.errors import DataError, Where
from runner.model import Evidence, ImportedFile, RowsReport
from runner.rows.faults import RowRefused

if TYPE_CHECKING:
    from runner.manifest import RunManifest
    from runner.model import Plan
    from runner.rows.read import RowChecker
    from runner.tasks.api import Task

MAX_BYTES = 8 << 30
_BLOCK = 1 << 20
_NOT_HERE = "not executed here: the rows were imported"
_UNMEASURED = ("wall_ns", "cpu_ns", "peak_memory_bytes", "rss_peak_bytes", "oom_events")


def digest_file(path: Path) -> tuple[str, int]:
    """Return (``sha256:<hex>``, size in bytes) of a file; ``DataError`` where it cannot be read."""
    with open_import(path) as stream:
        return digest_stream(stream)


def digest_stream(stream: IO[bytes]) -> tuple[str, int]:
    """Return (``sha256:<hex>``, size in bytes) of an open file, read from its beginning."""
    stream.seek(0)
    digest, size = hashlib.sha256(), 0
    while block := stream.read(_BLOCK):
        digest.update(block)
        size += len(block)
    stream.seek(0)
    return f"sha256:{digest.hexdigest()}", size


def check_pinned(manifest: RunManifest, plan: Plan, data_root: Path | None) -> None:
    """Raise ``DataError`` where a precomputed file is not what the manifest pins."""
    planned = {method.name for method in plan.methods}
    datasets = dict.fromkeys(unit.dataset for unit in plan.units)
    for spec in manifest.methods:
        if spec.pin is None or spec.name not in planned:
            continue
        for path in dict.fromkeys(spec.imported_path(name, data_root) for name in datasets):
            sha256, size = digest_file(path)
            if (sha256, size) != (spec.pin.sha256, spec.pin.size):
                raise DataError(
                    "data.changed",
                    f"the results of {spec.name} have {sha256} ({size} bytes), pinned are "
                    f"{spec.pin.sha256} ({spec.pin.size} bytes)",
                    fix="get the published file again, or correct the pin",
                    where=Where(file=str(path)),
                )


def open_import(path: Path) -> BinaryIO:
    """Open a regular file of results; ``DataError`` for anything else."""
    try:
        # O_NONBLOCK: opening a fifo must not wait for somebody to write to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _unreadable(path, f"cannot read the results: {reason}") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
        os.close(descriptor)
        raise _unreadable(path, f"no regular file of at most {MAX_BYTES} bytes")
    return os.fdopen(descriptor, "rb")


def _unreadable(path: Path, message: str) -> DataError:
    return DataError(
        "data.import-unreadable",
        message,
        fix="give the path of a file of results that exists and that you may read",
        where=Where(file=str(path)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One unit whose rows come from a file; the task says what stands in it."""

    path: Path
    file: ImportedFile
    task: Task
    dataset: Any
    ids: tuple[str, ...]
    checker: RowChecker[Any]
    rows_dir: Path


def import_unit(unit: Import) -> Evidence:
    """Take the rows of a file into part files, and say what was found; nothing is executed.

    A file that is gone or was changed since the plan was made leaves the unit not started. Raises
    ``StorageError`` where the rows cannot be written.
    """
    from runner.parts import PartWriter

    writer = PartWriter(unit.rows_dir)
    unmeasured = dict.fromkeys(_UNMEASURED, _NOT_HERE)
    try:
        with open_import(unit.path) as stream:
            report, left_out = _take(stream, unit, writer.write)
            same = digest_stream(stream) == (unit.file.sha256, unit.file.size)
    except DataError as error:
        writer.discard()
        return Evidence(not_started_reason=error.message, unmeasured=unmeasured)
    except BaseException:
        writer.discard()
        raise
    if not same:
        writer.discard()
        reason = "the file of results was changed since the plan was made"
        return Evidence(not_started_reason=reason, unmeasured=unmeasured)
    writer.commit()
    note = f"{left_out} rows for what is not asked under the protocol were left out"
    return Evidence(
        imported=unit.file.sha256,
        rows=report,
        warnings=(note,) if left_out else (),
        unmeasured=unmeasured,
    )


def _take(
    stream: BinaryIO, unit: Import, sink: Callable[[bytes], object]
) -> tuple[RowsReport, int]:
    """Return the report on the planned rows of a file, and how many others it has."""
    from runner.rows.read import FaultLog, read_rows

    faults, wanted, left_out = FaultLog(), frozenset(unit.ids), 0

    def planned() -> Iterator[bytes]:
        nonlocal left_out
        try:
            for key, line in unit.task.import_rows(stream, unit.dataset, unit.ids, faults):
                if key in wanted:
                    yield line
                else:
                    left_out += 1
        except RowRefused as refused:  # the file as a whole cannot be read
            faults.add(1, refused.code, refused.message)
        except OSError as error:
            message = f"reading failed: {os.strerror(error.errno or 0)}"
            faults.add(1, "rows.unreadable", message)

    report = read_rows(planned(), unit.checker, sink=sink, faults=faults).report
    return report, left_out
