"""Read a file that a person named, without waiting for ever or filling memory."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file; links are followed.

    Raises ``OSError`` for anything else: a fifo would block its reader, a device may have no end.
    """
    # O_NONBLOCK: opening a fifo must not wait for somebody to write to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "this is no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, most: int) -> bytes:
    """Return at most ``most`` bytes of a regular file; ``OSError`` as from ``open_regular``."""
    with open_regular(path) as stream:
        return stream.read(most)
