"""The pair task: blind inputs, rows, metrics of splits, thresholds, score artifacts, imports."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.model import RowsReport
from runner.protocol.bind import bind
from runner.rows.faults import FaultLog, RowRefused
from runner.rows.pair import PairRow, PairRows
from runner.rows.read import read_rows
from runner.schemas import iter_faults
from runner.tasks import task_module
from runner.tasks.api import SplitScore, TaskOptions
from runner.tasks.code_collection import CodeRetrievalDataset
from runner.tasks.pair_dataset import PairDataset
from runner.tasks.pair_score import FITTED, ONE_CLASS, UnitScorer
from runner.tasks.retrieval_part import write_part
from tests.plagiarism import Bench, bench
from tests.unit.code_files import FITTED as VALIDATION_F1
from tests.unit.code_files import SOURCES

OPTIONS = TaskOptions(seed=3, top_k=3, threads=2, config={"k": 5})
TASK = task_module("pair")


@pytest.fixture
def plain(tmp_path: Path) -> Bench:
    return bench(tmp_path)


@pytest.fixture
def fitted(tmp_path: Path) -> Bench:
    return bench(tmp_path, validation=True, threshold=VALIDATION_F1)


def pairs_of(made: Bench) -> PairDataset:
    found = bind(made.protocol, made.data_root)["toy-pair"]
    assert isinstance(found, PairDataset)
    return found


def real_ids(dataset: PairDataset) -> dict[str, str]:
    return dict(zip(dataset.column("ids"), dataset.ids, strict=True))


# --- blind inputs ----------------------------------------------------------------------------


def inputs(dataset: PairDataset, folder: Path) -> dict[str, bytes]:
    report = TASK.write_blind_inputs(dataset, dataset.ids, OPTIONS, folder)
    assert {file.name for file in report.files} == {path.name for path in folder.iterdir()}
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_method_sees_pairs_and_texts_and_nothing_that_names_a_label(
    fitted: Bench, tmp_path: Path
) -> None:
    dataset = pairs_of(fitted)
    found = inputs(dataset, tmp_path / "in")
    every = b"".join(found.values())
    for secret in (b"orig", b"L1", b"np", b"label", b"group", b"valid", b"g1", b"s0.java", b"t1"):
        assert secret not in every.replace(b"strings", b"")
    assert list(iter_faults("task", json.loads(found["task.json"]), reference=True)) == []
    task = json.loads(found["task.json"])
    assert (task["pairs"], task["sources"], task["options"]) == (6, 9, {"code_language": "java"})
    asked = [json.loads(line) for line in found["pairs.jsonl"].splitlines()]
    assert [set(pair) for pair in asked] == [{"pair_id", "left_id", "right_id"}] * 6
    texts = {
        row["_id"]: row["text"] for row in map(json.loads, found["sources.jsonl"].splitlines())
    }
    alias = real_ids(dataset)["t1"]
    (pair,) = [pair for pair in asked if pair["pair_id"] == alias]
    assert texts[pair["left_id"]].encode() == SOURCES["g1-orig"]
    assert texts[pair["right_id"]].encode() == SOURCES["g1-L1"]  # CRLF and all


def test_shared_sources_are_linked_and_equal(plain: Bench, tmp_path: Path) -> None:
    dataset = pairs_of(plain)
    (tmp_path / "shared").mkdir()
    shared = TASK.share_inputs(dataset, tmp_path / "shared")
    TASK.write_blind_inputs(dataset, dataset.ids, OPTIONS, tmp_path / "in", shared=shared)
    assert (
        inputs(dataset, tmp_path / "alone")["sources.jsonl"]
        == (tmp_path / "in" / "sources.jsonl").read_bytes()
    )
    with pytest.raises(ValueError, match="each once"):
        TASK.write_blind_inputs(dataset, ["p1", "p1"], OPTIONS, tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


def test_over_sources_retrieval_asks_for_whole_rankings_of_opaque_ids(
    plain: Bench, tmp_path: Path
) -> None:
    dataset = bind(plain.protocol, plain.data_root)["toy-retrieval"]
    assert isinstance(dataset, CodeRetrievalDataset)
    task = task_module("retrieval")
    task.write_blind_inputs(dataset, list(dataset.queries), OPTIONS, tmp_path / "in")
    asked = json.loads((tmp_path / "in" / "task.json").read_bytes())
    assert (asked["top_k"], asked["documents"]) == (4, 4)
    assert b"orig" not in (tmp_path / "in" / "queries.jsonl").read_bytes()
    corpus = (tmp_path / "in" / "corpus.jsonl").read_text().splitlines()
    ids = [json.loads(line)["_id"] for line in corpus]
    assert ids == sorted(ids) == ["d1", "d2", "d3", "d4"]
    assert sorted(dataset.real[name] for name in ids) == ["g1-L1", "g1-np", "g2-L1", "g2-np"]
    write_part(dataset, [next(iter(dataset.queries))], {"d4", "d2"}, OPTIONS, tmp_path / "part")
    part = (tmp_path / "part" / "corpus.jsonl").read_text().splitlines()
    assert part == [corpus[1], corpus[3]]
    asked = json.loads((tmp_path / "part" / "task.json").read_bytes())
    assert (asked["queries"], asked["top_k"], asked["documents"]) == (1, 2, 2)


# --- rows ------------------------------------------------------------------------------------


def line(**members: Any) -> bytes:
    return json.dumps({"pair_id": "p1", "score": 0.5, "error": None, **members}).encode() + b"\n"


BAD_ROWS: dict[str, tuple[bytes, str]] = {
    "NaN": (line(score=float("nan")), "rows.non-finite"),
    "infinity": (line(score=float("inf")), "rows.non-finite"),
    "1e999": (line().replace(b"0.5", b"1e999"), "rows.non-finite"),
    "above 1": (line(score=1.07), "schema.bound"),
    "below 0": (line(score=-0.1), "schema.bound"),
    "a text": (line(score="0.5"), "schema.type"),
    "true": (line(score=True), "schema.type"),
    "no score": (line(score=None), "rows.no-score"),
    "both": (line(error="why"), "rows.error-with-score"),
    "unknown": (line(pair_id="p9"), "rows.unknown-id"),
    "real id": (line(pair_id="t1"), "rows.unknown-id"),
    "extra": (line(note=1), "schema.unknown-key"),
    "a key twice": (line().replace(b'"error"', b'"score": 1, "error"'), "rows.duplicate-key"),
    "half a line": (line()[:-1], "rows.half-line"),
    "CRLF": (line()[:-1] + b"\r\n", "rows.crlf"),
    "UTF-16": (line().decode().encode("utf-16"), "rows.half-line"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_row_that_says_nothing_certain_is_a_fault(case: str) -> None:
    data, code = BAD_ROWS[case]
    found = read_rows(io.BytesIO(data), PairRows(["p1", "p2"])).report
    assert (found.valid, found.fault_count >= 1) == (0, True)
    assert code in {fault.code for fault in found.faults}
    assert found.faults[0].line == 1


def test_good_rows_are_read_by_both_ways_alike() -> None:
    data = line() + line(pair_id="p2", score=1) + line(pair_id="p3", score=None, error="no parse")
    for reference in (False, True):
        rows: list[PairRow] = []
        found = read_rows(
            io.BytesIO(data),
            PairRows(["p1", "p2", "p3"]),
            on_block=rows.extend,
            reference=reference,
        )
        assert (found.report.valid, found.report.errors, found.report.fault_count) == (3, 1, 0)
        assert rows == [
            PairRow("p1", 0.5, None), PairRow("p2", 1.0, None), PairRow("p3", None, "no parse"),
        ]  # fmt: skip


def test_a_pair_that_is_answered_twice_is_a_fault() -> None:
    found = read_rows(io.BytesIO(line() + line(score=0.4)), PairRows(["p1"])).report
    assert [fault.code for fault in found.faults] == ["rows.duplicate-id"]


# --- scores ----------------------------------------------------------------------------------


def scored(
    made: Bench, scores: Mapping[str, float | None], *splits: str, artifact: Path | None = None
) -> dict[str, SplitScore]:
    dataset, protocol = pairs_of(made), made.protocol
    names = real_ids(dataset)
    rows = [
        PairRow(names[pair], score, None if score is not None else "failed")
        for pair, score in scores.items()
    ]
    with UnitScorer(dataset, protocol, splits or ("test",), artifact=artifact) as scorer:
        scorer.add(rows)
        report = RowsReport(expected=len(dataset.ids), valid=len(rows), missing=0, errors=0)
        return {score.split: score for score in scorer.result(report).splits}


SCORES = {"t1": 0.9, "t2": 0.2, "t3": 0.4, "t4": 0.4}


def test_the_metrics_of_four_pairs_by_hand(plain: Bench, tmp_path: Path) -> None:
    found = scored(plain, SCORES, artifact=tmp_path / "scores.csv")["test"]
    assert dict(found.scores) == pytest.approx(
        {
            "average_precision": 0.5 * 1 + 0.5 * (2 / 3),
            "auroc": (2 + 1.5) / 4,
            "f1": 2 / 3,
            "precision": 1.0,
            "recall": 0.5,
            "accuracy": 0.75,
        }
    )
    assert found.summary == {
        "pairs": 4, "failures": 0, "missing": 0, "base_rate": 0.5,
        "all_positive_f1": pytest.approx(2 / 3), "threshold": 0.5,
    }  # fmt: skip
    assert {len(ratio.numerators) for ratio in found.ratios.values()} == {2}  # two groups
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert lines[0] == "pair_id,left_id,right_id,label,group,score"
    assert sorted(lines[1:]) == [
        "t1,g1-orig,g1-L1,1,g1,0.9",
        "t2,g1-orig,g1-np,0,g1,0.2",
        "t3,g2-orig,g2-L1,1,g2,0.4",
        "t4,g2-orig,g2-np,0,g2,0.4",
    ]


def test_each_metric_is_the_quotient_of_its_groups(plain: Bench) -> None:
    found = scored(plain, SCORES)["test"]
    for metric, ratio in found.ratios.items():
        quotient = ratio.numerators.sum() / ratio.denominators.sum()
        assert quotient == pytest.approx(found.scores[metric])


def test_a_pair_without_a_score_leaves_all_unmeasured(plain: Bench, tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    failed = scored(plain, {**SCORES, "t4": None}, artifact=path)["test"]
    assert set(failed.scores.values()) == {None}
    assert failed.reasons["f1"] == "1 of 4 pairs have an error instead of a score"
    assert "t4,g2-orig,g2-np,0,g2," in path.read_text().splitlines()
    assert failed.summary is not None
    assert failed.summary["failures"] == 1
    missing = scored(plain, {"t1": 0.5, "t2": 0.5})["test"]
    assert missing.reasons["auroc"] == "2 of 4 pairs have no row"


def test_one_class_data_have_no_average_precision(tmp_path: Path) -> None:
    only = [("t1", "g1-orig", "g1-L1", "1", "g1"), ("t3", "g2-orig", "g2-L1", "1", "g2")]
    found = scored(bench(tmp_path, pairs=only), {"t1": 0.9, "t3": 0.1})["test"]
    assert (found.scores["average_precision"], found.scores["auroc"]) == (None, None)
    assert found.reasons["auroc"] == ONE_CLASS
    assert found.scores["recall"] == 0.5


# --- thresholds ------------------------------------------------------------------------------

FIT = {**SCORES, "v1": 0.35, "v2": 0.3}


def test_a_threshold_is_fitted_on_validation_alone(fitted: Bench) -> None:
    found = scored(fitted, FIT, "test", "validation", "all")
    assert found["test"].summary is not None
    assert found["test"].summary["threshold"] == 0.35
    assert found["test"].scores["f1"] == pytest.approx(0.8)
    # Other test labels or scores would not have moved it.
    moved = scored(fitted, {**FIT, "t1": 0.1, "t2": 0.99}, "test")["test"]
    assert moved.summary is not None
    assert moved.summary["threshold"] == 0.35
    assert found["validation"].scores["f1"] == 1.0
    assert found["all"].scores["f1"] is None
    assert found["all"].reasons["f1"] == FITTED
    assert found["all"].scores["auroc"] is not None


def test_a_missing_validation_score_leaves_the_test_unmeasured(fitted: Bench) -> None:
    found = scored(fitted, {**FIT, "v1": None}, "test")["test"]
    assert found.scores["auroc"] is None
    assert found.reasons["auroc"] == "1 of 2 pairs have an error instead of a score"


def test_every_pair_is_asked_whatever_is_scored(fitted: Bench) -> None:
    dataset, protocol = pairs_of(fitted), fitted.protocol
    assert TASK.expected_ids(protocol, dataset, ["test"]) == dataset.ids
    assert len(dataset.ids) == 6


# --- imports ---------------------------------------------------------------------------------


def imported(made: Bench, data: bytes) -> tuple[dict[str, Any], FaultLog]:
    dataset, faults = pairs_of(made), FaultLog()
    rows = TASK.import_rows(io.BytesIO(data), dataset, dataset.ids, faults)
    return {key: json.loads(row)["score"] for key, row in rows}, faults


def test_scores_from_elsewhere_may_use_either_ids(plain: Bench) -> None:
    names = real_ids(pairs_of(plain))
    rows, _ = imported(plain, b"pair_id,score\nt1,0.25\n" + f"{names['t2']},1\n".encode())
    assert rows == {names["t1"]: 0.25, names["t2"]: 1.0}
    rows, _ = imported(plain, b'{"pair_id":"t3","score":0.5,"error":null}\n')
    assert rows == {names["t3"]: 0.5}
    _, faults = imported(plain, b"pair_id,score\nt1,none\n")
    assert [fault.code for fault in faults.kept] == ["rows.bad-score"]
    for bad in (b"id,value\n", b"\xff\xfe"):
        with pytest.raises(RowRefused):
            imported(plain, bad)
