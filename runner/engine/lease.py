"""Who owns a container or a control group, told by labels that anybody may read.

The owner is a process of one boot in one pid namespace. Whether it lives can be told from
``/proc``; nothing in the label names the host, a user or a path.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

#: How the name of each of our containers begins.
NAME = "sealbench-"
RUN = "sealbench.run"
UNIT = "sealbench.unit"
LEASE = "sealbench.lease"
EXPIRES = "sealbench.expires"

_LEASE = re.compile(r"([0-9a-f]{12})-([0-9]{1,12})-([0-9]{1,10})-([0-9]{1,20})")


class Owner(StrEnum):
    """What is known of an owner."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"  # of another pid namespace, or unreadable: only the expiry decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """``boot`` is a hash of the boot id; ``namespace`` the pid namespace's number; ``started`` the
    process's start in clock ticks since boot, which tells a reused pid from the owner's."""

    boot: str
    namespace: int
    pid: int
    started: int

    def __str__(self) -> str:
        return f"{self.boot}-{self.namespace}-{self.pid}-{self.started}"


def own_lease(root: Path = Path("/")) -> Lease:
    """The lease of this process."""
    pid = os.getpid()
    return Lease(
        boot=_boot(root),
        namespace=_namespace(root),
        pid=pid,
        started=_started(pid, root) or 0,
    )


def parse_lease(text: str) -> Lease | None:
    """The inverse of ``str(lease)``; None for anything else."""
    match = _LEASE.fullmatch(text)
    if match is None:
        return None
    return Lease(boot=match[1], namespace=int(match[2]), pid=int(match[3]), started=int(match[4]))


def owner_state(lease: Lease | None, root: Path = Path("/")) -> Owner:
    """Does the owner live? A lease that cannot be read has an unknown owner."""
    if lease is None:
        return Owner.UNKNOWN
    if lease.boot != _boot(root):
        return Owner.DEAD
    if lease.namespace != _namespace(root):
        return Owner.UNKNOWN
    return Owner.ALIVE if _started(lease.pid, root) == lease.started else Owner.DEAD


def labels(*, run_id: str, unit_id: str, expires_epoch: int) -> dict[str, str]:
    """The labels of one container of this process; ``expires_epoch`` is UTC seconds."""
    return {
        RUN: run_id,
        UNIT: unit_id,
        LEASE: str(own_lease()),
        EXPIRES: str(expires_epoch),
    }


def expired(container_labels: Mapping[str, str], now_epoch: float) -> bool:
    """Is the stamp past? A missing or malformed one never is."""
    text = container_labels.get(EXPIRES, "")
    return text.isascii() and text.isdigit() and int(text) < now_epoch


def _boot(root: Path) -> str:
    try:
        boot = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = "unknown"
    return hashlib.sha256(f"sealbench boot {boot}".encode()).hexdigest()[:12]


def _namespace(root: Path) -> int:
    try:
        text = (root / "proc/self/ns/pid").readlink().name
    except OSError:
        return 0
    digits = re.sub(r"[^0-9]", "", text)
    return int(digits) if digits else 0


def _started(pid: int, root: Path) -> int | None:
    """Field 22 of ``/proc/<pid>/stat``; the name in field 2 may hold spaces and brackets."""
    try:
        text = (root / f"proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text.rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] == b"Z":
        return None
    return int(fields[19])
