"""A run is cut short by a cancellation alone; what a used-up budget leaves undone is an outcome."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from runner.commands.running import finish
from runner.commands.verifying import report_text
from runner.engine.fake import NEVER, Script
from runner.errors import EXIT_CANCELLED, EXIT_OK, EXIT_UNEXPECTED_OUTCOMES
from runner.expectation import BUDGET_SPENT, CANCELLED_BEFORE, as_expected, cut_short
from runner.model import Evidence, Limits, Outcome, Unit, UnitOutcome
from runner.progress import make_reporter
from runner.signals import CancelToken
from tests.sealed import DATA_ROOT, KEY, ROOT, Sandbox, sandbox

TWO_DATASETS = ROOT / "manifests" / "benchmarks" / "homework-v1.protocol.json"


def record(outcome: Outcome, reason: str | None = None) -> UnitOutcome:
    return UnitOutcome(
        unit=Unit(
            unit_id="sha256:" + "0" * 64,
            method="m",
            method_id="sha256:" + "1" * 64,
            dataset="d",
            repeat=0,
            seed=0,
        ),
        outcome=outcome,
        reason="",
        evidence=Evidence(not_started_reason=reason),
        started=None,
        image=None,
        limits=Limits(),
    )


@pytest.mark.parametrize(
    ("outcome", "reason", "cut"),
    [
        (Outcome.CANCELLED, None, True),
        (Outcome.NOT_STARTED, None, True),
        (Outcome.NOT_STARTED, f"{CANCELLED_BEFORE}this unit's turn", True),
        (Outcome.NOT_STARTED, BUDGET_SPENT, False),
        (Outcome.NOT_STARTED, "model files are not on this host: x", False),
        (Outcome.NOT_STARTED, "secret KEY is withheld", False),
        (Outcome.TIMEOUT, None, False),
        (Outcome.ENGINE_ERROR, None, False),
        (Outcome.OK, None, False),
    ],
)
def test_only_a_cancellation_cuts_short(outcome: Outcome, reason: str | None, cut: bool) -> None:
    assert cut_short(record(outcome, reason)) is cut


@pytest.mark.parametrize(
    ("outcome", "reason", "expected", "holds"),
    [
        (Outcome.OK, None, Outcome.OK, True),
        (Outcome.TIMEOUT, None, Outcome.TIMEOUT, True),
        (Outcome.TIMEOUT, None, Outcome.OK, False),
        (Outcome.NOT_STARTED, BUDGET_SPENT, Outcome.TIMEOUT, True),
        (Outcome.NOT_STARTED, BUDGET_SPENT, Outcome.OK, False),
        (Outcome.NOT_STARTED, BUDGET_SPENT, Outcome.CRASHED, False),
        (Outcome.NOT_STARTED, f"{CANCELLED_BEFORE}this unit's turn", Outcome.TIMEOUT, False),
    ],
)
def test_who_expects_a_timeout_expects_what_follows_from_it(
    outcome: Outcome, reason: str | None, expected: Outcome, holds: bool
) -> None:
    assert as_expected(record(outcome, reason), expected) is holds


def late_on_two_datasets(folder: Path, more: str = "") -> Sandbox:
    box = sandbox(folder, "late", scripts={"late": Script(exit_after_s=NEVER, ignores_term=True)})
    box.use_protocol(json.loads(TWO_DATASETS.read_bytes()))
    text = box.manifest.read_text().replace("splits: [all]", "splits: [test]")
    box.manifest.write_text(text + more)
    return box


@pytest.mark.parametrize(
    ("more", "code", "verdict"),
    [
        ("", EXIT_UNEXPECTED_OUTCOMES, "not_started - "),
        ("    expect: timeout\n", EXIT_OK, "not_started (as expected) - "),
    ],
)
def test_a_used_up_budget_is_no_cancellation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, code: int, verdict: str
) -> None:
    box, told = late_on_two_datasets(tmp_path, more), io.StringIO()
    result = box.run(reporter=make_reporter("plain", told))
    assert [one.outcome for one in result.outcomes] == [Outcome.TIMEOUT, Outcome.NOT_STARTED]
    assert result.outcomes[1].reason == BUDGET_SPENT
    assert result.summary.complete is True
    assert result.summary.unexpected == (2 if code else 0)
    lines = [line for line in told.getvalue().splitlines() if "homework-retrieval" in line]
    assert len(lines) == 1  # it is never said to have started
    assert f"late on homework-retrieval: {verdict}{BUDGET_SPENT}" in lines[0]
    assert "run finished in" in told.getvalue()
    assert not any("incomplete" in str(note) for note in result.results["notes"])  # type: ignore[attr-defined]  # JSON
    assert finish(result, KEY, as_json=True) == code
    report = box.verify(labels=False)
    assert (report.faults, report.complete, report.as_dict()["complete"]) == ((), True, True)
    assert "INCOMPLETE" not in report_text(report)
    capsys.readouterr()


def test_a_cancelled_run_still_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    box, told = sandbox(tmp_path, "overlap", "backwards"), io.StringIO()
    cancel = CancelToken()
    cancel.cancel()
    result = box.run(cancel=cancel, reporter=make_reporter("plain", told), data_root=DATA_ROOT)
    assert result.summary.complete is False
    assert "started" not in told.getvalue().replace("not_started", "")
    assert finish(result, KEY, as_json=True) == EXIT_CANCELLED
    report = box.verify()
    assert (report.faults, report.intact.holds) == ((), True)
    assert report.as_dict()["complete"] is False
    (line,) = [one for one in report_text(report).splitlines() if one.startswith("INCOMPLETE")]
    assert "the run was cancelled: 2 of 2 planned units did not come to their end" in line
    (box.out / "bundle" / "plan.json").write_bytes(b"{}")
    assert box.verify().as_dict()["complete"] is None
    capsys.readouterr()
