"""What may cross from a container to the host: valid rows, and nothing else.

The output folder was written by a method and is taken for hostile. Names are looked up below one
open folder, nothing is followed, only a regular file with one name is opened, without blocking, and
what was opened is looked at again. Bytes are streamed: memory does not grow with what was written.
Call it when the container is proven dead, else files change while they are read.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from runner.harvest_recording import MAX_BYTES as MAX_RECORDED
from runner.harvest_recording import RECORDED, copy_recording
from runner.model import Limits, RowsReport
from runner.outwatch import FOLDER_FLAGS, OutputWatch
from runner.parts import PartWriter
from runner.rows.faults import FaultLog
from runner.rows.read import RowChecker, file_lines, read_rows, trec_to_rows
from runner.secret_scan import MARK, Needles

ROWS, TREC, ARTIFACTS = "rows.jsonl", "run.trec", "artifacts"
#: No valid row or TREC line is shorter: a file of shorter lines is not read to its end.
SHORTEST_LINE = 10
_DENSITY_SLACK = 1 << 20
#: Names listed as refused; the rest is counted.
MAX_LISTED = 50
_MAX_NAME = 80
_READ_BUFFER = 1 << 20
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFDIR: "folder",
    stat.S_IFREG: "file",
}
RowT = TypeVar("RowT", bound=tuple[Any, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """What crossed. ``rows`` is None when there was no readable file of rows; ``refused`` says of
    each thing in ``/out`` that did not cross why; ``source`` is the file that the rows came from.
    """

    rows: RowsReport | None
    source: str | None
    refused: tuple[str, ...]


def harvest(  # noqa: PLR0913 - independent options, by keyword only
    out_dir: Path,
    *,
    limits: Limits,
    checker: RowChecker[RowT],
    rows_dir: Path,
    on_block: Callable[[list[RowT]], object] | None = None,
    needles: Needles | None = None,
    recording: Path | None = None,
) -> Harvest:
    """Copy the valid rows of ``out_dir`` into part files in ``rows_dir``.

    A file of rows with a secret of ``needles`` in it does not cross at all. ``recording`` is where
    ``artifacts/responses.jsonl`` goes; None leaves it.

    ``rows.jsonl`` is copied line by line, byte for byte; ``run.trec`` is converted where there is
    no ``rows.jsonl`` of any kind. ``on_block`` gets the parsed rows of the same read. Never raises
    for what the method wrote; raises ``StorageError`` when ``rows_dir`` cannot be written, and
    then leaves no part behind.
    """
    try:
        folder = os.open(out_dir, FOLDER_FLAGS)
    except OSError as error:  # the method may have taken its own folder's rights away
        refused = f"/out cannot be opened: {os.strerror(error.errno or 0)}"
        return Harvest(rows=None, source=None, refused=(refused,))
    try:
        name, found = _pick(folder, limits.output_bytes)
        found = _without_secret(found, needles)
        problem = None if recording is None else _record(folder, recording, needles)
        crossed = _Crossed(rows=name, recording=problem == "", needles=needles)
        others = (*_others(folder, out_dir, crossed, limits.output_files), *filter(None, [problem]))
        if isinstance(found, _Source):
            with found:
                return _copy(found, checker, rows_dir, on_block, others)
    finally:
        os.close(folder)
    PartWriter(rows_dir)  # parts of an earlier attempt are not of this one
    refused_rows = () if found is None else (f"{name}: {found}",)
    return Harvest(rows=None, source=None, refused=(*refused_rows, *others))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crossed:
    """What crossed, and what the names of the rest must not show."""

    rows: str | None
    recording: bool
    needles: Needles | None


class _Source(io.RawIOBase):
    """A regular file that was opened safely, read to its size at that moment and no further.

    It ends early, and ``gave_up`` says why, where reading on makes no sense.
    """

    def __init__(self, name: str, descriptor: int, size: int) -> None:
        self.source_name = name
        self.gave_up: str | None = None
        self.faults = FaultLog()
        self._descriptor, self._size = descriptor, size
        self._position = self._lines = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET:  # the only way back: to the beginning, for a second read
            self._position, self._lines = offset, 0
        return self._position

    def readinto(self, buffer: Any) -> int:
        room = min(len(buffer), self._size - self._position)
        if room <= 0 or self.gives_up():
            return 0
        view = memoryview(buffer)[:room]
        count = os.preadv(self._descriptor, [view], self._position)
        self._position += count
        self._lines += bytes(view[:count]).count(b"\n")
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()

    def gives_up(self) -> bool:
        """Whether reading on could only produce more bad lines."""
        if self._lines * SHORTEST_LINE > self._position + _DENSITY_SLACK:
            self.gave_up = "lines too short to be rows: the rest was not read"
        return self.gave_up is not None or self.faults.exhausted


def _copy(
    source: _Source,
    checker: RowChecker[RowT],
    rows_dir: Path,
    on_block: Callable[[list[RowT]], object] | None,
    others: tuple[str, ...],
) -> Harvest:
    writer = PartWriter(rows_dir)
    try:
        result = read_rows(
            _lines(source), checker, sink=writer.write, on_block=on_block, faults=source.faults
        )
        writer.commit()
    except OSError as error:  # of the source: the writer's own are StorageErrors
        writer.discard()
        reason = f"{source.source_name}: reading failed: {os.strerror(error.errno or 0)}"
        return Harvest(rows=None, source=None, refused=(reason, *others))
    except BaseException:
        writer.discard()
        raise
    report = result.report if source.gave_up is None else replace(result.report, whole=False)
    return Harvest(rows=report, source=source.source_name, refused=others)


def _lines(source: _Source) -> Iterator[bytes]:
    """The row lines of a source; the fault of giving up comes last."""
    stream = io.BufferedReader(source, _READ_BUFFER)
    lines: Iterable[bytes]
    if source.source_name == TREC:
        lines = trec_to_rows(cast(BinaryIO, stream), source.faults)
    else:
        lines = file_lines(cast(BinaryIO, stream))
    count = 0
    for count, line in enumerate(lines, 1):  # noqa: B007 - used after the loop
        yield line
    if source.gave_up is not None:
        source.faults.add(count + 1, "rows.gave-up", source.gave_up)


def _pick(folder: int, max_bytes: int) -> tuple[str | None, _Source | str | None]:
    """Return the name of the row file and either its source or why it is refused."""
    for name in (ROWS, TREC):
        found = _open_regular(folder, name, max_bytes)
        if found is not None:
            return name, found
    return None, None


def _open_regular(folder: int, name: str, max_bytes: int) -> _Source | str | None:
    """Open a file that may be anything; None when it is absent, text when it is refused."""
    try:
        # Looked at first: opening a device can do something.
        before = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(before.st_mode):
            return _KINDS.get(stat.S_IFMT(before.st_mode), "no regular file")
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be opened: {os.strerror(error.errno or 0)}"
    found = os.fstat(descriptor)
    problem = _problem(before, found, max_bytes)
    if problem is not None:
        os.close(descriptor)
        return problem
    return _Source(name, descriptor, found.st_size)


def _problem(before: os.stat_result, found: os.stat_result, max_bytes: int) -> str | None:
    """Pure: why an opened file is not taken."""
    if not stat.S_ISREG(found.st_mode) or not os.path.samestat(before, found):
        return "changed while it was opened"
    if found.st_nlink != 1:
        # A link cannot lead out of /out (mounts end links), but then why is there one?
        return f"has {found.st_nlink} names (hard link)"
    if found.st_size > max_bytes:
        return f"{found.st_size} bytes, more than the limit of {max_bytes}"
    return None


def _without_secret(found: _Source | str | None, needles: Needles | None) -> _Source | str | None:
    """Refuse a file of rows that holds a secret; else it can be read from its beginning."""
    if needles is None or not isinstance(found, _Source):
        return found
    try:
        name = needles.find_in(cast(BinaryIO, found))
    except OSError as error:
        name, problem = "", f"reading failed: {os.strerror(error.errno or 0)}"
    else:
        problem = f"holds the secret {name}"
    if name is None:
        found.seek(0)
        return found
    found.close()
    return problem


def _record(folder: int, target: Path, needles: Needles | None) -> str | None:
    """Carry the recording over; return why it was refused, "" when it was not, None without."""
    shown = f"{ARTIFACTS}/{RECORDED}"
    target.unlink(missing_ok=True)  # of an earlier attempt
    try:
        artifacts = os.open(ARTIFACTS, FOLDER_FLAGS, dir_fd=folder)
    except OSError:
        return None
    try:
        source = _open_regular(artifacts, RECORDED, MAX_RECORDED)
    finally:
        os.close(artifacts)
    if not isinstance(source, _Source):
        return None if source is None else f"{shown}: {source}"
    with source:
        problem = copy_recording(source, target, needles)
    return "" if problem is None else f"{shown}: {problem}"


def _others(folder: int, out_dir: Path, crossed: _Crossed, max_files: int) -> tuple[str, ...]:
    """Say of everything else in ``/out`` that it did not cross."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, max_files + 1)]
    except OSError as error:
        return (f"/out cannot be listed: {os.strerror(error.errno or 0)}",)
    rest = sorted(name for name in names if name != crossed.rows)
    for name in rest[:MAX_LISTED]:
        why = _why(folder, out_dir, name, crossed)
        if why:
            found.append(f"{_shown(name, crossed.needles)}: {why}")
    if len(rest) > MAX_LISTED:
        found.append(f"and {len(rest) - MAX_LISTED} more")
    return tuple(found)


