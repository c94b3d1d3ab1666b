"""Can the times of a bundle be true together: receipt, units, processor time and limits?

Times are the signer's word, and whoever rewrites all of them within these bounds is not found out.
What is refused is what no run can have measured: a unit outside the run, more work than fits into
it, a unit that was ok beyond its budget, processor time that nobody was granted, or none at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from runner.bundle.admission import Fault
from runner.bundle.documents import parse_utc
from runner.bundle.statement import RunClaims
from runner.latency import admitted, excess
from runner.model import MethodPlan, Plan, UnitOutcome

#: Between two readings of one clock, and between the two clocks of a host.
CLOCKS = timedelta(seconds=1)
#: A container's own setting up counts as its processor time before its wall time begins, and the
#: kernel grants CPUs by periods of 100 ms: so much, and a share of the wall time.
CPU_NS, CPU_SHARE = 1_000_000_000, 0.05
MERGED = "merged from "


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What times are held against. ``cores`` (logical) of the host, None where nobody knows."""

    plan: Plan
    claims: RunClaims | None
    cores: int | None
    merged: bool  # of runs that may have been on several hosts, side by side


def is_merged(results: Mapping[str, Any] | None) -> bool:
    """Does results.json say that it was merged?"""
    return results is not None and any(note.startswith(MERGED) for note in results["notes"])


def time_faults(outcomes: Sequence[UnitOutcome], timed: Timed) -> Iterator[Fault]:
    """Yield a fault for every time that cannot be true beside the others."""
    methods = {method.name: method for method in timed.plan.methods}
    for number, record in enumerate(outcomes, start=1):
        problems = (
            *_own(record),
            *_within_run(record, timed.claims),
            *_processor(record, methods[record.unit.method], timed),
        )
        for problem in problems:
            yield _fault(problem, number)
    yield from _whole(outcomes, timed)


def latency_faults(record: UnitOutcome, total_ms: float) -> Iterator[Fault]:
    """Yield a fault where the latencies of a unit's rows exceed its wall time, unsaid."""
    problem = excess(total_ms, record.evidence, record.limits)
    if problem is not None and not admitted(record.evidence):
        unit = record.unit
        yield _fault(f"{unit.method} on {unit.dataset}: {problem}")


def _own(record: UnitOutcome) -> Iterator[str]:
    """What a record says of its own times."""
    seen = record.evidence
    if (record.started is None) == seen.started:
        yield "it has a start and did not start, or the other way round"
    if record.started is not None and parse_utc(record.started) is None:
        yield f"it started on {record.started}, which is no time in UTC"
    if seen.wall_ns is None:
        if seen.started and seen.exit_code is not None:
            yield "it ended, and nothing says how long it ran"
        return
    stopped = seen.deadline_exceeded or seen.cancelled or seen.output_exceeded is not None
    if not stopped and seen.wall_ns > record.limits.wall_ms * 1_000_000:
        yield "it ran for longer than its budget, and says of no deadline that it was passed"


def _within_run(record: UnitOutcome, claims: RunClaims | None) -> Iterator[str]:
    """Did it run between the start and the end that the receipt binds?"""
    start = None if record.started is None else parse_utc(record.started)
    if claims is None or start is None:
        return
    first, last = parse_utc(claims.started), parse_utc(claims.finished)
    if first is not None and start < first - CLOCKS:
        yield f"it started on {record.started}, before the run did ({claims.started})"
    end = start + timedelta(microseconds=(record.evidence.wall_ns or 0) // 1000)
    if last is not None and end > last + CLOCKS:
        yield f"by its start and wall time it ended after the run did ({claims.finished})"


def _processor(record: UnitOutcome, method: MethodPlan, timed: Timed) -> Iterator[str]:
    """Is its processor time possible on the CPUs that it was granted?"""
    seen = record.evidence
    if seen.cpu_ns is None:
        return
    if seen.cpu_ns == 0 and seen.rows is not None and seen.rows.valid > 0:
        yield "it has rows, and used no processor time for them"
    cpus = record.limits.cpus_milli / 1000
    if "cpus" in method.waive:  # which the host may not have enforced
        if timed.cores is None or timed.merged:
            return
        cpus = max(cpus, timed.cores)
    if seen.wall_ns is None:
        return
    if seen.cpu_ns > seen.wall_ns * cpus * (1 + CPU_SHARE) + CPU_NS:
        yield f"it used more processor time than {cpus:g} CPUs have in its wall time"


def _whole(outcomes: Sequence[UnitOutcome], timed: Timed) -> Iterator[Fault]:
    """Do all wall times fit between start and end? Merged runs may have been side by side."""
    claims = timed.claims
    if claims is None or timed.merged:
        return
    first, last = parse_utc(claims.started), parse_utc(claims.finished)
    if first is None or last is None:
        return
    total = timedelta(microseconds=sum((r.evidence.wall_ns or 0) for r in outcomes) // 1000)
    jobs = timed.plan.jobs
    if total > (last - first + CLOCKS) * jobs:
        side = "" if jobs == 1 else f", {jobs} units side by side"
        yield _fault(
            f"its units ran for {total.total_seconds():.1f} s in all, and the run took "
            f"{(last - first).total_seconds():.1f} s{side}"
        )


def _fault(message: str, line: int | None = None) -> Fault:
    return Fault(file="outcomes.jsonl", code="bundle.impossible-time", message=message, line=line)
