"""Counts what goes through one unit's proxy, and says when it is too much. Safe in threads."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from runner.egress.targets import Target
from runner.model import HostUse, NetworkUse

#: Distinct refused targets that are named; the rest is only counted.
MAX_REFUSED = 20


class Meter:
    """``max_bytes`` bounds the bytes of all connections together, both ways."""

    def __init__(self, allowed: Iterable[Target], max_bytes: int) -> None:
        self._lock = threading.Lock()
        self._counts = {str(target): [0, 0, 0, 0] for target in allowed}
        self._left = max_bytes
        self._refused: dict[str, int] = {}
        self._refused_total = 0
        self._capped = False

    def connected(self, target: Target, *, failed: bool = False) -> None:
        """Count a connection to an allowed target, or that none could be made."""
        with self._lock:
            self._counts[str(target)][1 if failed else 0] += 1

    def refuse(self, shown: str) -> None:
        """Count an attempt at what is not allowed; ``shown`` is what a record may say of it."""
        with self._lock:
            self._refused_total += 1
            if shown in self._refused or len(self._refused) < MAX_REFUSED:
                self._refused[shown] = self._refused.get(shown, 0) + 1

    def sent(self, target: Target, count: int) -> bool:
        """Count bytes that are about to go out; False when they must not."""
        return self._take(target, 2, count)

    def received(self, target: Target, count: int) -> bool:
        """Count bytes that are about to come in; False when they must not."""
        return self._take(target, 3, count)

    @property
    def exhausted(self) -> bool:
        """Whether nothing may go through any more."""
        with self._lock:
            return self._capped

    def _take(self, target: Target, place: int, count: int) -> bool:
        with self._lock:
            if count > self._left:
                self._capped = True
            if self._capped:
                return False
            self._left -= count
            self._counts[str(target)][place] += count
            return True

    def use(self) -> NetworkUse:
        """What was counted so far."""
        with self._lock:
            hosts = {
                name: HostUse(connections=made, failed=failed, bytes_sent=out, bytes_received=back)
                for name, (made, failed, out, back) in self._counts.items()
            }
            return NetworkUse(
                hosts=hosts,
                refused=dict(self._refused),
                refused_total=self._refused_total,
                capped=self._capped,
            )
