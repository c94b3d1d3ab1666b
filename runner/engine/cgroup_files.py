"""Where the control groups are mounted, and cheap reads of their files.

A file is kept open and read again by ``pread``: some 5 microseconds where opening costs 30, which
counts at ten readings a second. Once a group is removed, its open files answer with an error.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

V1_CONTROLLERS = ("memory", "cpu", "cpuacct", "pids")
_READ_SIZE = 1 << 14
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupMounts:
    """Mount points of whole hierarchies: the controllers that we read, version 2, and ``every``
    one, read or not. ``partial`` names what is mounted from below its root only."""

    v1: Mapping[str, Path]
    v2: Path | None
    every: tuple[Path, ...] = ()
    v2_local_events: bool = False
    partial: frozenset[str] = frozenset()


def find_mounts(root: Path = Path("/")) -> CgroupMounts:
    """Read ``/proc/self/mountinfo``; ``root`` stands in for ``/`` in tests."""
    try:
        text = (root / "proc/self/mountinfo").read_bytes()
    except OSError:
        return CgroupMounts(v1={}, v2=None)
    return parse_mountinfo(text, root)


def parse_mountinfo(text: bytes, root: Path = Path("/")) -> CgroupMounts:
    """Pure but for the name: see proc(5), section mountinfo."""
    v1: dict[str, Path] = {}
    v2: Path | None = None
    local_events = False
    partial: set[str] = set()
    every: list[Path] = []
    for line in text.splitlines():
        head, _, tail = line.partition(b" - ")
        fields, kind = head.split(), tail.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in (b"cgroup", b"cgroup2"):
            continue
        whole = fields[3] == b"/"
        point = root / os.fsdecode(_OCTAL.sub(_unescape, fields[4])).lstrip("/")
        if whole:
            every.append(point)
        options = set(kind[2].decode("ascii", "replace").split(","))
        if kind[0] == b"cgroup2":
            if whole:
                v2, local_events = v2 or point, "memory_localevents" in options
            else:
                partial.add("cgroup2")
            continue
        for controller in options.intersection(V1_CONTROLLERS):
            if whole:
                v1.setdefault(controller, point)
            else:
                partial.add(controller)
    return CgroupMounts(
        v1=v1,
        v2=v2,
        every=tuple(dict.fromkeys(every)),
        v2_local_events=local_events,
        partial=frozenset(partial - set(v1)),
    )


def parse_membership(text: str) -> dict[str, str]:
    """``/proc/<pid>/cgroup`` -> controller -> path; version 2 has the key ``""``."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number and path:
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def membership(pid: int, root: Path = Path("/")) -> dict[str, str]:
    """The groups of a process; empty when it is gone or in a pid namespace that we cannot see."""
    try:
        return parse_membership((root / f"proc/{pid}/cgroup").read_text())
    except OSError:
        return {}


class CounterFile:
    """One file of a group. ``read`` gives None once the group is gone or if it never was there."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def present(self) -> bool:
        """Was the file there, and may we read it?"""
        return self._descriptor is not None

    def read(self) -> bytes | None:
        if self._descriptor is None:
            return None
        try:
            return os.pread(self._descriptor, _READ_SIZE, 0)
        except OSError:
            return None

    def number(self) -> int | None:
        """The file's only number; None for ``max`` too."""
        text = self.read()
        return _int(text) if text is not None else None

    def keyed(self, *keys: bytes) -> tuple[int | None, ...]:
        """The numbers behind ``key number`` lines, in the order of the keys."""
        text = self.read()
        if text is None:
            return (None,) * len(keys)
        # Some 60 lines, of which one or two count: looking for those is a tenth of splitting all.
        text = b"\n" + text
        return tuple(_after(text, b"\n" + key + b" ") for key in keys)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def highest(*values: int | None) -> int | None:
    """The highest of those that were read; None when none was."""
    known = [value for value in values if value is not None]
    return max(known) if known else None


def refused_forks(
    seen: int | None, peak: int | None, limit: int | None
) -> tuple[int | None, str | None]:
    """(refused forks, why unknown) of a container that is gone.

    ``seen`` is the last reading of its counter, ``peak`` the most processes that our group above
    it ever held. None seen, and the limit never reached: none. None seen, but the limit reached:
    the last moments were not counted, and 0 would be a guess.
    """
    if seen:
        return seen, None
    if seen is None:
        return None, None
    if peak is None:
        return None, "none until the last reading; the kernel has no pids.peak (Linux 6.0)"
    if limit is not None and peak >= limit:
        return None, "none until the last reading, but the limit was reached after it"
    return 0, None


def remove_tree(folder: Path) -> bool:
    """Remove a group and the groups below it, none of which may hold a process; did it go?"""
    if folder.is_symlink() or not folder.is_dir():
        return True
    for below in sorted(folder.iterdir()):
        if below.is_dir() and not below.is_symlink():
            remove_tree(below)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def close_all(files: Iterable[CounterFile]) -> None:
    for file in files:
        file.close()


def _after(text: bytes, head: bytes) -> int | None:
    start = text.find(head)
    return None if start < 0 else _int(text[start + len(head) :].partition(b"\n")[0])


def _int(text: bytes) -> int | None:
    text = text.strip()
    return int(text) if text.isdigit() else None


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8)])
