"""Whole runs on the fake engine: outcomes, nulls, resuming, cancelling, refusing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.engine.fake import FakeEngine
from runner.errors import DataError, ImageError, ProtocolError, SealbenchError, StorageError
from runner.model import Outcome
from runner.signals import CancelToken
from tests.sealed import KEY, does, overlap, sandbox, write_rows


def test_a_run_seals_what_verifies_with_scores_that_come_out_again(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "backwards")
    result = box.run()
    assert [record.outcome for record in result.outcomes] == [Outcome.OK, Outcome.OK]
    report = box.verify()
    assert report.faults == ()
    assert (report.intact.holds, report.recomputed.holds) == (True, True)
    assert report.reproduced.holds is False
    rows = {
        row["method"]: row
        for row in json.loads((box.out / "bundle" / "results.json").read_bytes())["aggregate"]
        if row["metric"] == "ndcg_at_10"
    }
    assert rows["overlap"]["rank"] == 1
    assert rows["overlap"]["mean_score"] > rows["backwards"]["mean_score"]
    assert (box.out / "bundle.tar").is_file()
    assert sorted(path.name for path in box.out.iterdir()) == [
        "bundle",
        "bundle.sigs",
        "bundle.tar",
    ]


def test_failures_are_null_and_the_rest_is_kept(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "crash", "late", "liar")
    result = box.run()
    assert [record.outcome.value for record in result.outcomes] == [
        "ok",
        "crashed",
        "timeout",
        "invalid_output",
    ]
    assert result.summary.unexpected == 3
    stored = json.loads((box.out / "bundle" / "results.json").read_bytes())
    for row in stored["aggregate"]:
        failed = row["method"] != "overlap"
        assert (row["rank"] is None) == (failed or row["mean_score"] is None)
        if failed:
            assert row["mean_score"] is None
            assert row["coverage"] == 0.0
    assert box.verify().faults == ()


def test_nothing_of_a_container_stays_in_the_engine(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "late", "crash")
    engine = box.engine()
    box.run(engine=engine)
    assert [name for name, _ in engine.calls].count("create") == 3
    assert [name for name, _ in engine.calls].count("remove") >= 3


def test_labels_never_reach_a_method(tmp_path: Path) -> None:
    seen: list[str] = []

    def spy(mounts: dict[str, Path]) -> None:
        seen.extend(sorted(path.name for path in mounts["/in"].iterdir()))
        keys = {
            key
            for name in ("corpus.jsonl", "queries.jsonl")
            for line in (mounts["/in"] / name).read_text("utf-8").splitlines()
            for key in json.loads(line)
        }
        seen.append(" ".join(sorted(keys)))
        overlap(mounts)

    box = sandbox(tmp_path, "spy", scripts={"spy": does(spy)})  # type: ignore[arg-type]  # a dict is a mapping
    box.run()
    assert seen == ["corpus.jsonl", "queries.jsonl", "task.json", "_id text title"]


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "full", "backwards", scripts={"full": does(overlap)})
    boom = RuntimeError("the supervisor is gone")

    class Reporter:
        def __getattr__(self, name: str):  # type: ignore[no-untyped-def]  # any call
            def call(*arguments: object) -> None:
                if name == "unit_started" and getattr(arguments[0], "method", "") == "full":
                    raise boom

            return call

    with pytest.raises(RuntimeError):
        box.run(reporter=Reporter())
    assert not (box.out / "bundle").exists()
    engine = box.engine()
    result = box.run(engine=engine)
    assert [spec.command[0] for spec in engine.specs] == ["full", "backwards"]
    assert {record.outcome for record in result.outcomes} == {Outcome.OK}
    assert len(result.outcomes) == 3
    assert box.verify().faults == ()


def test_a_cancelled_run_is_sealed_as_incomplete(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "late")
    cancel = CancelToken()
    cancel.cancel()
    result = box.run(cancel=cancel)
    assert {record.outcome for record in result.outcomes} == {Outcome.NOT_STARTED}
    assert result.summary.complete is False
    assert box.verify().faults == ()
    notes = json.loads((box.out / "bundle" / "results.json").read_bytes())["notes"]
    assert any(note.startswith("incomplete") for note in notes)


def test_the_engine_dying_in_mid_run_is_an_outcome_not_a_hang(tmp_path: Path) -> None:
    from runner.engine.fake import NEVER, Script

    box = sandbox(
        tmp_path, "doomed", scripts={"doomed": Script(exit_after_s=NEVER, engine_dies_after_s=0.2)}
    )
    result = box.run()
    assert [record.outcome for record in result.outcomes] == [Outcome.ENGINE_ERROR]
    assert box.verify().faults == ()


def test_rows_with_a_bad_line_make_the_unit_invalid_and_keep_the_good_ones(tmp_path: Path) -> None:
    def half(mounts: dict[str, Path]) -> None:
        overlap(mounts)
        path = mounts["/out"] / "rows.jsonl"
        write_rows(mounts, path.read_text("utf-8")[:-20])

    box = sandbox(tmp_path, "half", scripts={"half": does(half)})  # type: ignore[arg-type]  # a dict is a mapping
    (record,) = box.run().outcomes
    assert record.outcome is Outcome.INVALID_OUTPUT
    assert record.evidence.rows is not None
    assert record.evidence.rows.missing == 1
    assert record.evidence.rows.faults[0].code == "rows.half-line"
    assert (box.out / "bundle/rows/half/quickstart-mini/part-00000.jsonl").is_file()
    assert box.verify().faults == ()


@pytest.mark.parametrize(
    ("change", "error", "code"),
    [
        ("protocol_id: sha256:" + "0" * 64, ProtocolError, "protocol.wrong-id"),
        ("limits: {memory: 64GiB}", ProtocolError, None),
        ("splits: [heldout2]", SealbenchError, None),
    ],
)
def test_nothing_starts_before_everything_is_validated(
    tmp_path: Path, change: str, error: type[SealbenchError], code: str | None
) -> None:
    box = sandbox(tmp_path, "overlap")
    text = box.manifest.read_text("utf-8")
    name = change.partition(":")[0]
    lines = [line for line in text.splitlines() if not line.startswith(f"{name}:")]
    box.manifest.write_text("\n".join([change, *lines]) + "\n", encoding="utf-8")
    engine = box.engine()
    with pytest.raises(error) as caught:
        box.run(engine=engine)
    assert code in (None, caught.value.code)
    assert engine.calls == []
    assert not box.out.exists()


def test_an_absent_image_leaves_nothing_behind(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    with pytest.raises(ImageError):
        box.run(engine=FakeEngine({}, images=[]))
    assert not box.out.exists()


def test_missing_data_is_refused_with_a_fix(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    with pytest.raises(DataError) as caught:
        box.run(data_root=tmp_path / "nowhere")
    assert caught.value.fix


def test_a_bundle_is_never_overwritten(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    before = (box.out / "bundle" / "manifest.json").read_bytes()
    with pytest.raises(StorageError) as caught:
        box.run()
    assert caught.value.code == "storage.occupied"
    assert (box.out / "bundle" / "manifest.json").read_bytes() == before


def test_an_unsigned_bundle_says_so_and_is_refused_unless_allowed(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    assert box.run(key=None).summary.signed is False
    refused = box.verify()
    assert [fault.code for fault in refused.faults] == ["bundle.unsigned"]
    allowed = box.verify(trust=None, allow_unsigned=True)
    assert allowed.faults == ()
    assert "unsigned" in allowed.intact.detail


def test_two_runs_give_the_same_rows_scores_and_ids(tmp_path: Path) -> None:
    first, second = sandbox(tmp_path / "a", "overlap"), sandbox(tmp_path / "b", "overlap")
    one, two = first.run(), second.run()
    assert one.summary.run_id == two.summary.run_id
    for name in ("plan.json", "results.json", "scores/overlap/quickstart-mini.csv"):
        left, right = ((box.out / "bundle" / name).read_bytes() for box in (first, second))
        assert left == right
    assert KEY.public.keyid.encode() in (first.out / "bundle" / "receipt.dsse.json").read_bytes()
