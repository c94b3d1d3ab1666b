"""Writes that survive a crash, and a rename that replaces nothing.

The order is always: bytes, fsync of the file, fsync of its directory, rename, fsync of the parent.
A reader then sees either nothing under the final name or all of it. Every failure of the operating
system becomes a ``StorageError`` that says what was being written.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runner.errors import StorageError, Where

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755
_NO_REPLACE = 1  # RENAME_NOREPLACE of renameat2(2)
_AT_FDCWD = -100

_CODES: dict[int, tuple[str, str]] = {
    errno.ENOSPC: ("storage.full", "free some space or choose another output folder"),
    errno.EDQUOT: ("storage.full", "raise the quota or choose another output folder"),
    errno.EEXIST: ("storage.occupied", "choose another output folder or remove this one yourself"),
    errno.ENOTEMPTY: ("storage.occupied", "choose another output folder or empty this one"),
    errno.EACCES: ("storage.unwritable", "give yourself write permission or choose another folder"),
    errno.EPERM: ("storage.unwritable", "give yourself write permission or choose another folder"),
    errno.EROFS: ("storage.unwritable", "choose a folder on a writable file system"),
    errno.EFBIG: ("storage.too-large", "raise the file size limit of this shell (ulimit -f)"),
    errno.ENOENT: ("storage.missing", "create the folder first"),
    errno.ENOTDIR: ("storage.not-a-folder", "name a folder, not a file"),
    errno.ELOOP: ("storage.symlink", "name the folder itself, not a symbolic link"),
}


def storage_error(error: OSError, path: Path | str) -> StorageError:
    """Return the ``StorageError`` that stands for an ``OSError`` met at a path."""
    code, fix = _CODES.get(error.errno or 0, ("storage.failed", "check the disk and the folder"))
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StorageError(
        code, f"cannot write: {reason.lower()}", fix=fix, where=Where(file=str(path))
    )


@contextmanager
def storage_errors(path: Path | str) -> Iterator[None]:
    """Turn any ``OSError`` inside the block into a ``StorageError`` about ``path``."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write every byte: ``os.write`` may stop early, most of all just before a disk is full."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def create_file(path: Path, mode: int = FILE_MODE) -> int:
    """Create a file that was not there, whatever the umask, and return its descriptor."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    os.fchmod(descriptor, mode)
    return descriptor


def write_new(path: Path, data: bytes, mode: int = FILE_MODE) -> None:
    """Create a file with these bytes and fsync it; ``StorageError`` when it exists."""
    with storage_errors(path):
        _write_new(path, data, mode)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    descriptor = create_file(path, mode)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, mode: int = DIRECTORY_MODE) -> None:
    """Create a directory and its missing parents with exactly this mode."""
    with storage_errors(path):
        missing = [path]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for folder in reversed(missing):
            with suppress(FileExistsError):
                folder.mkdir()
                folder.chmod(mode)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def fsync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    with storage_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def fsync_directories(root: Path) -> None:
    """Make every directory of a tree durable, deepest first, the root last."""
    with storage_errors(root):
        for folder, _, _ in os.walk(root, topdown=False):
            fsync_directory(Path(folder))


def put_file(path: Path, data: bytes, mode: int = FILE_MODE, *, replace: bool = False) -> None:
    """Publish a whole file under its name at once, durably.

    ``replace=False`` raises ``StorageError`` (``storage.occupied``) when the name is taken, even by
    a dangling link. The temporary file is removed whatever happens.
    """
    temporary = path.with_name(f".partial-{path.name}-{secrets.token_hex(4)}")
    try:
        with storage_errors(path):  # the name that was asked for, not the temporary one
            _write_new(temporary, data, mode)
        if replace:
            with storage_errors(path):
                temporary.replace(path)
        else:
            rename_new(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink()
    fsync_directory(path.parent)


def rename_new(source: Path, target: Path) -> None:
    """Rename, refusing any existing target.

    Plain ``os.rename`` silently replaces a file, and an *empty directory* by a directory. The
    kernel's RENAME_NOREPLACE refuses both without a race; where it is not to be had (an old kernel
    or file system) a look beforehand has to do.
    """
    with storage_errors(target):
        if not _rename_no_replace(source, target):
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            source.rename(target)


def _rename_no_replace(source: Path, target: Path) -> bool:
    """Return False where the system call does not exist for this file system."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _NO_REPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number))
