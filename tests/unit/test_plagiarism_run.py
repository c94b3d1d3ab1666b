"""Plagiarism runs from manifest to verified bundle, and what a thief of figures could do to one.

Tampered bundles are signed again with the trusted key: only the recomputation can catch them.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.commands.running import summary_text
from runner.model import Outcome
from tests.plagiarism import Bench, answers, bench
from tests.sealed import does
from tests.unit.test_verify import edit, scale, sign_again

Change = Callable[[Path], None]
PAIR_ROWS = "rows/alike/toy-pair/part-00000.jsonl"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def sealed(made: Bench) -> Path:
    out = made.folder / "out"
    made.run(out, "alike", "constant", "lengths", "crash")
    report = made.verify(out)
    assert report.faults == ()
    assert report.recomputed.holds
    return out


@pytest.fixture
def copy(sealed: Path, tmp_path: Path) -> Path:
    shutil.copytree(sealed, tmp_path / "copy")
    return tmp_path / "copy"


def load(out: Path) -> Any:
    return json.loads((out / "bundle" / "results.json").read_bytes())


def test_both_tasks_are_scored_apart_and_the_failed_one_stays_null(sealed: Path) -> None:
    rows = load(sealed)["aggregate"]
    found = {(row["method"], row["task"], row["metric"]): row for row in rows}
    assert found["alike", "pair", "auroc"]["rank"] == 1
    assert found["alike", "retrieval", "map"]["rank"] == 1
    constant = found["constant", "pair", "average_precision"]
    assert constant["mean_score"] == 0.5  # the base rate
    for task, metric in (("pair", "f1"), ("retrieval", "map")):
        row = found["crash", task, metric]
        assert (row["mean_score"], row["rank"], row["coverage"]) == (None, None, 0)
        assert (row["eligible"], row["complete_coverage"]) == (False, False)
    tasks = {(row["task"], row["metric"]) for row in rows}
    assert ("retrieval", "f1") not in tasks
    assert ("pair", "map") not in tasks


def test_a_constant_gains_nothing_from_readable_ids(made: Bench, sealed: Path) -> None:
    with (sealed / "bundle/scores/constant/toy-retrieval.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    documents = [row["document_id"] for row in rows if row["query_id"] == "q-g1-orig"]
    assert sorted(documents) == ["g1-L1", "g1-np", "g2-L1", "g2-np"]
    assert documents != sorted(documents)
    assert {row["score"] for row in rows} == {"0.5"}
    assert made.protocol.rules["ids"] == "opaque"


def test_rows_hold_opaque_ids_and_no_file_of_the_bundle_a_source(sealed: Path) -> None:
    bundle = sealed / "bundle"
    for path in (bundle / "rows").rglob("*.jsonl"):
        assert b"g1" not in path.read_bytes()
    for path in bundle.rglob("*"):
        if path.is_file():
            assert b"return a" not in path.read_bytes()
            assert str(sealed).encode() not in path.read_bytes()


def test_two_methods_are_compared_and_a_tie_is_called_one(sealed: Path) -> None:
    entries = load(sealed)["comparisons"]
    pairs = {(e["method"], e["other"]) for e in entries if e["metric"] == "auroc"}
    assert pairs == {("alike", "constant"), ("alike", "lengths"), ("constant", "lengths")}
    assert all(entry["tie"] for entry in entries)  # two assignments can part nobody
    assert {(entry["test"], entry["blocks"]) for entry in entries if entry["task"] == "pair"} == {
        ("permutation", 2)
    }


def test_without_labels_rows_are_complete_and_aggregates_follow(made: Bench, sealed: Path) -> None:
    report = made.verify(sealed, labels=False)
    assert report.faults == ()
    assert report.recomputed.holds is None


def results(change: Callable[[Any], None]) -> Change:
    return lambda out: edit(out / "bundle" / "results.json", change)


def swap_names(document: Any) -> None:
    names = {"alike": "constant", "constant": "alike"}
    for table in ("per_dataset", "aggregate", "summaries"):
        for row in document[table]:
            row["method"] = names.get(row["method"], row["method"])
    for row in document["comparisons"]:
        for side in ("method", "other"):
            row[side] = names.get(row[side], row[side])


def replace_scores(out: Path) -> None:
    """Better scores in the artifact; whoever signs lists the new hash."""
    path = out / "bundle/scores/constant/toy-pair.csv"
    good = out / "bundle/scores/alike/toy-pair.csv"
    path.write_bytes(good.read_bytes())


def replace_rows(out: Path) -> None:
    rows = out / "bundle/rows/constant/toy-pair/part-00000.jsonl"
    rows.write_bytes((out / "bundle" / PAIR_ROWS).read_bytes())


def scale_rows(out: Path) -> None:
    path = out / "bundle" / PAIR_ROWS
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    text = "".join(json.dumps({**row, "score": row["score"] / 2}) + "\n" for row in rows)
    path.write_text(text)


def drop_artifact(out: Path) -> None:
    (out / "bundle/scores/alike/toy-pair.csv").unlink()


def empty_artifact(out: Path) -> None:
    path = out / "bundle/scores/alike/toy-pair.csv"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


def slower(out: Path) -> None:
    """Rewrite a runtime in the outcomes alone."""
    path = out / "bundle" / "outcomes.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"wall_seconds":0', b'"wall_seconds":9', 1))


def threshold(document: Any) -> None:
    for row in document["summaries"]:
        if row.get("threshold") is not None:
            row["threshold"] = 0.4


def relabel(out: Path) -> None:
    path = out / "bundle/scores/alike/toy-pair.csv"
    path.write_bytes(path.read_bytes().replace(b",0,g1", b",1,g1", 1))


def no_tie(document: Any) -> None:
    for row in document["comparisons"]:
        row.update(tie=False, p_adjusted=0.001, p_value=0.001)


TAMPERED: dict[str, tuple[Change, str]] = {
    "both tables scaled": (results(scale(1.01)), "results.json"),
    "names swapped": (results(swap_names), "results.json"),
    "scores replaced": (replace_scores, "scores/constant/toy-pair.csv"),
    "labels in the artifact": (relabel, "scores/alike/toy-pair.csv"),
    "rows replaced": (replace_rows, "results.json"),
    "rows scaled": (scale_rows, "results.json"),
    "an artifact dropped": (drop_artifact, "scores/alike/toy-pair.csv"),
    "an artifact emptied": (empty_artifact, "scores/alike/toy-pair.csv"),
    "tables emptied": (results(lambda d: d.update(per_dataset=[], aggregate=[])), "results.json"),
    "comparisons emptied": (results(lambda d: d.update(comparisons=[])), "results.json"),
    "summaries emptied": (results(lambda d: d.update(summaries=[])), "results.json"),
    "a tie denied": (results(no_tie), "results.json"),
    "a threshold": (results(threshold), "results.json"),
    "a runtime": (slower, "outcomes.jsonl"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_bundle_signed_again_with_other_figures_is_refused_and_the_file_named(
    case: str, made: Bench, copy: Path
) -> None:
    change, place = TAMPERED[case]
    before = _digest(copy)
    change(copy)
    assert _digest(copy) != before
    sign_again(copy / "bundle")
    report = made.verify(copy)
    assert place in {fault.file for fault in report.faults}
    assert not report.intact.holds


SEEN_WITHOUT_LABELS = ("comparisons emptied", "a tie denied", "tables emptied", "a runtime")


@pytest.mark.parametrize("case", SEEN_WITHOUT_LABELS)
def test_some_of_it_shows_without_the_labels(case: str, made: Bench, copy: Path) -> None:
    change, place = TAMPERED[case]
    change(copy)
    sign_again(copy / "bundle")
    assert place in {fault.file for fault in made.verify(copy, labels=False).faults}


def _digest(out: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted((out / "bundle").rglob("*")):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


BAD_SCORES: dict[str, float] = {"above 1": 1.07, "NaN": float("nan"), "below 0": -0.5}


@pytest.mark.parametrize("case", BAD_SCORES)
def test_a_score_off_the_scale_makes_the_dataset_invalid_with_its_row(
    case: str, made: Bench, tmp_path: Path
) -> None:
    odd = does(answers(lambda _left, _right: BAD_SCORES[case]))
    result = made.run(tmp_path / "out", "odd", "alike", scripts={"odd": odd}, name="bad")
    pair = next(record for record in result.outcomes if record.unit.method == "odd")
    assert pair.outcome is Outcome.INVALID_OUTPUT
    assert pair.evidence.rows is not None
    assert pair.evidence.rows.faults[0].line == 1
    rows = [row for row in load(tmp_path / "out")["aggregate"] if row["method"] == "odd"]
    assert all(row["mean_score"] is None for row in rows if row["task"] == "pair")
    assert made.verify(tmp_path / "out").faults == ()


def test_an_incomplete_ranking_is_invalid_output(made: Bench, tmp_path: Path) -> None:
    def half(mounts: Any) -> None:
        answers(lambda _left, _right: 0.5)(mounts)
        path = mounts["/out"] / "rows.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            if "ranking" in row:
                row["ranking"] = row["ranking"][:2]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    result = made.run(tmp_path / "out", "half", scripts={"half": does(half)}, name="half")
    found = {record.unit.dataset: record for record in result.outcomes}
    assert found["toy-pair"].outcome is Outcome.OK
    retrieval = found["toy-retrieval"]
    assert retrieval.outcome is Outcome.INVALID_OUTPUT
    assert retrieval.evidence.rows is not None
    assert retrieval.evidence.rows.faults[0].code == "rows.incomplete-ranking"
    told = summary_text(result, made.verify(tmp_path / "out"))
    tables = [line.split()[-1] for line in told.splitlines() if line.split()[1:2] == ["half"]]
    assert tables == ["ok", "invalid_output"]  # each task's table has the outcome there


def test_a_method_that_fails_on_the_second_dataset_is_not_eligible_there(
    made: Bench, tmp_path: Path
) -> None:
    def pairs_only(mounts: Any) -> None:
        task = json.loads((mounts["/in"] / "task.json").read_bytes())["task"]
        if task == "pair":
            answers(lambda _left, _right: 0.5)(mounts)

    scripts = {"partly": does(pairs_only)}
    made.run(tmp_path / "out", "partly", "alike", scripts=scripts, name="partly")
    found = {
        (row["method"], row["task"]): row
        for row in load(tmp_path / "out")["aggregate"]
        if row["metric"] in ("auroc", "map")
    }
    assert found["partly", "pair"]["rank"] == 2
    assert found["partly", "retrieval"]["rank"] is None
    assert found["alike", "retrieval"]["rank"] == 1
