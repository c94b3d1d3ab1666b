"""Where images are put together: memory when there is enough of it, else the temporary folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - a fresh private folder is made below it
#: The largest set of layers in the making needs about a third of this.
ENOUGH_BYTES = 2 << 30


@contextmanager
def work_folder() -> Iterator[Path]:
    """Yield a fresh private folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sealbench-build-", dir=_parent()) as name:
        yield Path(name)


def _parent() -> str | None:
    try:
        status = os.statvfs(MEMORY)
    except OSError:
        return None
    # The image's interpreter is started from the work folder.
    runs_programs = not status.f_flag & os.ST_NOEXEC
    enough = status.f_bavail * status.f_frsize >= ENOUGH_BYTES
    return str(MEMORY) if runs_programs and enough else None