def _why(folder: int, out_dir: Path, name: str, crossed: _Crossed) -> str:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError as error:
        return os.strerror(error.errno or 0)
    kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
    if name == ARTIFACTS and stat.S_ISDIR(mode):
        return _artifacts(out_dir / ARTIFACTS, carried=crossed.recording)
    if name == TREC and stat.S_ISREG(mode):
        return f"{ROWS} was taken instead"
    return f"{kind}, not part of the contract"


def _artifacts(folder: Path, *, carried: bool) -> str:
    """Say what stays behind; nothing when it is only the recording, and that was carried."""
    try:
        watch = OutputWatch(folder, max_bytes=1 << 62, max_files=1_000_000)
    except OSError as error:
        return os.strerror(error.errno or 0)
    try:
        size = watch.measure()
    finally:
        watch.close()
    if carried and size.entries == 1:
        return ""
    but = f" but for {RECORDED}" if carried else ""
    return f"{size.entries} entries, {size.apparent_bytes} bytes, not carried{but}"


def _shown(name: str, needles: Needles | None) -> str:
    """A hostile name as printable text without lone surrogates."""
    if needles is not None and needles.find(os.fsencode(name)) is not None:
        return MARK.decode()
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return safe if len(safe) <= _MAX_NAME else f"{safe[:_MAX_NAME]}..."
