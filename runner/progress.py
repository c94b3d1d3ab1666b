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
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Literal, Protocol, TextIO

from runner.model import Outcome, Plan, Unit, UnitOutcome
from runner.progress_text import (
    RunSummary,
    UnitTick,
    duration_text,
    expectations,
    finished_text,
    printable,
    rows_text,
    size_text,
    summary_text,
    unit_label,
)

Mode = Literal["auto", "plain", "json", "quiet"]
HEARTBEAT_S = 30.0


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
