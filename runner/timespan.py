"""When a run began and ended, so that no clock that was set in between makes its times contradict.

Stamps come from the host's clock, durations from a monotonic one. A clock that is set back during a
run would end it before its last unit, or too early for all that ran: the run then ends as late as
its durations demand. Set forward, it only makes the run look longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from runner.bundle.documents import parse_utc
from runner.clock import utc_text
from runner.model import UnitOutcome


def run_span(
    began: str, process: tuple[str, int], now: str, outcomes: Iterable[UnitOutcome]
) -> tuple[str, str]:
    """Return (started, finished) of a run, RFC 3339 UTC.

    ``began`` is when its journal was begun, maybe by an earlier process; ``process`` when this one
    began, by its clock, and the nanoseconds since. Raises ``ValueError`` for what is no such time.
    """
    first, (since, elapsed_ns) = _time(began), process
    ends = [first, _time(now), _time(since) + _span(elapsed_ns)]
    starts = [first]
    for record in outcomes:
        if record.started is not None:
            start = _time(record.started)
            starts.append(start)
            ends.append(start + _span(record.evidence.wall_ns or 0))
    return utc_text(min(starts)), utc_text(max(ends))


def _span(nanoseconds: int) -> timedelta:
    """Whole milliseconds, as stamps have, never less than what passed."""
    return timedelta(milliseconds=-(-nanoseconds // 1_000_000))


def _time(text: str) -> datetime:
    found = parse_utc(text)
    if found is None:
        raise ValueError(f"{text!r} is no time in UTC")
    return found
