"""Where images are put together: memory when there is enough of it, else the temporary folder."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runner.errors import StorageError
from runner.purge import purge

MEMORY = Path("/dev/shm")  # noqa: S108 - a fresh private folder is made below it
#: The largest set of layers in the making needs about a third of this.
ENOUGH_BYTES = 2 << 30
#: A folder as young as this may not have been locked yet.
YOUNG_S = 600
_PREFIX = "sealbench-build-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def work_folder() -> Iterator[Path]:
    """Yield a fresh private folder that is gone afterwards; those of killed builds go first."""
    parent = _parent()
    sweep(parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as name:
        lock = os.open(name, _FOLDER)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # lets go when this process ends, however it does
            yield Path(name)
        finally:
            os.close(lock)


def sweep(parent: Path) -> None:
    """Remove our own folders that no process holds: left in memory, they would stay until boot."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError, StorageError):  # of somebody else, or in use
            lock = os.open(folder, _FOLDER)
            try:
                status = os.fstat(lock)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > YOUNG_S:
                    purge(folder)
            finally:
                os.close(lock)


def _parent() -> Path:
    elsewhere = Path(tempfile.gettempdir())
    try:
        status = os.statvfs(MEMORY)
    except OSError:
        return elsewhere
    # The image's interpreter is started from the work folder.
    runs_programs = not status.f_flag & os.ST_NOEXEC
    enough = status.f_bavail * status.f_frsize >= ENOUGH_BYTES
    return MEMORY if runs_programs and enough else elsewhere
