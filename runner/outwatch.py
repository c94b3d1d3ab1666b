"""How much a method has written so far: bytes and entries of its output folder, while it writes.

The tree is hostile: it changes while it is read, nests without end, holds symlinks, fifos and names
that are no text. Nothing is followed and nothing but folders is opened. One descriptor walks the
tree (down by name, up by ``..``, proven by inode), so depth costs no descriptors and a folder that
is moved meanwhile cannot lead outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: Entries that one tick looks at; larger trees take several ticks.
TICK_ENTRIES = 500
GROWTH_BYTES = 1 << 20
#: Most that one count of rows reads.
COUNT_BYTES = 4 << 20
#: Blocks are rounded up and reserved ahead: allocation beyond the cap counts only past this slack.
_BLOCK = 4096
_SLACK_BYTES = 1 << 20
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSize:
    """What a folder holds. ``apparent_bytes`` counts holes, ``allocated_bytes`` the disk that is
    used, ``entries`` everything below it, ``unseen`` folders that could not be read."""

    apparent_bytes: int
    allocated_bytes: int
    entries: int
    unseen: int
    exceeded: str | None  # "output_bytes" | "output_files": then the walk ended there


class OutputWatch:
    """Watches one output folder with bounded work per tick. Not for two threads."""

    def __init__(self, folder: Path, *, max_bytes: int, max_files: int) -> None:
        """Open the folder; ``OSError`` when it is none."""
        self._fd = os.open(folder, FOLDER_FLAGS)
        self._max_bytes, self._max_files = max_bytes, max_files
        self._walk: _Walk | None = None
        self._before = 0
        #: Whether more than ``GROWTH_BYTES`` came between the last two walks.
        self.growing = False

    def tick(self) -> str | None:
        """Look at up to ``TICK_ENTRIES`` more entries; return the cap that is passed, if any.

        A walk over several ticks may add up files that never were there together, so a cap counts
        as passed only when a walk at one go agrees.
        """
        walk = self._walk = self._walk or _Walk(self._fd)
        for _ in range(TICK_ENTRIES):
            if not walk.step():
                self.growing = walk.apparent > self._before + GROWTH_BYTES
                self._before = walk.apparent
                self._forget()
                return None
            if walk.exceeded(self._max_bytes, self._max_files):
                self._forget()
                return self.measure().exceeded
        return None

    def measure(self) -> OutputSize:
        """Walk the tree at one go, until its end or until a cap is passed."""
        walk = _Walk(self._fd)
        exceeded = None
        while exceeded is None and walk.step():
            exceeded = walk.exceeded(self._max_bytes, self._max_files)
        walk.close()
        return OutputSize(
            apparent_bytes=walk.apparent,
            allocated_bytes=walk.allocated,
            entries=walk.entries,
            unseen=walk.unseen,
            exceeded=exceeded,
        )

    def close(self) -> None:
        """Release the folder."""
        self._forget()
        os.close(self._fd)

    def _forget(self) -> None:
        if self._walk is not None:
            self._walk.close()
        self._walk = None


class RowCounter:
    """Counts the lines of a growing ``rows.jsonl``, for those who watch; no verdict rests on it."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.open(folder, FOLDER_FLAGS)
        self._file: int | None = None
        self._lines = 0

    def count(self) -> int | None:
        """Return the lines so far, after reading at most ``COUNT_BYTES`` more; None without a
        regular file."""
        if self._file is None:
            self._file = self._open()
        if self._file is None:
            return None
        with suppress(OSError):
            self._lines += os.read(self._file, COUNT_BYTES).count(b"\n")
        return self._lines

    def close(self) -> None:
        """Release the file and its folder."""
        if self._file is not None:
            os.close(self._file)
        self._file = None
        os.close(self._folder)

    def _open(self) -> int | None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open("rows.jsonl", flags, dir_fd=self._folder)
        except OSError:
            return None
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
        return None


class _Walk:
    """One walk over a tree, an entry a step, with running sums."""

    def __init__(self, root_fd: int) -> None:
        self.apparent = self.allocated = self.entries = self.unseen = 0
        self._inodes: set[int] = set()
        self._steps = self._run(root_fd)

    def step(self) -> bool:
        """Count one more entry; False at the end."""
        return next(self._steps, None) is not None

    def close(self) -> None:
        """Release the descriptors of a walk that is not at its end."""
        self._steps.close()

    def exceeded(self, max_bytes: int, max_files: int) -> str | None:
        """Which cap the sums so far pass."""
        if self.entries > max_files:
            return "output_files"
        rounding = self.entries * _BLOCK + _SLACK_BYTES
        if self.apparent > max_bytes or self.allocated > max_bytes + rounding:
            return "output_bytes"
        return None

    def _run(self, root_fd: int) -> Generator[bool, None, None]:
        try:
            here = os.open(".", FOLDER_FLAGS, dir_fd=root_fd)
        except OSError:  # the method took our permission to look
            self.unseen += 1
            return
        try:
            stack = [(_identity(here), (yield from self._list(here)))]
            while True:
                names = stack[-1][1]
                if names:
                    inner = self._open(names.pop(), here)
                    if inner is not None:
                        here = _instead(here, inner)
                        stack.append((_identity(here), (yield from self._list(here))))
                elif len(stack) == 1:
                    return
                else:
                    stack.pop()
                    here = _instead(here, self._up(here, stack[-1][0], root_fd))
                    if _identity(here) != stack[-1][0]:
                        del stack[1:]
        except OSError:
            self.unseen += 1
        finally:
            os.close(here)

    def _list(self, folder: int) -> Generator[bool, None, list[str]]:
        """Count the entries of one folder, one a step; return the names of its folders."""
        folders = []
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    self.entries += 1
                    if self._count(entry):
                        folders.append(entry.name)
                    yield True
        except OSError:
            self.unseen += 1
        return folders

    def _count(self, entry: os.DirEntry[str]) -> bool:
        """Add one entry's bytes; True for a folder."""
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            self.unseen += 1
            return False
        if stat.S_ISREG(found.st_mode) and found.st_ino not in self._inodes:
            self._inodes.add(found.st_ino)  # a second name, or a file that was renamed meanwhile
            self.apparent += found.st_size
            self.allocated += found.st_blocks * 512
        return stat.S_ISDIR(found.st_mode)

    def _open(self, name: str, folder: int) -> int | None:
        try:
            return os.open(name, FOLDER_FLAGS, dir_fd=folder)
        except PermissionError:
            self.unseen += 1
        except OSError:  # removed, or something else took its name
            pass
        return None

    def _up(self, folder: int, parent: tuple[int, int], root_fd: int) -> int:
        """Open the folder above, or the top of the tree when that is another one by now."""
        upper = os.open("..", FOLDER_FLAGS, dir_fd=folder)
        if _identity(upper) == parent:
            return upper
        os.close(upper)
        return os.open(".", FOLDER_FLAGS, dir_fd=root_fd)


def _identity(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino


def _instead(old: int, new: int) -> int:
    os.close(old)
    return new
