"""A watch over a baseline: verdicts, history, lock, clocks, crashes, plot."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.compare import Verdict
from runner.drift.audit import DriftRequest, Look, look
from runner.drift.history import append_history, clock_notes, read_history
from runner.drift.text import difference_text, trend_svg
from runner.engine.fake import FakeEngine, Script
from runner.engine.fake_cgroups import FakeCgroups
from runner.engine.lease import own_lease
from runner.errors import BundleError, ImageError, StorageError
from runner.exclusive import exclusive
from runner.progress import make_reporter
from runner.reproduce import ReproduceRequest
from runner.run import Host
from runner.signals import CancelToken
from tests.sealed import DATA_ROOT, KEY, ROOT, TRUST, Sandbox, does, protocol, sandbox
from tests.unit.test_reproduce import shifted


class At:
    """A clock that says what it is told to."""

    def __init__(self, stamp: str) -> None:
        self._stamp = stamp

    def utc_stamp(self) -> str:
        return self._stamp

    def monotonic_ns(self) -> int:
        return 0

    def epoch(self) -> float:
        return 0.0


def watch(
    box: Sandbox,
    *,
    scripts: Mapping[str, Script] | None = None,
    engine: FakeEngine | None = None,
    at: str = "2026-01-01T00:00:00Z",
    keep: int = 10,
    **changes: Any,
) -> Look:
    other = replace(box, scripts={**box.scripts, **(scripts or {})})
    made = engine or other.engine()
    baseline = ReproduceRequest(
        **{
            "bundle": box.out / "bundle",
            "protocol_id": protocol().protocol_id,
            "trust": TRUST,
            "data_root": DATA_ROOT,
            "key": KEY,
            **changes,
        }
    )
    return look(
        DriftRequest(baseline=baseline, state=box.folder / "watch", keep=keep),
        host=Host(
            open_engine=lambda: made, open_cgroups=lambda _info: FakeCgroups(), patience_s=0.2
        ),
        reporter=make_reporter("quiet", io.StringIO()),
        cancel=CancelToken(),
        clock=At(at),
    )


def test_looks_are_remembered_until_one_drifts(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "backwards")
    original = box.run()
    state = tmp_path / "watch"
    first = watch(box)
    second = watch(box, scripts={"overlap": does(shifted)}, at="2026-01-02T00:00:00Z")
    assert (first.verdict, second.verdict) == (Verdict.IDENTICAL, Verdict.DIFFERENT)
    records = read_history(state / "history.jsonl")
    assert [(one["sequence"], one["drift"]) for one in records] == [(1, False), (2, True)]
    assert {one["baseline"] for one in records} == {original.bundle.manifest_sha256}
    assert records[1]["bundle"] == second.reproduction.result.bundle.manifest_sha256
    assert records[0]["methods"][0]["score"] == records[0]["methods"][0]["baseline_score"]
    text = (state / "difference.txt").read_text()
    assert "what differs:" in text
    assert "row " in text
    assert (state / "runs" / "000002" / "difference.txt").read_text() == text
    assert "drift" in (state / "trend.svg").read_text()
    assert sorted(path.name for path in (state / "runs").iterdir()) == ["000001", "000002"]
    assert not (box.out / "bundle.sigs" / "reviews").exists()


def test_only_the_newest_bundles_are_kept_and_the_history_is_whole(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    for day in range(1, 4):
        watch(box, at=f"2026-01-0{day}T00:00:00Z", keep=2)
    state = tmp_path / "watch"
    assert sorted(path.name for path in (state / "runs").iterdir()) == ["000002", "000003"]
    assert len(read_history(state / "history.jsonl")) == 3


def test_a_baseline_without_a_receipt_is_refused_unless_allowed(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run(key=None)
    with pytest.raises(BundleError) as caught:
        watch(box)
    assert caught.value.code == "bundle.unsigned"
    assert not (tmp_path / "watch" / "history.jsonl").exists()
    assert watch(box, allow_unsigned=True).verdict is Verdict.IDENTICAL


def test_an_error_is_written_down_and_raised(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    with pytest.raises(ImageError):
        watch(box, engine=FakeEngine(images=[]))
    (record,) = read_history(tmp_path / "watch" / "history.jsonl")
    assert (record["verdict"], record["error"], record["drift"]) == (
        "not_comparable", "image.nowhere", False,
    )  # fmt: skip
    assert watch(box, at="2026-01-02T00:00:00Z").record["sequence"] == 2


def test_a_look_that_was_killed_is_resumed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = sandbox(tmp_path, "overlap", "backwards")
    box.run()
    with monkeypatch.context() as patch:
        # As a kill between the last unit and the sealing leaves it.
        patch.setattr("runner.run.seal", _killed)
        with pytest.raises(KeyboardInterrupt):
            watch(box)
    assert not (tmp_path / "watch" / "history.jsonl").exists()
    engine = box.engine()
    made = watch(box, engine=engine)
    assert (made.record["sequence"], made.verdict) == (1, Verdict.IDENTICAL)
    assert engine.specs == []


def _killed(*_arguments: object) -> None:
    raise KeyboardInterrupt


def test_two_looks_never_run_at_once(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    lock = tmp_path / "watch" / "lock"
    lock.parent.mkdir()
    code = (
        "import sys\nfrom pathlib import Path\nfrom runner.exclusive import exclusive\n"
        "with exclusive(Path(sys.argv[1]), what='x'):\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], cwd=ROOT, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(StorageError) as caught:
            watch(box)
        assert caught.value.code == "storage.busy"
        assert f"process {other.pid}" in caught.value.message
        other.kill()
    # It was killed and could not clean up: its lock and its lease are worth nothing now.
    assert lock.read_text() != ""
    assert watch(box).verdict is Verdict.IDENTICAL
    assert lock.read_text() == ""


def test_a_lease_that_lives_is_respected_where_locks_do_not_work(
    tmp_path: Path,
) -> None:
    import os

    from runner.engine import lease as leases

    parent = os.getppid()
    started = leases._started(parent, Path("/"))
    assert started is not None
    other = replace(own_lease(), pid=parent, started=started)
    (tmp_path / "lock").write_text(f"{other}\n")
    with pytest.raises(StorageError), exclusive(tmp_path / "lock", what="x"):
        pass
    reused = replace(other, started=started - 1)
    (tmp_path / "lock").write_text(f"{reused}\n")
    with exclusive(tmp_path / "lock", what="x"):
        assert (tmp_path / "lock").read_text() == f"{own_lease()}\n"


def test_a_clock_that_was_set_back_by_a_day(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    watch(box, at="2026-01-02T00:00:00Z")
    made = watch(box, at="2026-01-01T00:00:00Z")
    assert made.record["sequence"] == 2
    assert any("the clock was set back" in note for note in made.record["notes"])
    assert clock_notes([made.record], "2026-01-03T00:00:00Z") == []


def record(sequence: int, **changes: Any) -> dict[str, Any]:
    return {
        "schema": "sealbench/drift/v1",
        "sequence": sequence,
        "time": f"2026-01-{sequence:02d}T00:00:00Z",
        "baseline": "0" * 64,
        "verdict": "identical",
        "drift": False,
        "reason": "methods: 1 identical",
        "error": None,
        "bundle": "1" * 64,
        "metric": "ndcg_at_10",
        "methods": [
            {
                "method": "m",
                "verdict": "identical",
                "score": 0.5,
                "baseline_score": 0.5,
                "wall_seconds": 1.0,
            }
        ],
        "host": {"engine": "docker 20", "kernel": "6", "sealbench": "0"},
        "notes": [],
        **changes,
    }


def test_a_torn_last_line_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    append_history(path, record(1))
    with path.open("ab") as stream:
        stream.write(b'{"baseline":"00')
    assert [one["sequence"] for one in read_history(path)] == [1]
    append_history(path, record(2))
    assert [one["sequence"] for one in read_history(path)] == [1, 2]


@pytest.mark.parametrize(
    "line", [b"{}\n", b"not json\n", b'{"a":1,"a":2}\n', json.dumps(record(1)).encode() + b"\n"]
)
def test_a_history_that_somebody_edited_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "history.jsonl"
    append_history(path, record(1))
    with path.open("ab") as stream:
        stream.write(line)
    with pytest.raises(StorageError) as caught:
        read_history(path)
    assert caught.value.code == "drift.history-damaged"
    assert caught.value.where is not None
    assert caught.value.where.line == 2


def test_a_line_taken_out_of_a_history_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    append_history(path, record(2))
    with pytest.raises(StorageError):
        read_history(path)


@pytest.mark.parametrize(
    "records",
    [
        [],
        [record(1)],
        [record(1), record(2, drift=True), record(3, methods=[], metric=None)],
        [record(n, methods=[{**record(1)["methods"][0], "score": None}]) for n in (1, 2)],
    ],
    ids=["none", "one", "drift", "null"],
)
def test_the_plot_is_well_formed_and_needs_nothing_else(records: list[dict[str, Any]]) -> None:
    text = trend_svg(records, "0" * 64)
    root = ET.fromstring(text)  # noqa: S314 - our own text
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "script" not in text
    assert "href" not in text
    assert (">drift<" in text) == any(one["drift"] for one in records)


def test_another_baseline_is_not_in_the_plot() -> None:
    assert "polyline" not in trend_svg([record(1)], "f" * 64)


def test_the_difference_says_what_was_looked_at() -> None:
    text = difference_text(record(1, notes=["the clock was set back"]), None)
    assert text.startswith("look 1 at 2026-01-01T00:00:00Z\n")
    assert "m: 0.500000 -> 0.500000 (identical)" in text
    assert "note:     the clock was set back" in text
