"""What a run tells while it goes: plain lines, JSON events, nothing, or a live table (next door).

A reporter only tells: it never raises, decides nothing, and a reader that goes away (a closed
pager) silences it without touching the run. Text that came from a method or a manifest is
neutralised first, for it could otherwise steer the reader's terminal. Safe to call from the
threads of parallel units.
"""

from __future__ import annotations

import json
import os
import threading
import time
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol, TextIO

from runner.model import Outcome, Plan, Unit, UnitOutcome

Mode = Literal["auto", "plain", "json", "quiet"]
HEARTBEAT_S = 30.0
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


class Reporter(Protocol):
    """Everything a run tells. ``close`` may be called at any time and more than once."""

    def run_started(self, plan: Plan) -> None: ...

    def unit_started(self, unit: Unit) -> None: ...

    def unit_tick(self, unit: Unit, tick: UnitTick) -> None: ...

    def unit_finished(self, outcome: UnitOutcome) -> None: ...

    def run_finished(self, summary: RunSummary) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


def make_reporter(mode: Mode, stream: TextIO) -> Reporter:
    """Return the reporter of a mode; ``auto`` is the live table on a terminal, else plain lines."""
    if mode == "quiet":
        return QuietReporter()
    if mode == "json":
        return JsonReporter(stream)
    if mode == "auto" and is_terminal(stream):
        from runner.progress_live import LiveReporter

        return LiveReporter(stream)
    return PlainReporter(stream)


def is_terminal(stream: TextIO) -> bool:
    """Whether a live table can be drawn there: a terminal that moves its cursor and takes UTF-8."""
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    try:
        able = stream.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}
        return able and encoding == "utf8"
    except ValueError:  # closed
        return False


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


def expectations(plan: Plan) -> dict[str, Outcome]:
    """Return method name -> the outcome that its author expects."""
    return {method.name: method.expect for method in plan.methods}


def verdict_text(outcome: Outcome, expected: Outcome) -> str:
    """The outcome, and whether it was the expected one where that is worth saying."""
    if outcome is expected:
        return str(outcome) if expected is Outcome.OK else f"{outcome} (as expected)"
    return str(outcome) if expected is Outcome.OK else f"{outcome} (expected {expected})"


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


