"""Every row of the precedence, and the properties that hold for any evidence at all."""

from __future__ import annotations

from dataclasses import replace
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.model import Evidence, Limits, Outcome, RowFault, RowsReport
from runner.outcome import classify, out_of_memory_seen, rows_complete

GIB = 1 << 30
LIMITS = Limits(memory_bytes=GIB, output_bytes=GIB, output_files=1000, wall_ms=60_000)
ALL = RowsReport(expected=300, valid=300, missing=0, errors=0)
SOME = RowsReport(expected=300, valid=120, missing=180, errors=0)
NAN = RowFault(line=7, code="rows.not-finite", message="score is not finite")
FAULTY = RowsReport(expected=300, valid=299, missing=1, errors=0, faults=(NAN,), fault_count=1)
EXTRA = RowsReport(expected=300, valid=300, missing=0, errors=0, faults=(NAN,), fault_count=1)
DONE = Evidence(
    started=True,
    exit_code=0,
    death_proven=True,
    oom_events=0,
    engine_oom_flag=False,
    pids_events=0,
    peak_memory_bytes=GIB // 2,
    wall_ns=12_300_000_000,
    rows=ALL,
)

TABLE = [
    ("ok", DONE, {}, "300 of 300 rows"),
    ("ok", DONE, {"rows": replace(ALL, errors=3)}, "3 with the method's own error"),
    ("ok", DONE, {"oom_events": None}, "300 of 300"),
    ("ok", DONE, {"log_truncated": True, "pids_events": 9}, "300 of 300"),
    ("ok", DONE, {"harvest_refused": ("artifacts/x: symlink",)}, "300 of 300"),
    # A kill for memory in a child, yet the whole result is there.
    ("ok", DONE, {"oom_events": 2}, "warning: the kernel killed for memory 2x at 512.0 MiB of 1.0"),
    ("ok", DONE, {"oom_events": None, "engine_oom_flag": True}, "warning: the engine reported"),
    # The flag is set, but the kernel counted nothing.
    ("ok", DONE, {"engine_oom_flag": True}, "300 of 300"),
    # Not started.
    ("not_started", Evidence(), {}, "before this unit's turn"),
    ("not_started", Evidence(), {"not_started_reason": "the budget is spent"}, "budget is spent"),
    (
        "not_started",
        Evidence(),
        {"cancelled": True, "not_started_reason": "cancelled"},
        "cancelled",
    ),
    # The engine outranks everything.
    ("engine_error", Evidence(), {"engine_failure": "create was refused"}, "create was refused"),
    ("engine_error", DONE, {"engine_failure": "lost"}, "the host failed the unit: lost"),
    ("engine_error", DONE, {"engine_failure": "lost", "deadline_exceeded": True}, "lost"),
    ("engine_error", DONE, {"engine_failure": "lost", "cancelled": True}, "lost"),
    ("engine_error", DONE, {"engine_failure": "other image", "oom_events": 4}, "other image"),
    ("engine_error", DONE, {"death_proven": False}, "no proof"),
    ("engine_error", DONE, {"death_proven": False, "cancelled": True}, "no proof"),
    ("engine_error", DONE, {"exit_code": None}, "did not say how it ended"),
    ("engine_error", DONE, {"exit_code": None, "oom_events": 1}, "did not say"),
    # What we stopped is named by why, whatever the exit code says.
    ("cancelled", DONE, {"cancelled": True, "exit_code": 143}, "cancelled after 12.3 s"),
    ("cancelled", DONE, {"cancelled": True}, "300 of 300 rows"),
    ("cancelled", DONE, {"cancelled": True, "exit_code": None, "rows": None}, "no rows"),
    ("cancelled", DONE, {"cancelled": True, "output_exceeded": "output_bytes"}, "cancelled"),
    ("timeout", DONE, {"deadline_exceeded": True, "signal_sent": "TERM"}, "stop signal"),
    (
        "timeout",
        DONE,
        {"deadline_exceeded": True, "signal_sent": "KILL", "exit_code": 137, "rows": SOME},
        "ran out after 12.3 s (whole budget 1 min 00 s); killed after its grace; 120 of 300 rows",
    ),
    ("timeout", DONE, {"deadline_exceeded": True}, "by itself, but too late"),
    ("timeout", DONE, {"deadline_exceeded": True, "oom_events": 1}, "killed for memory 1x"),
    ("timeout", DONE, {"deadline_exceeded": True, "pids_events": 5}, "processes was hit 5x"),
    ("timeout", DONE, {"deadline_exceeded": True, "output_exceeded": "output_bytes"}, "/out was"),
    ("output_limit", DONE, {"output_exceeded": "output_bytes", "exit_code": 137}, "of 1.0 GiB"),
    ("output_limit", DONE, {"output_exceeded": "output_files"}, "of 1000 entries"),
    (
        "output_limit",
        DONE,
        {"output_exceeded": "output_bytes", "warnings": ("/cache grew beyond the cap on output",)},
        "/cache grew beyond its limit of 1.0 GiB",
    ),
    ("output_limit", DONE, {"output_exceeded": "output_bytes", "exit_code": 153}, "/out grew"),
    ("output_limit", DONE, {"output_exceeded": "output_bytes", "oom_events": 1}, "/out grew"),
    # Memory by the kernel's count.
    (
        "out_of_memory",
        DONE,
        {"oom_events": 1, "exit_code": 137, "peak_memory_bytes": GIB, "rows": SOME},
        "killed by the kernel at 1.0 GiB of 1.0 GiB; exit code 137",
    ),
    ("out_of_memory", DONE, {"oom_events": 3, "exit_code": 1}, "3 kills; exit code 1"),
    ("out_of_memory", DONE, {"oom_events": 1, "rows": SOME}, "exit code 0"),
    ("out_of_memory", DONE, {"oom_events": 1, "rows": None}, "no rows"),
    (
        "out_of_memory",
        DONE,
        {"oom_events": None, "engine_oom_flag": True, "exit_code": 137},
        "by the engine's account",
    ),
    # The exit code alone proves nothing.
    ("crashed", DONE, {"exit_code": 137}, "SIGKILL, which was not sent by the run"),
    ("crashed", DONE, {"exit_code": 137, "engine_oom_flag": True}, "flag is set, but"),
    ("crashed", DONE, {"exit_code": 1, "rows": SOME}, "exit code 1 after 12.3 s; 120 of 300"),
    ("crashed", DONE, {"exit_code": 125}, "exit code 125 after"),
    ("crashed", DONE, {"exit_code": 126}, "cannot be run"),
    ("crashed", DONE, {"exit_code": 127}, "command not found"),
    ("crashed", DONE, {"exit_code": 139}, "SIGSEGV"),
    ("crashed", DONE, {"exit_code": 153}, "a file was to grow beyond the limit"),
    ("crashed", DONE, {"exit_code": 255, "rows": None}, "exit code 255 after 12.3 s; no rows"),
    ("crashed", DONE, {"exit_code": 2, "pids_events": 7}, "processes was hit 7x"),
    ("crashed", DONE, {"exit_code": -1, "wall_ns": None}, "exit code -1; 300"),
    # Exit 0 and bad rows.
    ("invalid_output", DONE, {"rows": SOME}, "120 of 300 rows"),
    ("invalid_output", DONE, {"rows": FAULTY}, "line 7: score is not finite [rows.not-finite]"),
    ("invalid_output", DONE, {"rows": EXTRA, "oom_events": 1}, "1 bad line"),
    ("invalid_output", DONE, {"rows": replace(EXTRA, fault_count=12_345)}, " 12,345 bad lines"),
    (
        "invalid_output",
        DONE,
        {"rows": replace(EXTRA, fault_count=20_001, whole=False)},
        "300 of 300 rows, more than 20,000 bad lines",
    ),
    (
        "invalid_output",
        DONE,
        {"rows": replace(EXTRA, fault_count=7, whole=False)},
        "at least 7 bad lines",
    ),
    ("invalid_output", DONE, {"rows": None}, "no readable rows: no rows.jsonl"),
    (
        "invalid_output",
        DONE,
        {"rows": None, "harvest_refused": ("rows.jsonl: symlink", "x: fifo")},
        "no readable rows: rows.jsonl: symlink",
    ),
    ("invalid_output", DONE, {"rows": replace(ALL, valid=0)}, "0 of 300 rows"),
]


