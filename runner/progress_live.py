"""The live table of a run on a terminal: method, dataset, state, rows, time and memory.

Drawn at most once a second and only when something was told: a run's own measurements should not
pay for their display. Units beyond the terminal's height are counted instead of shown.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.table import Table
from rich.text import Text

from runner.expectation import as_expected
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
)

REDRAW_S = 1.0
MIN_SHOWN = 4
FRAME_LINES = 6  # head, rules and the line of counts
MIN_NAME = 8
FIGURES_WIDTH = 62  # of the four columns that are no names, with their gaps
_RUNNING = "running"
_WAITING = "waiting"


@dataclass(slots=True)
class _Line:
    """What the table shows of one unit."""

    unit: Unit
    state: str = _WAITING
    style: str = "dim"
    rows: str = "-"
    clock: str = "-"
    memory: str = "-"


class LiveReporter:
    """A table that is redrawn in place; the final table stays on the screen."""

    def __init__(
        self,
        stream: TextIO,
        *,
        redraw_s: float = REDRAW_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._console = Console(file=stream, highlight=False, emoji=False, markup=False)
        self._live: Live | None = None
        self._redraw_s = redraw_s
        self._clock = clock
        self._drawn = float("-inf")
        self._lock = threading.RLock()
        self._expected: dict[str, Outcome] = {}
        self._lines: dict[str, _Line] = {}
        self._gone = False

    def run_started(self, plan: Plan) -> None:
        with self._lock:
            self._expected = expectations(plan)
            self._lines = {unit.unit_id: _Line(unit) for unit in plan.units}
            self._print(
                f"run {printable(plan.name)} ({plan.run_id[7:19]}), "
                f"benchmark {printable(plan.benchmark_id)}"
            )
            # No refresh thread: it would redraw four times a second for nothing.
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._guard(self._live.start)
            self._draw(now=True)

    def unit_started(self, unit: Unit) -> None:
        with self._lock:
            line = self._line(unit)
            line.state, line.style = _RUNNING, "cyan"
            self._draw(now=True)

    def unit_tick(self, unit: Unit, tick: UnitTick) -> None:
        with self._lock:
            line = self._line(unit)
            line.rows = rows_text(tick.rows_done, tick.rows_planned)
            line.clock = f"{_clock_text(tick.elapsed_ms)}/{_clock_text(tick.budget_ms)}"
            line.memory = f"{size_text(tick.memory_bytes)}/{size_text(tick.memory_limit_bytes)}"
            self._draw(now=False)

    def unit_finished(self, outcome: UnitOutcome) -> None:
        with self._lock:
            line, evidence = self._line(outcome.unit), outcome.evidence
            expected = self._expected.get(outcome.unit.method, Outcome.OK)
            line.state = str(outcome.outcome)
            line.style = "green" if as_expected(outcome, expected) else "bold red"
            if evidence.rows is not None:
                line.rows = rows_text(evidence.rows.valid, evidence.rows.expected)
            if evidence.wall_ns is not None:
                line.clock = duration_text(evidence.wall_ns / 1e6)
            if evidence.peak_memory_bytes is not None:
                line.memory = f"peak {size_text(evidence.peak_memory_bytes)}"
            errors = evidence.rows is not None and evidence.rows.errors > 0
            if outcome.outcome is not Outcome.OK or expected is not Outcome.OK or errors:
                # A reason is a sentence: it stands above the table, where nothing cuts it.
                self._print(finished_text(outcome, self._expected))
            self._draw(now=True)

    def run_finished(self, summary: RunSummary) -> None:
        with self._lock:
            self._draw(now=True)
            self.close()
            self._print(summary_text(summary))

    def note(self, text: str) -> None:
        with self._lock:
            self._print(printable(text, 4096))

    def close(self) -> None:
        """Leave the table as it stands and give the terminal back (its cursor, above all)."""
        with self._lock:
            live, self._live = self._live, None
            if live is not None:
                self._guard(live.stop)

    def _line(self, unit: Unit) -> _Line:
        return self._lines.setdefault(unit.unit_id, _Line(unit))

    def _draw(self, *, now: bool) -> None:
        if self._live is None:
            return
        moment = self._clock()
        if not now and moment - self._drawn < self._redraw_s:
            return
        self._drawn = moment
        live = self._live
        self._guard(self._measure)
        self._guard(lambda: live.update(self._table(), refresh=True))

    def _measure(self) -> None:
        # rich asks the process's own stdin, stdout and stderr: not always where we draw.
        width, height = os.get_terminal_size(self._stream.fileno())
        if width and height:  # 0 x 0 is "unknown", as on a serial line
            self._console.size = ConsoleDimensions(width, height)

    def _print(self, text: str) -> None:
        self._guard(lambda: self._console.print(Text(text), soft_wrap=True))

    def _guard(self, action: Callable[[], object]) -> None:
        """Do it; a terminal that went away silences the reporter, never the run."""
        if self._gone:
            return
        try:
            action()
        except (OSError, ValueError):
            self._gone = True

    def _table(self) -> Table:
        lines = list(self._lines.values())
        room = max(MIN_SHOWN, self._console.height - FRAME_LINES)
        shown = lines if len(lines) <= room else _most_telling(lines, room)
        table = Table(
            caption=_counts(lines),
            caption_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
        )
        # Names give way on a narrow terminal; figures never do.
        name_width = max(MIN_NAME, (self._console.width - FIGURES_WIDTH) // 2)
        for heading in ("method", "dataset"):
            table.add_column(heading, overflow="ellipsis", no_wrap=True, max_width=name_width)
        table.add_column("state", no_wrap=True)
        for heading in ("rows", "time/budget", "memory/limit"):
            table.add_column(heading, justify="right", no_wrap=True)
        for line in shown:
            table.add_row(
                Text(printable(line.unit.method)),
                Text(_dataset_text(line.unit)),
                Text(line.state, style=line.style),
                Text(line.rows),
                Text(line.clock),
                Text(line.memory),
            )
        return table


def _dataset_text(unit: Unit) -> str:
    dataset = printable(unit.dataset)
    return f"{dataset} #{unit.repeat}" if unit.repeat else dataset


def _clock_text(milliseconds: int) -> str:
    """``0:05``, ``30:00``, ``2:03:00``: narrower than a duration in words."""
    minutes, seconds = divmod(max(0, milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _most_telling(lines: list[_Line], room: int) -> list[_Line]:
    """Of more units than fit: those that run, then the last that ended, then the next to come;
    in the plan's order."""
    ended = [line for line in lines if line.state not in {_RUNNING, _WAITING}]
    running = [line for line in lines if line.state == _RUNNING]
    waiting = [line for line in lines if line.state == _WAITING]
    chosen = [*running, *reversed(ended), *waiting][:room]
    kept = {line.unit.unit_id for line in chosen}
    return [line for line in lines if line.unit.unit_id in kept]


def _counts(lines: list[_Line]) -> str:
    running = sum(line.state == _RUNNING for line in lines)
    waiting = sum(line.state == _WAITING for line in lines)
    return f"{len(lines)} units: {len(lines) - running - waiting} ended, {running} running"
