"""The content hash of a method's cache: did a run start warm, and on what?

A cache is written by methods, so nothing in it is followed or trusted: regular files count by
path, size and bytes, anything else by its path and kind.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from runner.canonical import HASH_CHUNK

MAX_ENTRIES = 100_000


def cache_digest(folder: Path | None) -> str | None:
    """Return ``sha256:<hex>`` of what a cache holds; None when there is none or it holds nothing.

    Call only while no container writes there. Raises ``OSError`` for what cannot be read.
    """
    if folder is None:
        return None
    digest, empty = hashlib.sha256(), True
    for number, (path, status) in enumerate(_walk(folder)):
        if number >= MAX_ENTRIES:
            raise OSError(f"more than {MAX_ENTRIES} entries in the cache")
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
            found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
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
