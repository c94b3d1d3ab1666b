"""Read a file that a person named, without waiting for ever or filling memory."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, most: int) -> bytes:
    """Return at most ``most`` bytes of a regular file; links are followed.

    Raises ``OSError`` for anything else: a fifo would block its reader, a device may have no end.
    """
    # O_NONBLOCK: opening a fifo must not wait for somebody to write to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "this is no regular file", str(path))
        return stream.read(most)
