from __future__ import annotations

import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fcntl import ioctl
from typing import TextIO

import pytest

from runner.model import (
    Evidence,
    ImagePin,
    Limits,
    MethodPlan,
    Outcome,
    Plan,
    RowsReport,
    Unit,
    UnitOutcome,
)
from runner.progress import JsonReporter, PlainReporter, QuietReporter, Reporter, make_reporter
from runner.progress_live import LiveReporter
from runner.progress_text import (
    RunSummary,
    UnitTick,
    duration_text,
    printable,
    rows_text,
    size_text,
)

PIN = ImagePin(name="lexical", image_id="sha256:" + "0" * 64)
HOSTILE = "boom\x1b]0;owned\x07\x1b[2J\nnext\u202eline\x9b1m"


def method(name: str, expect: Outcome = Outcome.OK) -> MethodPlan:
    return MethodPlan(
        name=name,
        method_id="sha256:" + "1" * 64,
        image=PIN,
        command=("run",),
        config={},
        limits=Limits(),
        expect=expect,
    )


def unit(name: str, repeat: int = 0, dataset: str = "tiny") -> Unit:
    return Unit(
        unit_id=f"sha256:{name}-{dataset}-{repeat}",
        method=name,
        method_id="sha256:" + "1" * 64,
        dataset=dataset,
        repeat=repeat,
        seed=0,
    )


def plan(methods: list[MethodPlan], units: list[Unit]) -> Plan:
    return Plan(
        run_id="sha256:" + "abcdef012345" + "0" * 52,
        name="demo",
        benchmark_id="tiny-v1",
        protocol_id="sha256:" + "2" * 64,
        splits=("all",),
        seed=0,
        repeats=1,
        jobs=1,
        methods=tuple(methods),
        units=tuple(units),
    )


def finished(target: Unit, outcome: Outcome = Outcome.OK, reason: str = "") -> UnitOutcome:
    return UnitOutcome(
        unit=target,
        outcome=outcome,
        reason=reason,
        evidence=Evidence(
            wall_ns=1_500_000_000,
            cpu_ns=1_000_000_000,
            peak_memory_bytes=3 << 20,
            rows=RowsReport(expected=30, valid=28, missing=2, errors=0),
        ),
        started="2026-01-01T00:00:00Z",
        image=PIN,
        limits=Limits(),
    )


def tick(rows: int | None = 7, elapsed_ms: int = 2_000) -> UnitTick:
    return UnitTick(
        rows_done=rows,
        rows_planned=30,
        elapsed_ms=elapsed_ms,
        budget_ms=60_000,
        memory_bytes=5 << 20,
        memory_limit_bytes=1 << 30,
    )


def summary(**changes: object) -> RunSummary:
    values: dict[str, object] = {
        "run_id": "sha256:" + "a" * 64,
        "bundle": "runs/demo/bundle",
        "complete": True,
        "signed": True,
        "elapsed_ms": 65_000,
        "outcomes": {"ok": 2, "timeout": 1},
        "unexpected": 0,
    }
    return RunSummary(**{**values, **changes})  # type: ignore[arg-type]  # one table of overrides


def tell_everything(reporter: Reporter, reason: str = "died") -> None:
    """A run of two methods, one of which fails as its author expects."""
    good, bad = unit("good"), unit("bad")
    reporter.run_started(plan([method("good"), method("bad", Outcome.CRASHED)], [good, bad]))
    reporter.note("images are present")
    reporter.unit_started(good)
    reporter.unit_tick(good, tick())
    reporter.unit_finished(finished(good))
    reporter.unit_started(bad)
    reporter.unit_finished(finished(bad, Outcome.CRASHED, reason))
    reporter.run_finished(summary())
    reporter.close()
    reporter.close()


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0.0 s"),
        (-5, "0.0 s"),
        (49, "0.0 s"),
        (12_345, "12.3 s"),
        (59_949, "59.9 s"),
        (59_950, "1 min 00 s"),
        (245_000, "4 min 05 s"),
        (7_380_000, "2 h 03 min"),
    ],
)
def test_duration(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 40, "3072.0 GiB"),
    ],
)
def test_size(size: int | None, text: str) -> None:
    assert size_text(size) == text


