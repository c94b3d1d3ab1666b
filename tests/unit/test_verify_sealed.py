"""Who has no data takes the labels from the sealed score files: what that sees of what was changed.

Every bundle here is signed with the trusted key, also after it was changed.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.canonical import canonical_bytes
from tests.score_files import (
    FOUND,
    GRADES,
    Change,
    Make,
    beir,
    finds,
    knows,
    maker,
    methods_of,
    other_threshold,
    results,
    run,
    run_splits,
    scaled,
)
from tests.sealed import write_rows
from tests.unit.reviewer_files import write_compact
from tests.unit.test_expertise_task import frozen


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    return maker(tmp_path_factory)


# --- honest bundles ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("code", "but for toy-pair, which have the protocol's digest (--data-root does that)"),
        ("people", "the labels in them were not compared with the data (--data-root does that)"),
        ("graded", "2 figures of queries with relevant documents that no score file has were held"),
    ],
)
def test_an_honest_bundle_comes_out_again_and_the_labels_are_left_open(
    made: Make, name: str, words: str
) -> None:
    found = made(name)
    report, informed = found.verify(), found.verify(labels=True)
    assert report.faults == ()
    assert report.intact.holds is True
    assert report.recomputed.holds is None
    assert informed.recomputed.holds is True
    count = informed.recomputed.detail.split()[0]
    assert report.recomputed.detail.startswith(f"{count} scores came out again from the sealed")
    assert words in report.recomputed.detail


@pytest.mark.parametrize(
    "splits", [["all", "heldout"], ["calibration", "heldout"], ["calibration"], ["all"]]
)
def test_a_run_of_some_splits_is_recomputed_too(tmp_path: Path, splits: list[str]) -> None:
    protocol, root = beir(tmp_path)
    made = run_splits(tmp_path / "run", protocol, root, methods_of(FOUND), splits)
    report = made.verify()
    assert report.faults == made.verify(labels=True).faults == ()
    assert "came out again" in report.recomputed.detail


def test_whole_rankings_below_the_cut_are_held_within_bounds(tmp_path: Path) -> None:
    protocol, root = beir(tmp_path, metrics="ndcg_at_2, map, mrr")
    whole = {
        "first": dict.fromkeys(GRADES, ("d1", "d2", "d3", "d4")),
        "second": dict.fromkeys(GRADES, ("d2", "d3", "d1", "d4")),
    }
    made = run_splits(tmp_path / "run", protocol, root, methods_of(whole), ["all"])
    results = json.loads((made.bundle / "results.json").read_bytes())
    assert all(row["score"] is not None for row in results["per_dataset"])
    assert made.verify(labels=True).faults == ()
    report = made.verify()
    assert report.faults == ()
    assert "held within bounds only" in report.recomputed.detail


def test_a_failed_query_has_labels_in_the_score_file_of_another_method(tmp_path: Path) -> None:
    def broken(mounts: Mapping[str, Path]) -> None:
        rows = [
            {"query_id": "q2", "ranking": [], "latency_ms": None, "error": "no"},
            {"query_id": "q1", "ranking": [["d4", 1.0]], "latency_ms": 1.0, "error": None},
            {"query_id": "q4", "ranking": [], "latency_ms": None, "error": "no"},
        ]
        write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))

    protocol, root = beir(tmp_path)
    methods = {"broken": broken, "first": finds(FOUND["first"])}
    made = run_splits(tmp_path / "run", protocol, root, methods, ["all"])
    report = made.verify()
    assert report.faults == made.verify(labels=True).faults == ()
    assert "bounds" not in report.recomputed.detail


def test_reviewers_without_any_score_are_not_missed(tmp_path: Path) -> None:
    def gives_up(mounts: Mapping[str, Path]) -> None:
        knows(mounts)
        path = mounts["/out"] / "rows.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows[0].update(scores={}, error="no")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    root = write_compact(tmp_path / "root")
    made = run(tmp_path / "run", frozen(root), root, {"gives-up": gives_up})
    assert made.verify(labels=True).faults == ()
    report = made.verify()
    assert report.faults == ()
    assert "came out again" in report.recomputed.detail


# --- tampering ---------------------------------------------------------------------------------


def table(path: Path, change: Callable[[list[list[str]]], None]) -> None:
    """Rewrite a score file as the runner writes one."""
    rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    change(rows)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def tables(pattern: str, change: Callable[[list[list[str]]], None]) -> Change:
    def act(bundle: Path) -> None:
        found = sorted(bundle.glob(pattern))
        assert found
        for path in found:
            table(path, change)

    return act


def put(row: int, column: int, value: str) -> Callable[[list[list[str]]], None]:
    def change(rows: list[list[str]]) -> None:
        rows[row][column] = value

    return change


def faster(document: Any) -> None:
    next(one for one in document["summaries"] if one.get("latency_ms"))["latency_ms"]["mean"] = 0.1


def shorter(bundle: Path) -> None:
    path = bundle / "outcomes.jsonl"
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    records[0]["wall_seconds"] = 0.001
    path.write_bytes(b"".join(canonical_bytes(record) + b"\n" for record in records))


def exchange(first: str, second: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        names = {first: second, second: first}
        for rows in (document["per_dataset"], document["aggregate"], document["summaries"]):
            for row in rows:
                row["method"] = names.get(row["method"], row["method"])

    return change


def no_scores(bundle: Path) -> None:
    for path in bundle.glob("scores/*/*.csv"):
        path.unlink()


def no_counts(bundle: Path) -> None:
    shutil.rmtree(bundle / "per-query")


def drop_last(rows: list[list[str]]) -> None:
    del rows[-1]


def flip(rows: list[list[str]]) -> None:
    rows[1][3] = "0" if rows[1][3] == "1" else "1"


def flip_two(rows: list[list[str]]) -> None:
    one = next(row for row in rows[1:] if row[3] == "1")
    other = next(row for row in rows[1:] if row[3] == "0")
    one[3], other[3] = "0", "1"


def swap_rows(rows: list[list[str]]) -> None:
    rows[1], rows[2] = rows[2], rows[1]


def less_relevant(rows: list[list[str]]) -> None:
    next(row for row in rows[1:] if row[2] != "0")[2] = "0"


def more_relevant(rows: list[list[str]]) -> None:
    next(row for row in rows[1:] if row[2] == "0")[2] = "1"


def claimed(query: str, figure: str) -> Callable[[list[list[str]]], None]:
    def change(rows: list[list[str]]) -> None:
        next(row for row in rows if row[0] == query)[6] = figure

    return change


def renamed(old: str, new: str) -> Callable[[list[list[str]]], None]:
    def change(rows: list[list[str]]) -> None:
        for row in rows:
            row[0] = new if row[0] == old else row[0]

    return change


PAIR, RANKED = "scores/alike/toy-pair.csv", "scores/alike/toy-retrieval.csv"
COUNTS = "per-query/alike/toy-retrieval.csv"
#: name -> (bundle, change, the file that must be named)
CASES: dict[str, tuple[str, Change, str]] = {
    "both tables scaled alike": ("code", results(scaled(0.99)), "results.json"),
    "scores replaced, with a new digest": ("code", tables(PAIR, put(1, -1, "0.125")), PAIR),
    "display names swapped": ("code", results(exchange("alike", "lengths")), "results.json"),
    "runtimes in the results": ("code", results(faster), "results.json"),
    "runtimes in the outcomes": ("code", shorter, "outcomes.jsonl"),
    "score files taken out": ("code", no_scores, PAIR),
    "per-query files taken out": ("code", no_counts, RANKED),
    "a threshold": ("code", results(other_threshold), "results.json"),
    "an interval": (
        "code", results(lambda doc: doc["aggregate"][0].update(ci_low=0.01)), "results.json",
    ),
    "a p-value": (
        "code",
        results(lambda doc: doc["comparisons"][-1].update(p_value=0.5, p_adjusted=0.5)),
        "results.json",
    ),
    "a label in one file": ("code", tables("scores/lengths/toy-pair.csv", flip),
                            "scores/lengths/toy-pair.csv"),
    "a label in all files": ("code", tables("scores/*/toy-pair.csv", flip), PAIR),
    "two labels in all files": ("code", tables("scores/*/toy-pair.csv", flip_two), PAIR),
    "a group in all files": ("code", tables("scores/*/toy-pair.csv", put(1, 4, "g7")), PAIR),
    "pairs in another order": ("code", tables("scores/*/toy-pair.csv", swap_rows), PAIR),
    "a relevance in one file": (
        "code", tables("scores/lengths/toy-retrieval.csv", less_relevant),
        "scores/lengths/toy-retrieval.csv",
    ),
    "a relevance in all files": ("code", tables("scores/*/toy-retrieval.csv", more_relevant),
                                 COUNTS),
    "documents in another order": ("code", tables(RANKED, swap_rows), RANKED),
    "the number of judgments": ("code", tables("per-query/*/*.csv", put(1, 1, "3")), COUNTS),
    "the relevant ones": ("code", tables("per-query/*/*.csv", put(1, 2, "2")), COUNTS),
    "the figures of a query": ("code", tables(COUNTS, put(1, 6, "0.75")), COUNTS),
    "a rating in one file": ("people", tables("scores/indifferent/toy-1.csv", put(1, 2, "2.5")),
                             "scores/indifferent/toy-1.csv"),
    "a rating in all files": ("people", tables("scores/*/toy-1.csv", put(1, 2, "2.25")),
                              "results.json"),
    "a rating taken out": ("people", tables("scores/*/toy-1.csv", drop_last),
                           "scores/knows/toy-1.csv"),
    "papers in another order": ("people", tables("scores/*/toy-2.csv", swap_rows),
                                "scores/knows/toy-2.csv"),
    "scaled losses": ("people", results(scaled(0.9)), "results.json"),
    "names of reviewers' methods": (
        "people", results(exchange("knows", "indifferent")), "results.json",
    ),
    "scaled figures of rankings": ("graded", results(scaled(0.9)), "results.json"),
    "a query's figure beyond the bounds": (
        "graded", tables("per-query/first/toy.csv", claimed("q1", "0.99")),
        "per-query/first/toy.csv",
    ),
    "a query's figure unlike its neighbour's": (
        "graded", tables("per-query/second/toy.csv", claimed("q1", "0.01")),
        "per-query/second/toy.csv",
    ),
    "a figure that is determined": (
        "graded", tables("per-query/second/toy.csv", claimed("q2", "1.0")),
        "per-query/second/toy.csv",
    ),
    "a query of another split": (
        "graded", tables("*/*/toy.csv", renamed("q2", "q3")), "per-query/first/toy.csv",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_was_changed_and_signed_again_is_named_without_labels(
    made: Make, tmp_path: Path, name: str
) -> None:
    which, change, file = CASES[name]
    report = made(which).changed(tmp_path, change).verify()
    assert file in {fault.file for fault in report.faults}
    assert report.intact.holds is False
    assert report.recomputed.holds is None


def test_signing_again_is_itself_no_fault(made: Make, tmp_path: Path) -> None:
    assert made("code").changed(tmp_path).verify().faults == ()