@pytest.mark.parametrize(("outcome", "base", "changes", "says"), TABLE)
def test_table(outcome: str, base: Evidence, changes: dict[str, object], says: str) -> None:
    evidence = replace(base, **changes)  # type: ignore[arg-type]  # field names vary by row
    word, reason = classify(evidence, LIMITS)
    assert word == outcome, reason
    assert says in reason
    assert classify(evidence)[0] is word, "limits lend figures, they decide nothing"


def harmless(text: str) -> bool:
    return not any(category(letter)[0] == "C" or letter in "\u2028\u2029" for letter in text)


def test_every_word_is_reached() -> None:
    assert {row[0] for row in TABLE} == {str(word) for word in Outcome}


def test_the_methods_own_words_cannot_paint_a_terminal() -> None:
    fault = RowFault(line=1, code="rows.json", message="\x1b[2J\nok \ud800" + "x" * 2000)
    rows = replace(ALL, faults=(fault,), fault_count=1)
    _, reason = classify(replace(DONE, rows=rows))
    assert harmless(reason)
    assert len(reason) < 600


maybe_int = st.none() | st.integers()
texts = st.none() | st.text(max_size=20)
rows_reports = st.builds(
    RowsReport,
    expected=st.integers(0, 5),
    valid=st.integers(0, 5),
    missing=st.integers(0, 5),
    errors=st.integers(0, 5),
    faults=st.just(()) | st.just((NAN,)),
    fault_count=st.integers(0, 5),
)
evidences = st.builds(
    Evidence,
    started=st.booleans(),
    not_started_reason=texts,
    exit_code=st.none() | st.just(0) | st.integers(),
    signal_sent=st.sampled_from([None, "TERM", "KILL"]),
    deadline_exceeded=st.booleans(),
    cancelled=st.booleans(),
    output_exceeded=st.sampled_from([None, "output_bytes", "output_files", "else"]),
    engine_failure=texts,
    oom_events=maybe_int,
    engine_oom_flag=st.none() | st.booleans(),
    pids_events=maybe_int,
    peak_memory_bytes=maybe_int,
    wall_ns=maybe_int,
    death_proven=st.booleans(),
    harvest_refused=st.lists(st.text(max_size=20), max_size=2).map(tuple),
    rows=st.none() | rows_reports,
)


@given(evidence=evidences, limits=st.none() | st.just(LIMITS))
def test_total(evidence: Evidence, limits: Limits | None) -> None:
    word, reason = classify(evidence, limits)
    assert isinstance(word, Outcome)
    assert harmless(reason)
    assert (word, reason) == classify(evidence, limits)


@given(evidence=evidences)
def test_ok_means_everything_held(evidence: Evidence) -> None:
    held = (
        evidence.started
        and evidence.engine_failure is None
        and evidence.death_proven
        and not evidence.cancelled
        and not evidence.deadline_exceeded
        and evidence.output_exceeded is None
        and evidence.exit_code == 0
        and rows_complete(evidence.rows)
    )
    word, reason = classify(evidence)
    assert (word is Outcome.OK) == held
    if held and out_of_memory_seen(evidence):
        assert "warning" in reason


@given(evidence=evidences)
def test_no_failure_of_ours_is_held_against_a_method(evidence: Evidence) -> None:
    if evidence.engine_failure is not None or (evidence.started and not evidence.death_proven):
        assert classify(evidence)[0] is Outcome.ENGINE_ERROR
    if classify(evidence)[0] is Outcome.OUT_OF_MEMORY:
        assert out_of_memory_seen(evidence), "never from an exit code"
