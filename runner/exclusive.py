"""A lock that one process holds at a time, that says who holds it, and that dies with its owner.

The kernel's lock decides; it ends with the process, however that ends, so no clock is asked and
nothing has to be cleaned up. The lease in the file tells people who holds it, and refuses where a
file system has no working locks but the owner can be seen to live.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.bundle import durable
from runner.engine.lease import Owner, own_lease, owner_state, parse_lease
from runner.errors import StorageError, Where

MAX_LEASE = 200


@contextmanager
def exclusive(path: Path, *, what: str) -> Iterator[None]:
    """Hold the lock file at ``path``; ``StorageError`` (``storage.busy``) when another does.

    ``what`` names for people what only one may do.
    """
    with durable.storage_errors(path):
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o644)
    try:
        held = os.pread(descriptor, MAX_LEASE, 0).decode("ascii", "replace").strip()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _busy(path, what, held) from error
        lease = parse_lease(held)
        if lease is not None and lease != own_lease() and owner_state(lease) is Owner.ALIVE:
            raise _busy(path, what, held)
        _write(descriptor, f"{own_lease()}\n", path)
        try:
            yield
        finally:
            _write(descriptor, "", path)
    finally:
        os.close(descriptor)


def _write(descriptor: int, text: str, path: Path) -> None:
    with durable.storage_errors(path):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode("ascii"), 0)


def _busy(path: Path, what: str, held: str) -> StorageError:
    lease = parse_lease(held)
    who = f"process {lease.pid}" if lease is not None else "another process"
    return StorageError(
        "storage.busy",
        f"{who} is at it: {what}",
        fix="wait for it to end; the lock goes with it",
        where=Where(file=str(path)),
    )