def test_rows_not_observed_are_a_dash_not_zero() -> None:
    assert rows_text(None, 30) == "-/30"
    assert rows_text(0, 30) == "0/30"
    assert rows_text(4, None) == "4"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢", "plain é 漢"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\x9b1m", "\\x9b1m"),
        ("\ud800", "\\ud800"),
        ("\u2028", "\\u2028"),
    ],
)
def test_printable_escapes_what_a_terminal_obeys(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_printable_cuts_with_a_visible_mark() -> None:
    assert printable("x" * 12, 5) == "xxxxx... (7 more characters)"


def test_plain_has_one_line_for_each_change() -> None:
    stream = io.StringIO()
    tell_everything(PlainReporter(stream))
    assert stream.getvalue().splitlines() == [
        "run demo (abcdef012345): 2 methods, 2 units, benchmark tiny-v1",
        "images are present",
        "[0/2] good on tiny: started",
        "[1/2] good on tiny: ok, rows 28/30, 1.5 s, peak memory 3.0 MiB",
        "[1/2] bad on tiny: started",
        "[2/2] bad on tiny: crashed (as expected), rows 28/30, 1.5 s, peak memory 3.0 MiB - died",
        "run finished in 1 min 05 s: 2 ok, 1 timeout; bundle (signed): runs/demo/bundle",
    ]


def test_plain_beats_every_30_seconds_for_each_unit() -> None:
    now = 0.0
    stream = io.StringIO()
    reporter = PlainReporter(stream, clock=lambda: now)
    first, second = unit("good"), unit("good", repeat=1)
    reporter.run_started(plan([method("good")], [first, second]))
    reporter.unit_started(first)
    beats = []
    for moment in (1.0, 29.9, 30.0, 31.0, 59.9, 60.1):
        now = moment
        before = len(stream.getvalue())
        reporter.unit_tick(first, tick(elapsed_ms=int(moment * 1000)))
        if len(stream.getvalue()) > before:
            beats.append(moment)
    reporter.unit_tick(second, tick())
    assert beats == [30.0, 60.1]
    assert stream.getvalue().splitlines()[-1] == (
        "[0/2] good on tiny: running, rows 7/30, 1 min 00 s of 1 min 00 s, "
        "memory 5.0 MiB of 1.0 GiB"
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"complete": False, "signed": False},
            (
                "run cut short in 1 min 05 s: 2 ok, 1 timeout; "
                "bundle (UNSIGNED, incomplete): runs/demo/bundle"
            ),
        ),
        (
            {"bundle": None, "unexpected": 1},
            "run finished in 1 min 05 s: 2 ok, 1 timeout; 1 not as expected; nothing sealed",
        ),
    ],
)
def test_summary_says_what_is_lacking(changes: dict[str, object], text: str) -> None:
    stream = io.StringIO()
    PlainReporter(stream).run_finished(summary(**changes))
    assert stream.getvalue() == text + "\n"


def test_an_unexpected_outcome_names_the_expected_one() -> None:
    stream = io.StringIO()
    reporter = PlainReporter(stream)
    reporter.run_started(plan([method("bad", Outcome.TIMEOUT)], [unit("bad")]))
    reporter.unit_finished(finished(unit("bad"), Outcome.OK))
    assert "bad on tiny: ok (expected timeout)" in stream.getvalue()


def test_json_is_one_ascii_object_a_line() -> None:
    stream = io.StringIO()
    tell_everything(JsonReporter(stream), HOSTILE)
    assert stream.getvalue().isascii()
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [event["event"] for event in events] == [
        "run_started",
        "note",
        "unit_started",
        "unit_tick",
        "unit_finished",
        "unit_started",
        "unit_finished",
        "run_finished",
    ]
    assert all(event["time"].endswith("Z") for event in events)
    assert events[3]["rows_done"] == 7
    assert events[3]["memory_limit_bytes"] == 1 << 30
    assert events[6]["reason"] == HOSTILE  # machines get the whole text
    assert events[6]["wall_ms"] == 1_500
    assert events[7]["outcomes"] == {"ok": 2, "timeout": 1}
    assert events[7]["bundle"] == "runs/demo/bundle"


def test_hostile_text_is_neutral_in_plain_lines() -> None:
    stream = io.StringIO()
    tell_everything(PlainReporter(stream), HOSTILE)
    assert "\x1b" not in stream.getvalue()
    assert "\x9b" not in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == 7


def test_quiet_says_nothing() -> None:
    stream = io.StringIO()
    reporter = make_reporter("quiet", stream)
    tell_everything(reporter)
    assert isinstance(reporter, QuietReporter)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("make", [PlainReporter, JsonReporter, LiveReporter])
def test_a_reader_that_goes_away_never_harms_the_run(make: Callable[[TextIO], Reporter]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError), os.fdopen(writing, "w", encoding="utf-8") as stream:
        tell_everything(make(stream))
        stream.write("the test's own write still fails")
        stream.flush()


def test_a_c_locale_gets_escapes_not_an_error() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    PlainReporter(stream).note("naïve")
    assert raw.getvalue() == b"na\\xefve\n"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("plain", PlainReporter), ("json", JsonReporter), ("auto", PlainReporter)],
)
def test_off_a_terminal_nothing_is_drawn(mode: str, expected: type) -> None:
    assert isinstance(make_reporter(mode, io.StringIO()), expected)  # type: ignore[arg-type]  # parametrised


