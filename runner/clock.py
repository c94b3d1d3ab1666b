"""The two clocks of a run: monotonic for durations, UTC for stamps."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What a run may ask about time."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since some fixed moment; never steps back."""
        ...

    def utc_stamp(self) -> str:
        """Now as RFC 3339 UTC with milliseconds, for records only."""
        ...

    def epoch(self) -> float:
        """Now as UTC seconds since 1970, for leases only."""
        ...


def utc_text(moment: datetime) -> str:
    """Return a moment in UTC as records have it: RFC 3339 with milliseconds."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class SystemClock:
    """The clocks of this host."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def utc_stamp(self) -> str:
        return utc_text(datetime.now(UTC))

    def epoch(self) -> float:
        return time.time()
