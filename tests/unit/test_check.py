"""`sealbench check` and `plan` without an engine: findings, figures, text for people, speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.check import CheckReport, check_manifest, load_plan
from runner.errors import ManifestError, ProtocolError
from runner.imagelock import Locks
from runner.plan import Overrides, plan_document
from runner.plan_text import printable, render_check, render_plan
from tests.unit.manifest_samples import (
    AMD64,
    FREEZE,
    LOCK,
    RUN,
    digest,
    edited,
    locks,
    write_run,
)
from tests.unit.protocol_samples import frozen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a manifest's surroundings: protocol and lock."""
    protocol = frozen(tmp_path / "data")
    (tmp_path / "toy-v1.protocol.json").write_bytes(protocol.raw)
    (tmp_path / "lock.json").write_text(json.dumps(LOCK))
    return tmp_path


def check(folder: Path, text: str = RUN, overrides: Overrides | None = None) -> CheckReport:
    files = (folder / "lock.json", folder / "local.json")
    path = write_run(folder, text)
    return check_manifest(path, lock_files=files, platform=AMD64, overrides=overrides)


def found(report: CheckReport) -> list[tuple[str, str, int | None]]:
    return [(f.level, f.code, f.where.line if f.where else None) for f in report.findings]


def test_a_sound_manifest_has_no_finding_and_a_plan(folder: Path) -> None:
    report = check(folder)
    assert (report.findings, report.exit_code, report.kind) == ((), 0, "run")
    assert report.plan is not None
    assert report.plan == load_plan(folder / "run.yaml", locks=locks(), platform=AMD64)
    assert report.as_dict() == {
        "manifest": str(folder / "run.yaml"),
        "kind": "run",
        "ok": True,
        "run_id": report.plan.run_id,
        "units": 4,
        "findings": [],
    }
    assert render_check(report) == (
        f"{folder}/run.yaml: ok: 4 units, run id {report.plan.run_id}\n"
    )


def test_findings_of_manifest_protocol_images_and_budget_come_together(folder: Path) -> None:
    text = edited(RUN, ("lexical\n    config: {k1: 1.2}", "lexcal"), ("pids: 64", "pids: 200"))
    report = check(folder, text)
    assert found(report) == [
        ("error", "image.unknown", 10),
        ("error", "protocol.over-budget", 15),
    ]
    assert report.exit_code == 6
    assert report.plan is None
    rendered = render_check(report)
    assert f"error: {folder}/run.yaml:10:12 at $.methods[0].image: no image 'lexcal'" in rendered
    assert "  fix: use one of: base, lexical" in rendered
    assert rendered.endswith("run.yaml: 2 errors\n")
    first = report.as_dict()["findings"][0]
    assert first["where"] == {
        "file": str(folder / "run.yaml"),
        "line": 10,
        "column": 12,
        "json_path": "$.methods[0].image",
    }
    assert json.loads(json.dumps(report.as_dict()))["ok"] is False


def test_a_missing_protocol_and_a_broken_lock_are_findings_too(folder: Path) -> None:
    (folder / "lock.json").write_text("{")
    (folder / "toy-v1.protocol.json").unlink()
    report = check(folder)
    assert [code for _, code, _ in found(report)] == ["protocol.missing", "image.bad-lock"]
    assert report.exit_code == 5


def test_a_manifest_that_cannot_be_read_is_a_finding(folder: Path) -> None:
    report = check_manifest(folder / "absent.yaml")
    assert [finding.code for finding in report.findings] == ["manifest.unreadable"]
    assert report.exit_code == 3


def test_protocol_id_of_the_manifest_must_be_the_files(folder: Path) -> None:
    report = check(folder, edited(RUN, ("seed: 7", f"protocol_id: {digest('9')}")))
    assert found(report) == [("error", "protocol.wrong-id", 5)]
    right = load_plan(write_run(folder), locks=locks(), platform=AMD64).protocol_id
    assert check(folder, edited(RUN, ("seed: 7", f"protocol_id: {right}"))).findings == ()