class QuietReporter:
    """Says nothing."""

    def run_started(self, plan: Plan) -> None:
        pass

    def unit_started(self, unit: Unit) -> None:
        pass

    def unit_tick(self, unit: Unit, tick: UnitTick) -> None:
        pass

    def unit_finished(self, outcome: UnitOutcome) -> None:
        pass

    def run_finished(self, summary: RunSummary) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class LineWriter:
    """Whole lines to a stream that may go away; any encoding."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._gone = False
        self._encoding = getattr(stream, "encoding", None) or "utf-8"

    def line(self, text: str) -> None:
        """Write one line at once; a stream that fails is not tried again."""
        if self._gone:
            return
        try:
            # A C locale cannot write every name: escape what it lacks instead of failing the run.
            safe = text.encode(self._encoding, "backslashreplace").decode(self._encoding)
            self._stream.write(safe + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._gone = True


class PlainReporter:
    """One line for every change of state, and one every 30 s for what still runs."""

    def __init__(
        self,
        stream: TextIO,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = LineWriter(stream)
        self._heartbeat_s = heartbeat_s
        self._clock = clock
        self._lock = threading.Lock()
        self._expected: dict[str, Outcome] = {}
        self._total = 0
        self._done = 0
        self._last: dict[str, float] = {}

    def run_started(self, plan: Plan) -> None:
        with self._lock:
            self._expected, self._total = expectations(plan), len(plan.units)
            self._out.line(
                f"run {printable(plan.name)} ({plan.run_id[7:19]}): "
                f"{len(plan.methods)} methods, {self._total} units, "
                f"benchmark {printable(plan.benchmark_id)}"
            )

    def unit_started(self, unit: Unit) -> None:
        with self._lock:
            self._last[unit.unit_id] = self._clock()
            self._out.line(f"{self._count()} {unit_label(unit)}: started")

    def unit_tick(self, unit: Unit, tick: UnitTick) -> None:
        with self._lock:
            now = self._clock()
            if now - self._last.setdefault(unit.unit_id, now) < self._heartbeat_s:
                return
            self._last[unit.unit_id] = now
            self._out.line(
                f"{self._count()} {unit_label(unit)}: running, "
                f"rows {rows_text(tick.rows_done, tick.rows_planned)}, "
                f"{duration_text(tick.elapsed_ms)} of {duration_text(tick.budget_ms)}, "
                f"memory {size_text(tick.memory_bytes)} of {size_text(tick.memory_limit_bytes)}"
            )

    def unit_finished(self, outcome: UnitOutcome) -> None:
        with self._lock:
            self._done += 1
            self._last.pop(outcome.unit.unit_id, None)
            self._out.line(f"{self._count()} {finished_text(outcome, self._expected)}")

    def run_finished(self, summary: RunSummary) -> None:
        with self._lock:
            self._out.line(summary_text(summary))

    def note(self, text: str) -> None:
        with self._lock:
            self._out.line(printable(text, 4096))

    def close(self) -> None:
        pass

    def _count(self) -> str:
        width = len(str(self._total))
        return f"[{self._done:>{width}}/{self._total}]"


def finished_text(outcome: UnitOutcome, expected: Mapping[str, Outcome]) -> str:
    """One line on a unit's end: verdict, rows, time, memory, and the reason unless it is ok."""
    evidence, unit = outcome.evidence, outcome.unit
    verdict = verdict_text(outcome.outcome, expected.get(unit.method, Outcome.OK))
    parts = [f"{unit_label(unit)}: {verdict}"]
    if evidence.rows is not None:
        parts.append(f"rows {rows_text(evidence.rows.valid, evidence.rows.expected)}")
    if evidence.wall_ns is not None:
        parts.append(duration_text(evidence.wall_ns / 1e6))
    if evidence.peak_memory_bytes is not None:
        parts.append(f"peak memory {size_text(evidence.peak_memory_bytes)}")
    line = ", ".join(parts)
    if outcome.outcome is not Outcome.OK and outcome.reason:
        line = f"{line} - {printable(outcome.reason)}"
    return line


class JsonReporter:
    """One JSON object a line, ASCII only, each with ``event`` and ``time``."""

    def __init__(self, stream: TextIO) -> None:
        self._out = LineWriter(stream)
        self._lock = threading.Lock()

    def run_started(self, plan: Plan) -> None:
        self._emit(
            "run_started",
            run_id=plan.run_id,
            name=plan.name,
            benchmark=plan.benchmark_id,
            protocol_id=plan.protocol_id,
            methods=[method.name for method in plan.methods],
            units=len(plan.units),
        )

    def unit_started(self, unit: Unit) -> None:
        self._emit("unit_started", **_unit_fields(unit))

    def unit_tick(self, unit: Unit, tick: UnitTick) -> None:
        self._emit("unit_tick", **_unit_fields(unit), **asdict(tick))

    def unit_finished(self, outcome: UnitOutcome) -> None:
        evidence = outcome.evidence
        self._emit(
            "unit_finished",
            **_unit_fields(outcome.unit),
            outcome=str(outcome.outcome),
            reason=outcome.reason,
            wall_ms=None if evidence.wall_ns is None else evidence.wall_ns // 1_000_000,
            cpu_ms=None if evidence.cpu_ns is None else evidence.cpu_ns // 1_000_000,
            peak_memory_bytes=evidence.peak_memory_bytes,
            rows_expected=None if evidence.rows is None else evidence.rows.expected,
            rows_valid=None if evidence.rows is None else evidence.rows.valid,
        )

    def run_finished(self, summary: RunSummary) -> None:
        self._emit("run_finished", **asdict(summary))

    def note(self, text: str) -> None:
        self._emit("note", text=text)

    def close(self) -> None:
        pass

    def _emit(self, event: str, **fields: object) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"event": event, "time": now, **fields}, allow_nan=False)
        with self._lock:
            self._out.line(line)


def _unit_fields(unit: Unit) -> dict[str, object]:
    return {
        "unit_id": unit.unit_id,
        "method": unit.method,
        "dataset": unit.dataset,
        "repeat": unit.repeat,
    }
