"""Remove a folder that a method wrote, however it is built.

``shutil.rmtree`` recurses (a tree of 1,000 levels ends it) and gives up on folders without
permissions. Here inner folders are moved up to the top instead, so that depth costs neither stack
nor descriptors nor path length, and nothing is ever followed.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from runner.errors import StorageError
from runner.outwatch import FOLDER_FLAGS


def purge(folder: Path) -> None:
    """Remove ``folder`` and all below it; absent already is no error.

    Raises ``StorageError`` when something cannot be removed, for example another user's files.
    Call only when nothing writes there any more.
    """
    try:
        above = os.open(folder.parent, FOLDER_FLAGS)
        try:
            _dissolve(above, folder.name)
        finally:
            os.close(above)
    except FileNotFoundError:
        return
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            "storage.not-removable",
            f"cannot remove the work folder {folder}: {reason}",
            fix="remove it by hand, with the rights of the user who owns its files",
        ) from error


def _dissolve(above: int, name: str) -> None:
    """Empty the folder ``name`` in ``above``, then remove it."""
    top = _open_softened(above, name)
    try:
        token = secrets.token_hex(8)  # no name that a method could have taken on purpose
        fresh = (f"{token}-{number}" for number in count())
        while _pass(top, top, fresh):
            pass
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=above)


def _pass(folder: int, top: int, fresh: Iterator[str]) -> bool:
    """Remove what ``folder`` holds; its folders are moved to ``top``, or emptied if it is the top.

    False when there was nothing. A listing may miss entries while they are removed, so the caller
    repeats until then.
    """
    found = False
    with os.scandir(folder) as entries:
        for entry in entries:
            found = True
            if not stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode):
                os.unlink(entry.name, dir_fd=folder)
            elif folder != top:
                os.close(_open_softened(folder, entry.name))  # else it cannot be moved
                os.rename(entry.name, next(fresh), src_dir_fd=folder, dst_dir_fd=top)
            else:
                inner = _open_softened(top, entry.name)
                try:
                    while _pass(inner, top, fresh):
                        pass
                finally:
                    os.close(inner)
                os.rmdir(entry.name, dir_fd=top)
    return found


def _open_softened(above: int, name: str) -> int:
    """Open a folder after giving its owner back every right to it."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101 - by descriptor, not path
        return os.open(name, FOLDER_FLAGS, dir_fd=above)
    finally:
        os.close(handle)