@pytest.mark.parametrize(
    ("edits", "code", "line"),
    [
        ((("{k1: 1.2}", "{k1: 1.2}\n    limits: {memory: 1GiB}"),), "manifest.unused-limit", 7),
        ((("seed: 7", "data_root: nowhere"),), "manifest.no-data-root", 5),
        ((("{depth: 3}", "{api_key: abc}"),), "manifest.secret", 15),
        ((("{depth: 3}", "{openai-api-key: abc}"),), "manifest.secret", 15),
        ((("-m, ranker", "--password=x"),), "manifest.secret", 14),
        ((("512MiB", "300MiB"),), "manifest.tmp-fills-memory", 12),
    ],
)
def test_warnings_do_not_fail(
    folder: Path, edits: tuple[tuple[str, str], ...], code: str, line: int
) -> None:
    report = check(folder, edited(RUN, *edits))
    assert found(report) == [("warning", code, line)]
    assert report.exit_code == 0
    assert report.plan is not None
    assert "run.yaml: ok, 1 warning: 4 units" in render_check(report)


@pytest.mark.parametrize("key", ["tokenizer", "max_tokens", "keys", "secretary", "passage"])
def test_settings_that_are_no_secrets(folder: Path, key: str) -> None:
    assert check(folder, edited(RUN, ("depth:", f"{key}:"))).findings == ()


def test_an_image_of_this_machine_only_is_a_warning(folder: Path) -> None:
    text = edited(RUN, (f"registry.example:5000/team/ranker@{digest('e')}", digest("e")))
    assert found(check(folder, text)) == [("warning", "image.not-published", 13)]


def test_overrides_reach_the_plan(folder: Path) -> None:
    report = check(folder, RUN, Overrides(repeats=1, jobs=2))
    assert report.plan is not None
    assert (report.plan.repeats, report.plan.jobs) == (1, 2)
    assert found(check(folder, RUN, Overrides(repeats=0))) == [
        ("error", "usage.out-of-bounds", None)
    ]


def test_freeze_manifests_are_checked_as_such(folder: Path) -> None:
    report = check(folder, FREEZE)
    assert (report.kind, report.findings, report.exit_code) == ("freeze", (), 0)
    text = edited(FREEZE, ("own:1.0.0", "main"), ("recall_at_1]", "ndcg_at_99]"))
    report = check(folder, text)
    assert {finding.code for finding in report.findings} >= {"manifest.mutable-revision"}
    assert all(finding.where and finding.where.line for finding in report.findings)


def test_a_fifo_is_no_manifest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    report = check_manifest(tmp_path / "fifo")
    assert [finding.code for finding in report.findings] == ["manifest.not-a-file"]


def test_load_plan_raises_the_first_error(folder: Path) -> None:
    with pytest.raises(ManifestError):
        load_plan(write_run(folder, "a: yes"), locks=locks(), platform=AMD64)
    (folder / "toy-v1.protocol.json").write_text("{}")
    with pytest.raises(ProtocolError):
        load_plan(write_run(folder), locks=Locks(), platform=AMD64)


def test_the_plan_as_text_shows_every_id_and_default(folder: Path) -> None:
    plan = load_plan(write_run(folder), locks=locks(), platform=AMD64)
    text = render_plan(plan)
    document = json.dumps(plan_document(plan))
    for word in document.replace('"', " ").split():
        if word.startswith("sha256:"):
            assert word in text
    assert "wall 10m, grace 5s, memory 1GiB, cpus 1, pids 128, output 1GiB" in text
    assert '{"b": 0.75, "k1": 1.2, "stem": false, "tokens": "words", "top": 10}' in text
    assert "command    python3 -m methods.okapi" in text
    assert "waived     swap" in text
    assert "expected   timeout" in text
    assert "4 units, in this order" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain é", "plain é"), ("a\x1b[31m", "a\\x1b[31m"), ("a\nb", "a\\nb"), ("\u202e", "\\u202e")],
)
def test_nothing_in_a_manifest_steers_the_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown


HEAVY = ("docker", "numpy", "cryptography", "jsonschema", "rich", "psutil", "hypothesis")


def test_a_valid_manifest_is_checked_without_heavy_imports(folder: Path) -> None:
    """Import sets are what the goal of 0.2 s stands on, and unlike times they can be asserted."""
    write_run(folder)
    program = (
        "import sys; from pathlib import Path; from runner.check import check_manifest;"
        "from runner.plan_text import render_check, render_plan;"
        f"files = (Path({str(folder / 'lock.json')!r}), Path('absent'));"
        f"report = check_manifest(Path({str(folder / 'run.yaml')!r}), lock_files=files,"
        f" platform={AMD64!r});"
        "render_check(report), render_plan(report.plan);"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
