"""What a run tells while it goes, in words: times, sizes, rows, verdicts, and how it ended. Pure.

Text that came from a method or a manifest is neutralised, for it could otherwise steer the
reader's terminal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from runner.expectation import as_expected
from runner.model import Evidence, Outcome, Plan, Unit, UnitOutcome
from runner.rows.faults import NO_RESULT

TEXT_CAP = 300  # characters of one reason or note; the whole text is in the bundle
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTick:
    """One look at a running unit; ``None`` is "not observed"."""

    rows_done: int | None
    elapsed_ms: int
    budget_ms: int
    memory_bytes: int | None
    memory_limit_bytes: int
    rows_planned: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """How a run ended: ``complete`` is False when it was cut short and sealed as incomplete."""

    run_id: str
    bundle: str | None  # path of the sealed bundle; None when nothing was sealed
    complete: bool
    signed: bool
    elapsed_ms: int
    outcomes: Mapping[str, int]  # outcome -> number of units
    unexpected: int  # units whose outcome is not the one that the manifest expects


def printable(text: str, cap: int = TEXT_CAP) -> str:
    """Return one line of text that no terminal obeys: control, format and bidi characters shown
    as escapes, cut at ``cap`` characters with a visible mark."""
    cut = text[:cap]
    safe = "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in _UNSAFE_CATEGORIES
        else character
        for character in cut
    )
    return safe if len(text) <= cap else f"{safe}... ({len(text) - cap} more characters)"


def unit_label(unit: Unit) -> str:
    """``method on dataset``, with the repeat when it is not the first."""
    label = f"{unit.method} on {unit.dataset}"
    return printable(f"{label} (repeat {unit.repeat})" if unit.repeat else label)


def duration_text(milliseconds: float) -> str:
    """``0.4 s``, ``12.3 s``, ``4 min 05 s``, ``2 h 03 min``."""
    seconds = max(0.0, milliseconds / 1000)
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size_text(size_bytes: int | None) -> str:
    """``512 B``, ``1.5 MiB``; ``-`` for what was not observed."""
    if size_bytes is None:
        return "-"
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def rows_text(done: int | None, planned: int | None) -> str:
    """``120/300``; ``-`` for what was not observed."""
    shown = "-" if done is None else str(done)
    return shown if planned is None else f"{shown}/{planned}"


def row_errors_text(evidence: Evidence) -> str:
    """``3 with the method's own error, first: ValueError: ...``, or that an imported file left
    them out; nothing where no row has an error."""
    rows = evidence.rows
    if rows is None or not rows.errors:
        return ""
    if left_out(evidence):
        return f"{rows.errors} left out by the file"
    own = f"{rows.errors} with the method's own error"
    return own if rows.first_error is None else f"{own}, first: {printable(rows.first_error)}"


def left_out(evidence: Evidence) -> bool:
    """Whether the errors of imported rows are ours: a file that can say nothing of a query that
    found nothing leaves it out. Such a file has no errors of its own."""
    rows = evidence.rows
    return evidence.imported is not None and rows is not None and rows.first_error == NO_RESULT


def expectations(plan: Plan) -> dict[str, Outcome]:
    """Return method name -> the outcome that its author expects."""
    return {method.name: method.expect for method in plan.methods}


def verdict_text(record: UnitOutcome, expected: Outcome) -> str:
    """The outcome, and whether it was the expected one where that is worth saying."""
    outcome = str(record.outcome)
    if expected is Outcome.OK:
        return outcome
    if as_expected(record, expected):
        return f"{outcome} (as expected)"
    return f"{outcome} (expected {expected})"


def summary_text(summary: RunSummary) -> str:
    """One line on how the run ended."""
    counts = ", ".join(f"{count} {name}" for name, count in sorted(summary.outcomes.items()))
    state = "finished" if summary.complete else "cut short"
    sealed = "nothing sealed"
    if summary.bundle is not None:
        how = "signed" if summary.signed else "UNSIGNED"
        whole = how if summary.complete else f"{how}, incomplete"
        sealed = f"bundle ({whole}): {printable(summary.bundle, 4096)}"
    unexpected = f"; {summary.unexpected} not as expected" if summary.unexpected else ""
    return f"run {state} in {duration_text(summary.elapsed_ms)}: {counts}{unexpected}; {sealed}"


def finished_text(outcome: UnitOutcome, expected: Mapping[str, Outcome]) -> str:
    """One line on a unit's end: verdict, rows, time, memory, and the reason unless it is ok."""
    evidence, unit = outcome.evidence, outcome.unit
    verdict = verdict_text(outcome, expected.get(unit.method, Outcome.OK))
    parts = [f"{unit_label(unit)}: {verdict}"]
    if evidence.rows is not None:
        parts.append(f"rows {rows_text(evidence.rows.valid, evidence.rows.expected)}")
    if (errors := row_errors_text(evidence)) and outcome.outcome is Outcome.OK:
        parts.append(errors)  # the reason of any other outcome says it
    if evidence.wall_ns is not None:
        parts.append(duration_text(evidence.wall_ns / 1e6))
    if evidence.peak_memory_bytes is not None:
        parts.append(f"peak memory {size_text(evidence.peak_memory_bytes)}")
    line = ", ".join(parts)
    if outcome.outcome is not Outcome.OK and outcome.reason:
        line = f"{line} - {printable(outcome.reason)}"
    return line
