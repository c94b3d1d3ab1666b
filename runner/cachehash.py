"""The content hash of a method's cache: did a run start warm, and on what?

A cache is written by methods, so nothing in it is followed or trusted: regular files count by
path, size and bytes, anything else by its path and kind.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from runner.canonical import HASH_CHUNK
from runner.purge import purge

MAX_ENTRIES = 100_000
MAX_BYTES = 64 << 30  # as files claim: a sparse one takes as long to read as any other
#: What a method can do to its cache; any other error is the host's.
_ITS_OWN = frozenset(
    {errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EPERM}
)


class UnreadableCache(Exception):
    """A method left what cannot be hashed in bounds; the message says what."""


def settled(folder: Path | None, *, writing: bool = False) -> tuple[str | None, tuple[str, ...]]:
    """Return the digest of a cache, and a line for people where it had to be emptied.

    What cannot be hashed must neither end the run nor reach the next method: it is removed, and the
    cache starts cold again. Nothing is removed while a container may be ``writing``.
    """
    try:
        return cache_digest(folder), ()
    except UnreadableCache as problem:
        if folder is None or writing:
            return None, (f"/cache: {problem}",)
        purge(folder)
        folder.mkdir()
        return None, (f"/cache: {problem}; it was emptied",)


def cache_digest(folder: Path | None) -> str | None:
    """Return ``sha256:<hex>`` of what a cache holds; None when there is none or it holds nothing.

    Call only while no container writes there. Raises ``UnreadableCache`` for what a method did, and
    ``OSError`` where the disk fails.
    """
    try:
        return None if folder is None else _digest(folder)
    except OSError as error:
        if error.errno not in _ITS_OWN:
            raise
        raise UnreadableCache(os.strerror(error.errno)) from error


def _digest(folder: Path) -> str | None:
    digest, empty, size = hashlib.sha256(), True, 0
    for number, (path, status) in enumerate(_walk(folder)):
        size += status.st_size if stat.S_ISREG(status.st_mode) else 0
        if number >= MAX_ENTRIES or size > MAX_BYTES:
            message = f"more than {MAX_ENTRIES} entries, or {MAX_BYTES >> 30} GiB"
            raise UnreadableCache(message)
        empty = False
        name = os.fsencode(path.relative_to(folder))
        digest.update(b"%d %d " % (len(name), stat.S_IFMT(status.st_mode)) + name)
        if stat.S_ISREG(status.st_mode):
            digest.update(_file_digest(path))
    return None if empty else f"sha256:{digest.hexdigest()}"


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    pending = [folder]
    while pending:
        here = pending.pop()
        with os.scandir(here) as entries:
            some = islice(entries, MAX_ENTRIES + 1)  # more are refused, in whatever order
            found = sorted(some, key=lambda entry: os.fsencode(entry.name))
        for entry in found:
            status = entry.stat(follow_symlinks=False)
            yield Path(entry.path), status
            if stat.S_ISDIR(status.st_mode):
                pending.append(Path(entry.path))


def _file_digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb", buffering=0) as stream:
        while block := stream.read(HASH_CHUNK):
            digest.update(block)
    return digest.digest()
