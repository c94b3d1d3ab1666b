"""Scores of a unit: split means, what is unmeasured and why, and the artifact to the byte."""

from __future__ import annotations

import csv
import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import pytrec_eval

from runner.datasets.beir import RetrievalDataset
from runner.errors import ProtocolError
from runner.protocol.bind import bind
from runner.protocol.load import Protocol
from runner.scoring import score_parts
from runner.tasks.api import SplitScore, UnitScores
from runner.tasks.retrieval import expected_ids, split_ids
from tests.unit.beir_files import write_beir
from tests.unit.protocol_samples import frozen

Ranking = Sequence[tuple[str, float]]
METRICS = ("ndcg_at_10", "recall_at_1", "recall_at_5", "mrr_at_10", "map_at_10", "success_at_1")
ALL_METRICS = (*METRICS, "precision_at_5", "map", "mrr")
RANKINGS: dict[str, Ranking] = {
    "q1": [("d2", 3.5), ("d1", 2.0), ("d3", 2.0)],
    "q2": [("d2", 1.0)],
    "q4": [("d3", 0.25), ("d4", -1.0)],
}


class Bench:
    """A bound collection, its protocol, and a way to score rankings."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.root = root
        self.protocol: Protocol = frozen(root, **changes)
        self.dataset = cast(RetrievalDataset, bind(self.protocol, root)["toy"])

    def rows(
        self, rankings: Mapping[str, Ranking], errors: Mapping[str, str] | None = None
    ) -> Path:
        rows = [
            {"query_id": q, "ranking": [list(p) for p in r], "latency_ms": 1.5, "error": None}
            for q, r in rankings.items()
        ]
        rows += [
            {"query_id": q, "ranking": [], "latency_ms": None, "error": e}
            for q, e in (errors or {}).items()
        ]
        path = self.root / "part-00000.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def score(
        self,
        rankings: Mapping[str, Ranking],
        errors: Mapping[str, str] | None = None,
        splits: Sequence[str] = ("all",),
        artifact: Path | None = None,
    ) -> UnitScores:
        path = self.rows(rankings, errors)
        return score_parts([path], self.dataset, self.protocol, splits, artifact=artifact)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, metrics=METRICS, calibration=1)


def summary(split: SplitScore) -> Mapping[str, Any]:
    assert split.summary is not None
    return split.summary


def by_name(scores: UnitScores) -> dict[str, SplitScore]:
    return {split.split: split for split in scores.splits}


def test_means_by_hand(bench: Bench) -> None:
    (split,) = bench.score(RANKINGS).splits
    # q1: d1 (grade 2) at rank 2, d3 (1) at 3; q2: d2 at 1; q4 has nothing relevant: 0.
    dcg = 2 / np.log2(3) + 1 / np.log2(4)
    ideal = 2 + 1 / np.log2(3)
    assert split.scores["ndcg_at_10"] == pytest.approx((dcg / ideal + 1 + 0) / 3, abs=1e-15)
    assert split.scores["recall_at_1"] == pytest.approx(1 / 3)
    assert split.scores["mrr_at_10"] == pytest.approx((0.5 + 1) / 3)
    assert split.scores["map_at_10"] == pytest.approx(((1 / 2 + 2 / 3) / 2 + 1) / 3)
    assert (split.queries, split.reasons) == (3, {})
    assert split.samples["recall_at_5"].tolist() == [
        {"q1": 1.0, "q2": 1.0, "q4": 0.0}[query] for query in splits_of_all(bench)
    ]


def splits_of_all(bench: Bench) -> tuple[str, ...]:
    return split_ids(bench.dataset, bench.protocol.calibration)["all"]


def test_every_split_is_the_mean_over_its_own_queries(bench: Bench) -> None:
    splits = split_ids(bench.dataset, bench.protocol.calibration)
    scores = by_name(bench.score(RANKINGS, splits=("all", "calibration", "heldout")))
    for metric in METRICS:
        column = dict(zip(splits["all"], scores["all"].samples[metric], strict=True))
        for name in ("calibration", "heldout"):
            mine = [column[query] for query in splits[name]]
            assert scores[name].scores[metric] == pytest.approx(sum(mine) / len(mine), abs=1e-15)
            assert scores[name].samples[metric].tolist() == mine
    assert summary(scores["heldout"])["queries"] == 2


def test_a_unit_of_one_split_is_asked_only_its_queries(bench: Bench) -> None:
    heldout = split_ids(bench.dataset, bench.protocol.calibration)["heldout"]
    assert expected_ids(bench.protocol, bench.dataset, ["heldout"]) == heldout
    assert bench.protocol.metrics_of("retrieval") == METRICS
    scores = bench.score({query: RANKINGS[query] for query in heldout}, splits=("heldout",))
    assert scores.splits[0].reasons == {}
    assert len(scores.splits[0].samples["mrr_at_10"]) == len(heldout)
    with pytest.raises(ProtocolError, match="unknown-split"):
        bench.score(RANKINGS, splits=("test",))


def test_a_failed_query_counts_as_an_empty_ranking(bench: Bench) -> None:
    answered = {query: RANKINGS[query] for query in ("q1", "q4")}
    (split,) = bench.score(answered, {"q2": "out of ideas"}).splits
    assert split.scores["mrr_at_10"] == pytest.approx(0.5 / 3)
    assert (split.queries, summary(split)["failures"], summary(split)["missing"]) == (3, 1, 0)


def test_a_missing_row_leaves_its_splits_unmeasured(bench: Bench) -> None:
    splits = split_ids(bench.dataset, bench.protocol.calibration)
    (absent,) = splits["calibration"]
    rankings = {query: ranking for query, ranking in RANKINGS.items() if query != absent}
    scores = by_name(bench.score(rankings, splits=("all", "calibration", "heldout")))
    for name, total in (("all", 3), ("calibration", 1)):
        assert scores[name].scores == dict.fromkeys(METRICS)
        assert set(scores[name].reasons.values()) == {f"1 of {total} queries have no row"}
        assert scores[name].samples == {}
    assert scores["heldout"].scores["ndcg_at_10"] is not None


@pytest.mark.parametrize(
    "bad",
    [
        '{"query_id":"q1","ranking":[["d1",NaN]],"latency_ms":1,"error":null}\n',
        '{"query_id":"q9","ranking":[],"latency_ms":1,"error":null}\n',
        '{"query_id":"q2","ranking":[["d9",1]],"latency_ms":1,"error":null}\n',
        '{"query_id":"q2","ranking":[["d1",1],["d1",2]],"latency_ms":1,"error":null}\n',
        '{"query_id":"q2","ranking":[]',
        "\n",
    ],
)
def test_a_fault_in_the_rows_leaves_everything_unmeasured(bench: Bench, bad: str) -> None:
    path = bench.rows(RANKINGS)
    with path.open("a") as stream:
        stream.write(bad)
    scores = score_parts([path], bench.dataset, bench.protocol, ("all", "heldout"))
    for split in scores.splits:
        assert split.scores == dict.fromkeys(METRICS)
        assert set(split.reasons.values()) == {"1 faults in the rows"}


def test_no_rows_at_all_are_unmeasured_not_zero(bench: Bench) -> None:
    (split,) = bench.score({}).splits
    assert split.scores == dict.fromkeys(METRICS)
    assert set(split.reasons.values()) == {"3 of 3 queries have no row"}


def test_queries_without_positives_count_or_are_excluded_by_policy(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"metrics": METRICS, "calibration": None}
    counted = Bench(tmp_path, **changes).score(RANKINGS).splits[0]
    policy = "exclude"
    excluded = (
        Bench(tmp_path, **changes, rule_queries_without_positives=policy).score(RANKINGS).splits[0]
    )
    assert (counted.queries, excluded.queries) == (3, 2)
    for metric in METRICS:
        whole, part = counted.scores[metric], excluded.scores[metric]
        assert whole is not None
        assert part == pytest.approx(whole * 3 / 2)
        assert len(excluded.samples[metric]) == 2
    assert summary(excluded)["queries"] == 3  # still asked, still timed


def test_a_split_of_nothing_but_excluded_queries_is_unmeasured(tmp_path: Path) -> None:
    write_beir(tmp_path / "toy", qrels="q1\td1\t0\nq2\td1\t-1\nq4\td1\t0\n")
    bench = Bench(
        tmp_path, metrics=METRICS, calibration=None, rule_queries_without_positives="exclude"
    )
    (split,) = bench.score(RANKINGS).splits
    assert split.scores == dict.fromkeys(METRICS)
    assert set(split.reasons.values()) == {"no query of the split has a relevant document"}


CORPUS = ("d1", "d2", "d3", "d4")


@pytest.mark.parametrize(
    ("top_k", "lengths", "full"),
    [
        (3, (4, 4, 4), True),
        (3, (4, 3, 4), False),
        (3, (3, 4, 4), False),
        (3, (4, 4, 0), False),
        (3, (1, 1, 1), False),
        (4, (1, 2, 0), True),
        (10, (1, 1, 1), True),
    ],
)
def test_map_and_mrr_need_full_rankings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    top_k: int,
    lengths: tuple[int, ...],
    full: bool,
) -> None:
    monkeypatch.setattr(
        "runner.rows.read.BLOCK_ROWS", 1
    )  # a later block may show what the first hid
    bench = Bench(
        tmp_path,
        metrics=("ndcg_at_3", "map", "mrr"),
        primary_metric="ndcg_at_3",
        top_k=top_k,
        calibration=None,
    )
    rankings = {
        query: [(document, -float(rank)) for rank, document in enumerate(CORPUS[:length])]
        for query, length in zip(("q1", "q2", "q4"), lengths, strict=True)
    }
    scores = bench.score(rankings)
    (split,) = scores.splits
    assert split.scores["ndcg_at_3"] is not None
    for metric in ("map", "mrr"):
        assert (split.scores[metric] is not None) is full
        assert (metric in split.reasons) is not full
        assert (metric in split.samples) is full


def test_a_failed_query_does_not_make_rankings_cut(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        metrics=("map", "mrr"),
        primary_metric="map",
        top_k=3,
        calibration=None,
    )
    whole: Ranking = [(document, 1.0) for document in CORPUS]
    (split,) = bench.score({"q1": whole, "q2": whole}, {"q4": "no"}).splits
    assert split.scores["mrr"] == pytest.approx((1 + 1 / 2) / 3)


def random_bench(root: Path, seed: int) -> tuple[Bench, dict[str, Ranking]]:
    """40 queries over 60 documents, with ties, graded and negative judgments, short rankings."""
    source = random.Random(seed)
    documents = [f"{n:02d}" for n in range(60)]
    queries = [str(n) for n in range(40)]
    qrels = "".join(
        f"{query}\t{document}\t{source.choice([-1, 0, 1, 1, 2, 3])}\n"
        for query in queries
        for document in source.sample(documents, source.randint(1, 12))
    )
    write_beir(
        root / "toy",
        documents=[{"_id": document, "text": "x"} for document in documents],
        queries=[{"_id": query, "text": "x"} for query in queries],
        qrels=qrels,
    )
    bench = Bench(
        root,
        metrics=ALL_METRICS,
        top_k=60,
        calibration=10,
        option_expect={},
    )
    rankings: dict[str, Ranking] = {
        query: [(d, float(source.randint(0, 8))) for d in source.sample(documents, size)]
        for query in queries
        for size in [source.choice([0, 1, 5, 20, 60])]
    }
    return bench, rankings


def ranked(ranking: Ranking) -> list[tuple[str, float]]:
    return sorted(ranking, key=lambda pair: (-pair[1], pair[0]))


def test_every_metric_equals_trec_eval(tmp_path: Path) -> None:
    bench, rankings = random_bench(tmp_path, 1)
    names = {
        "ndcg_at_10": "ndcg_cut_10",
        "recall_at_1": "recall_1",
        "recall_at_5": "recall_5",
        "map_at_10": "map_cut_10",
        "success_at_1": "success_1",
        "precision_at_5": "P_5",
        "map": "map",
        "mrr": "recip_rank",
    }
    run = {
        query: {document: -float(rank) for rank, (document, _) in enumerate(ranked(ranking))}
        for query, ranking in rankings.items()
    }
    qrels = {query: dict(grades) for query, grades in bench.dataset.qrels.items()}
    evaluator = pytrec_eval.RelevanceEvaluator(
        qrels, {"ndcg_cut.10", "recall.1,5", "map_cut.10", "success.1", "P.5", "map", "recip_rank"}
    )
    theirs = evaluator.evaluate(run)
    splits = split_ids(bench.dataset, bench.protocol.calibration)
    scores = by_name(bench.score(rankings, splits=("all", "heldout")))
    for name, ids in (("all", splits["all"]), ("heldout", splits["heldout"])):
        for mine, their in names.items():
            values = [theirs[query][their] if query in theirs else 0.0 for query in ids]
            assert scores[name].samples[mine].tolist() == pytest.approx(values, abs=1e-12)
            assert scores[name].scores[mine] == pytest.approx(sum(values) / len(ids), abs=1e-12)


# --- the artifact --------------------------------------------------------------------------------


def test_the_artifact_to_the_byte(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        metrics=("mrr_at_2",),
        primary_metric="mrr_at_2",
        top_k=2,
        calibration=None,
    )
    order = splits_of_all(bench)
    lines = {
        "q1": "q1,d2,0,3.5\nq1,d1,2,2.0\n",
        "q2": "q2,d2,1,1.0\n",
        "q4": "q4,d3,0,0.25\nq4,d4,0,-1.0\n",
    }
    expected = "query_id,document_id,relevance,score\n" + "".join(lines[query] for query in order)
    scores = bench.score(RANKINGS, artifact=tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").read_bytes() == expected.encode()
    assert scores.artifact is not None
    assert scores.artifact.sha256 == hashlib.sha256(expected.encode()).hexdigest()
    assert (scores.artifact.name, scores.artifact.size) == ("scores.csv", len(expected))
    assert [path.name for path in tmp_path.iterdir() if path.suffix not in {".csv", ".jsonl"}] == [
        "toy"
    ]


def test_what_each_query_came_to(tmp_path: Path) -> None:
    metrics = ("mrr_at_2", "recall_at_1", "map")
    bench = Bench(tmp_path, metrics=metrics, primary_metric="mrr_at_2", top_k=2, calibration=None)
    rankings = {query: RANKINGS[query] for query in ("q1", "q4")}
    scores = bench.score(rankings, {"q2": "it broke"}, artifact=tmp_path / "scores.csv")
    data = (tmp_path / "scores.per-query.csv").read_bytes()
    assert scores.per_query is not None
    assert scores.per_query.sha256 == hashlib.sha256(data).hexdigest()
    rows = list(csv.DictReader(data.decode().splitlines()))
    assert [row["query_id"] for row in rows] == list(splits_of_all(bench))
    by_id = {row["query_id"]: row for row in rows}
    assert list(by_id["q1"].values())[1:6] == ["2", "2", "2", "1.5", "0"]
    assert list(by_id["q2"].values())[1:6] == ["1", "1", "0", "", "1"]
    assert {row["map"] for row in rows} == {""}  # rankings are cut: not measured
    (split,) = scores.splits
    for metric in metrics[:2]:
        column = [float(row[metric]) for row in rows]
        assert sum(column) / len(column) == pytest.approx(split.scores[metric], abs=1e-15)


def test_the_artifact_does_not_depend_on_the_order_of_rows_or_documents(tmp_path: Path) -> None:
    bench, rankings = random_bench(tmp_path, 2)
    source = random.Random(3)
    artifacts = []
    for turn in range(3):
        queries = source.sample(sorted(rankings), len(rankings))
        shuffled = {q: source.sample(list(rankings[q]), len(rankings[q])) for q in queries}
        path = tmp_path / f"{turn}.csv"
        artifacts.append(bench.score(shuffled, artifact=path).artifact)
    assert len({artifact.sha256 for artifact in artifacts if artifact}) == 1
    with (tmp_path / "0.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    at = {query: position for position, query in enumerate(splits_of_all(bench))}
    assert rows == sorted(
        rows, key=lambda row: (at[row["query_id"]], -float(row["score"]), row["document_id"])
    )
    assert {(row["query_id"], row["document_id"], float(row["score"])) for row in rows} == {
        (query, document, score)
        for query, ranking in rankings.items()
        for document, score in ranking
    }
    grades = bench.dataset.qrels
    assert all(
        int(row["relevance"]) == grades[row["query_id"]].get(row["document_id"], 0) for row in rows
    )


def test_ids_with_commas_and_quotes_survive_the_artifact(tmp_path: Path) -> None:
    odd = 'a,"b" \u05d0 \U0001fad6'
    write_beir(
        tmp_path / "toy",
        documents=[{"_id": odd, "text": "x"}],
        queries=[{"_id": odd, "text": "x"}],
        qrels=f"{odd}\t{odd}\t1\n",
    )
    bench = Bench(tmp_path, calibration=None, option_expect={})
    bench.score({odd: [(odd, 1e-300)]}, artifact=tmp_path / "scores.csv")
    with (tmp_path / "scores.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows[1:] == [[odd, odd, "1", "1e-300"]]


def test_an_artifact_never_replaces_a_file(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("mine")
    with pytest.raises(FileExistsError):
        bench.score(RANKINGS, artifact=tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").read_text() == "mine"


def test_parts_are_read_as_one_file(bench: Bench, tmp_path: Path) -> None:
    lines = bench.rows(RANKINGS).read_bytes().splitlines(keepends=True)
    parts = []
    for number, line in enumerate(lines):
        parts.append(tmp_path / f"part-{number:05d}.part")
        parts[-1].write_bytes(line)
    whole = bench.score(RANKINGS).splits[0]
    split = score_parts(parts, bench.dataset, bench.protocol, ("all",)).splits[0]
    assert split.scores == whole.scores
    assert split.summary == whole.summary