@contextmanager
def terminal(rows: int, columns: int) -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """A pseudo-terminal: the stream to draw on, and what was drawn (ends the drawing)."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    seen: list[bytes] = []

    def read() -> None:
        try:
            while block := os.read(leader, 65536):
                seen.append(block)
        except OSError:  # EIO: the other side is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    stream = os.fdopen(follower, "w", encoding="utf-8")

    def drawn() -> str:
        stream.close()
        reader.join(10)
        return b"".join(seen).decode()

    try:
        yield stream, drawn
    finally:
        stream.close()
        reader.join(10)
        os.close(leader)


@pytest.fixture
def xterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def test_a_terminal_gets_a_live_table(xterm: None) -> None:
    with terminal(40, 160) as (stream, drawn):
        reporter = make_reporter("auto", stream)
        assert isinstance(reporter, LiveReporter)
        tell_everything(reporter)
        text = drawn()
    for part in ("method", "budget", "running", "28/30", "peak 3.0 MiB"):
        assert part in text
    assert "2 units: 2 ended, 0 running" in text
    assert "bad on tiny: crashed (as expected), rows 28/30, 1.5 s" in text
    assert "images are present" in text
    assert "run finished in 1 min 05 s" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back


def test_a_narrow_terminal_keeps_every_figure(xterm: None) -> None:
    long = unit("a-method-with-a-very-long-name", dataset="a-dataset-of-long-name")
    with terminal(24, 80) as (stream, drawn):
        reporter = LiveReporter(stream)
        reporter.run_started(plan([method(long.method)], [long]))
        reporter.unit_started(long)
        reporter.unit_tick(long, replace(tick(rows=1234), rows_planned=6980, budget_ms=7_380_000))
        reporter.unit_finished(finished(long, Outcome.INVALID_OUTPUT, "row 3 is not JSON"))
        reporter.close()
        text = drawn()
    last = text[text.rindex("method ") :].splitlines()
    assert max(len(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line)) for line in last) <= 80
    for part in ("invalid_output", "28/30", "1.5 s", "peak 3.0 MiB", "a-metho"):
        assert part in "\n".join(last)
    assert "row 3 is not JSON" in text


def test_hostile_text_cannot_steer_a_terminal(xterm: None) -> None:
    with terminal(40, 200) as (stream, drawn):
        reporter = make_reporter("auto", stream)
        tell_everything(reporter, HOSTILE)
        reporter.note(HOSTILE)
        text = drawn()
    assert "\x1b]0;" not in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "boom\\x1b]0;owned\\x07" in text


def test_a_dumb_terminal_gets_plain_lines(xterm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with terminal(24, 80) as (stream, drawn):
        assert isinstance(make_reporter("auto", stream), PlainReporter)
        assert drawn() == ""


def test_closing_an_interrupted_table_gives_the_cursor_back(xterm: None) -> None:
    with terminal(24, 120) as (stream, drawn):
        reporter = LiveReporter(stream)
        reporter.run_started(plan([method("good")], [unit("good")]))
        reporter.unit_started(unit("good"))
        reporter.close()
        text = drawn()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_ticks_redraw_at_most_once_a_second(xterm: None) -> None:
    now = 0.0
    with terminal(24, 120) as (stream, drawn):
        reporter = LiveReporter(stream, clock=lambda: now)
        reporter.run_started(plan([method("good")], [unit("good")]))
        reporter.unit_started(unit("good"))
        for step in range(1, 51):  # ten looks a second for five seconds
            now = step / 10
            reporter.unit_tick(unit("good"), tick(rows=1000 + step))
        reporter.close()
        text = drawn()
    frames = {number for number in range(1001, 1051) if f"{number}/30" in text}
    assert frames == {1010, 1020, 1030, 1040, 1050}
    assert "0:02/1:00" in text
    assert "5.0 MiB/1.0 GiB" in text


def test_more_units_than_lines_shows_those_that_run(xterm: None) -> None:
    units = [unit("many", dataset=f"set{index:03d}") for index in range(200)]
    with terminal(16, 120) as (stream, drawn):
        reporter = LiveReporter(stream)
        reporter.run_started(plan([method("many")], units))
        for target in units[:100]:
            reporter.unit_finished(finished(target))
        reporter.unit_started(units[150])
        reporter.close()
        text = drawn()
    last = text[text.rindex("many") - 4000 :]
    assert "set150" in last
    assert "200 units: 100 ended, 1 running" in last
    assert "set199" not in text


def test_the_live_table_needs_nothing_of_the_module_that_chooses_it() -> None:
    script = "import sys, runner.progress_live; sys.exit('runner.progress' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
