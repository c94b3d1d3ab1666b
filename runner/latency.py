"""Can the latencies of a unit's rows be true, given how long its container ran?

Latencies are a method's own words, the wall time is the runner's measurement. Queries are answered
one after another, or on as many threads as the unit has CPUs; else a method writes null. So the
latencies add up to at most the wall time of each thread. Where they do not, the runner says so in
the unit's record, and the figures stand: a method may be wrong about its speed and right about its
answers. A verifier refuses a record that does not say it, for then it was written afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from runner.model import Evidence, Limits
from runner.progress_text import duration_text

#: The engine may say late that a container has started: what it did until then is in no wall time.
TOLERANCE_MS = 250.0
PREFIX = "the latencies of its rows"
#: The one kind of rows that has latencies.
KIND = "row-retrieval"


class Latencies:
    """Adds up the latencies of parsed rows of kind ``KIND``, in milliseconds."""

    def __init__(self) -> None:
        self.total_ms = 0.0

    def add(self, rows: Sequence[Any]) -> None:
        """Take in some rows; null counts nothing."""
        self.total_ms += sum(row.latency_ms for row in rows if row.latency_ms is not None)


def excess(total_ms: float, evidence: Evidence, limits: Limits) -> str | None:
    """Return in words why latencies of ``total_ms`` in all cannot be true; None where they can."""
    if evidence.wall_ns is None:
        return None
    threads, wall_ms = max(1, ceil(limits.cpus_milli / 1000)), evidence.wall_ns / 1_000_000
    if total_ms <= wall_ms * threads + TOLERANCE_MS:
        return None
    times = "" if threads == 1 else f" on {threads} threads"
    return (
        f"{PREFIX} add up to {duration_text(total_ms)}, and it ran for {duration_text(wall_ms)}"
        f"{times}: they are not those of queries one after another"
    )


def with_excess(total_ms: float, evidence: Evidence, limits: Limits) -> Evidence:
    """Return the evidence, with a warning where the latencies cannot be true."""
    problem = excess(total_ms, evidence, limits)
    if problem is None:
        return evidence
    return replace(evidence, warnings=(*evidence.warnings, problem))


def admitted(evidence: Evidence) -> bool:
    """Does a record say itself that its latencies cannot be true?"""
    return any(warning.startswith(PREFIX) for warning in evidence.warnings)
