"""Ranking metrics: small tables by hand, and trec_eval on everything that can be generated."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import ProtocolError
from runner.metrics import ranks
from runner.metrics.names import Metric, parse_metric
from runner.metrics.qrels import Qrels
from runner.metrics.ranking import NOT_FULL, RankingScorer, score_rankings
from runner.metrics.ranks import RankedBlock, order_ranking, positive_ranks
from runner.rows.retrieval import RetrievalRow

Run = Mapping[str, Sequence[tuple[str, float]]]
Judgments = Mapping[str, Mapping[str, int]]

NAMES = (
    *(f"ndcg_at_{k}" for k in (1, 3, 10)),
    *(f"recall_at_{k}" for k in (1, 5, 10)),
    *(f"precision_at_{k}" for k in (1, 5, 10)),
    *(f"map_at_{k}" for k in (1, 5, 10)),
    *(f"success_at_{k}" for k in (1, 5, 10)),
    *(f"mrr_at_{k}" for k in (1, 5, 10)),
    "map",
    "mrr",
)
METRICS = tuple(parse_metric(name) for name in NAMES)
TREC_MEASURES = {
    "map",
    "recip_rank",
    "ndcg_cut.1,3,10",
    "recall.1,5,10",
    "P.1,5,10",
    "map_cut.1,5,10",
    "success.1,5,10",
}
TREC_FAMILY = {
    "ndcg": "ndcg_cut",
    "recall": "recall",
    "precision": "P",
    "map": "map_cut",
    "success": "success",
}


def row(query: str, ranking: Sequence[tuple[str, float]], error: str | None = None) -> RetrievalRow:
    documents = [name for name, _ in ranking]
    return RetrievalRow(query, documents, array("d", [s for _, s in ranking]), None, error)


def ours(run: Run, judgments: Judgments) -> dict[str, list[float]]:
    rows = [row(query, ranking) for query, ranking in run.items()]
    scored = score_rankings(rows, Qrels.of(judgments), METRICS, top_k=None, full_rankings=True)
    return dict(zip(scored.query_ids, scored.values.tolist(), strict=True))


def theirs(run: Mapping[str, Mapping[str, float]], judgments: Judgments) -> dict[str, list[float]]:
    """Ask trec_eval; a query that it leaves out has 0 in everything."""
    # It gives a negative grade a negative gain; the rule here is that there is none.
    clamped = {q: {d: max(g, 0) for d, g in graded.items()} for q, graded in judgments.items()}
    found = pytrec_eval.RelevanceEvaluator(clamped, TREC_MEASURES).evaluate(dict(run))
    return {
        query: [trec_value(metric, found.get(query, {})) for metric in METRICS]
        for query in judgments
    }


def trec_value(metric: Metric, found: Mapping[str, float]) -> float:
    if metric.family == "mrr":  # it has none at a cut-off
        value = found.get("recip_rank", 0.0)
        return value if metric.k is None or value >= 1.0 / metric.k else 0.0
    if metric.k is None:
        return found.get(metric.name, 0.0)
    return found.get(f"{TREC_FAMILY[metric.family]}_{metric.k}", 0.0)


def in_order(ranking: Sequence[tuple[str, float]]) -> list[str]:
    return [name for name, _ in sorted(ranking, key=lambda pair: (-pair[1], pair[0]))]


# --- against trec_eval ---------------------------------------------------------------------------

DOCUMENTS = st.sampled_from([f"d{i}" for i in range(30)] + ["é", "Z", "\U0001f600", "\uffff"])
GRADES = st.dictionaries(DOCUMENTS, st.integers(-2, 4), min_size=1, max_size=20)


@st.composite
def rankings(draw: st.DrawFn, scores: st.SearchStrategy[float]) -> list[tuple[str, float]]:
    names = draw(st.lists(DOCUMENTS, unique=True, max_size=34))
    return [(name, draw(scores)) for name in names]


@st.composite
def cases(draw: st.DrawFn, scores: st.SearchStrategy[float]) -> tuple[Run, Judgments]:
    judgments = draw(st.dictionaries(st.sampled_from("abcdef"), GRADES, min_size=1))
    run = {query: draw(rankings(scores)) for query in judgments if draw(st.integers(0, 9))}
    return run, judgments


@settings(max_examples=150, deadline=None)
@given(cases(st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0])))
def test_equal_to_the_last_bit_with_ties(case: tuple[Run, Judgments]) -> None:
    run, judgments = case
    oracle = {
        query: {name: -float(rank) for rank, name in enumerate(in_order(ranking))}
        for query, ranking in run.items()
    }
    assert ours(run, judgments) == theirs(oracle, judgments)


@settings(max_examples=150, deadline=None)
@given(cases(st.integers(-1000, 1000).map(float)))
def test_equal_on_stored_order_and_any_other(case: tuple[Run, Judgments]) -> None:
    run, judgments = case
    by_rule = {
        query: sorted(ranking, key=lambda pair: (-pair[1], pair[0]))
        for query, ranking in run.items()
    }
    assert ours(run, judgments) == ours(by_rule, judgments)


@pytest.mark.parametrize("depth", [5, 100, 1000])
@pytest.mark.parametrize("judged", [1, 6, 60])
@pytest.mark.parametrize("shuffled", [False, True])
def test_equal_on_untied_data(depth: int, judged: int, shuffled: bool) -> None:
    random = np.random.default_rng(depth * judged)
    run: dict[str, list[tuple[str, float]]] = {}
    judgments: dict[str, dict[str, int]] = {}
    for query in range(20):
        names = [f"d{i}" for i in random.permutation(depth)]
        values = random.permutation(depth) / 8.0  # apart even as the float32 that it keeps
        pairs = list(zip(names, values.tolist(), strict=True))
        if not shuffled:
            pairs.sort(key=lambda pair: -pair[1])
        run[f"q{query}"] = pairs
        judgments[f"q{query}"] = {
            f"d{i}": int(random.integers(-1, 4)) for i in random.integers(0, 2 * depth, judged)
        }
    expected = theirs({query: dict(pairs) for query, pairs in run.items()}, judgments)
    found = ours(run, judgments)
    np.testing.assert_allclose(
        np.array(list(found.values())), np.array(list(expected.values())), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("few", [0, 10_000])
def test_counting_and_sorting_find_the_same_ranks(few: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(ranks, "COUNT_AT_MOST", few)
    random = np.random.default_rng(5)
    names = [f"d{i}" for i in random.permutation(400)]
    pairs = list(zip(names, random.integers(0, 12, 400).astype(float).tolist(), strict=True))
    positives = {f"d{i}": 1 + i % 3 for i in range(0, 800, 7)}
    where = {name: rank for rank, name in enumerate(in_order(pairs), 1)}
    expected = sorted((where[n], g) for n, g in positives.items() if n in where)
    assert positive_ranks(row("q", pairs), False, positives, None) == expected
    assert positive_ranks(row("q", pairs), False, positives, 50) == [
        pair for pair in expected if pair[0] <= 50
    ]


# --- by hand -------------------------------------------------------------------------------------

LOG3 = math.log2(3)
HAND: list[tuple[str, list[tuple[str, float]], dict[str, int], dict[str, float]]] = [
    (
        "first of two",
        [("a", 2.0), ("x", 1.0)],
        {"a": 1, "b": 1},
        {"ndcg_at_10": 1 / (1 + 1 / LOG3), "recall_at_10": 0.5, "map": 0.5, "mrr": 1.0},
    ),
    (
        "grades are linear gains",
        [("x", 3.0), ("a", 2.0)],
        {"a": 3},
        {"ndcg_at_10": 1 / LOG3, "ndcg_at_1": 0.0, "success_at_1": 0.0, "success_at_5": 1.0},
    ),
    (
        "a negative grade is no gain and not relevant",
        [("n", 3.0), ("a", 2.0)],
        {"n": -5, "a": 1},
        {"ndcg_at_10": 1 / LOG3, "map": 0.5, "recall_at_1": 0.0, "precision_at_5": 0.2},
    ),
    ("empty ranking", [], {"a": 1}, dict.fromkeys(NAMES, 0.0)),
    ("nothing relevant", [("a", 1.0)], {"a": 0, "b": -1}, dict.fromkeys(NAMES, 0.0)),
    (
        "ties go to the smaller id, by code point",
        [("b", 1.0), ("a", 1.0), ("B", 1.0)],
        {"a": 1},
        {"mrr": 0.5, "mrr_at_1": 0.0, "mrr_at_5": 0.5},
    ),
    (
        "10 before 9, as text",
        [("9", 1.0), ("10", 1.0)],
        {"10": 1},
        {"mrr": 1.0, "success_at_1": 1.0},
    ),
    ("minus zero ties with zero", [("b", 0.0), ("a", -0.0)], {"a": 1}, {"mrr": 1.0}),
    (
        "precision divides by k, however few there are",
        [("a", 1.0)],
        {"a": 1},
        {"precision_at_1": 1.0, "precision_at_5": 0.2, "precision_at_10": 0.1},
    ),
]


@pytest.mark.parametrize(
    ("ranking", "judged", "expected"), [case[1:] for case in HAND], ids=[c[0] for c in HAND]
)
def test_by_hand(
    ranking: list[tuple[str, float]], judged: dict[str, int], expected: dict[str, float]
) -> None:
    found = dict(zip(NAMES, ours({"q": ranking}, {"q": judged})["q"], strict=True))
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-15)


def test_the_protocol_depth_cuts_all_but_full_rankings() -> None:
    ranking = [(f"d{i:02}", 50.0 - i) for i in range(20)]
    qrels = Qrels.of({"q": {"d00": 1, "d04": 1, "d12": 1}})
    scored = score_rankings(
        [row("q", ranking)],
        qrels,
        tuple(map(parse_metric, ("recall_at_10", "precision_at_10", "ndcg_at_10", "map", "mrr"))),
        top_k=3,
        full_rankings=True,
    )
    best = 1 + 1 / LOG3 + 1 / 2
    expected = [1 / 3, 1 / 10, 1 / best, (1 + 2 / 5 + 3 / 13) / 3, 1.0]
    assert scored.values[0].tolist() == pytest.approx(expected, abs=1e-15)


def test_full_ranking_metrics_are_unmeasured_on_cut_rankings() -> None:
    scored = score_rankings(
        [row("q", [("a", 1.0)])],
        Qrels.of({"q": {"a": 1}}),
        tuple(map(parse_metric, ("map", "recall_at_1", "mrr"))),
        top_k=10,
    )
    assert scored.unmeasured == {"map": NOT_FULL, "mrr": NOT_FULL}
    assert (scored.mean("map"), scored.mean("mrr"), scored.column("map")) == (None, None, None)
    assert scored.mean("recall_at_1") == 1.0


def test_failed_and_missing_queries_count_as_zero_and_are_marked() -> None:
    judged = {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}, "d": {"x": 0}}
    rows = [row("c", [("x", 1.0)]), row("b", [], error="gave up"), row("other", [("x", 1.0)])]
    scored = score_rankings(rows, Qrels.of(judged), [parse_metric("recall_at_1")], top_k=10)
    assert scored.query_ids == ("a", "b", "c", "d")
    assert scored.answered.tolist() == [False, True, True, False]
    assert scored.failed.tolist() == [False, True, False, False]
    assert scored.values[:, 0].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert scored.mean("recall_at_1") == 0.25
    assert scored.mean("recall_at_1", [1, 2]) == 0.5
    assert scored.mean("recall_at_1", []) is None
    assert Qrels.of(judged).relevant.tolist() == [1, 1, 1, 0]


def test_blocks_do_not_change_a_bit() -> None:
    random = np.random.default_rng(2)
    judged = {
        f"q{q}": {f"d{i}": int(random.integers(0, 3)) for i in range(0, 40, 3)} for q in range(50)
    }
    rows = [
        row(q, [(f"d{i}", float(random.integers(0, 9))) for i in random.permutation(30)])
        for q in judged
    ]
    whole = score_rankings(rows, Qrels.of(judged), METRICS, top_k=10, full_rankings=True)
    scorer = RankingScorer(Qrels.of(judged), METRICS, top_k=10, full_rankings=True)
    for begin in range(0, 50, 7):
        scorer.add(RankedBlock.of(rows[begin : begin + 7]))
    assert scorer.result().values.tobytes() == whole.values.tobytes()
    scorer.add(RankedBlock.of([]))
    assert scorer.result().values.tobytes() == whole.values.tobytes()


# --- order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [
        ([], True),
        ([("a", 1.0)], True),
        ([("a", 2.0), ("b", 1.0)], True),
        ([("a", 1.0), ("b", 2.0)], False),
        ([("a", 1.0), ("b", 1.0)], True),
        ([("b", 1.0), ("a", 1.0)], False),
        ([("z", 3.0), ("b", 1.0), ("a", 1.0)], False),
        ([("z", 0.0), ("a", -0.0)], False),
    ],
)
def test_stored_order_is_seen(ranking: list[tuple[str, float]], expected: bool) -> None:
    # Neighbours whose scores would look like an order across the border of two rows.
    around = [row("p", [("z", 0.5)]), row("q", ranking), row("r", [("a", 9.0)])]
    assert RankedBlock.of(around).ordered.tolist() == [True, expected, True]


@given(rankings(st.sampled_from([1.0, 2.0, 3.0])), st.none() | st.integers(1, 40))
def test_the_first_k_are_the_sorted_ones(ranking: list[tuple[str, float]], k: int | None) -> None:
    expected = sorted(ranking, key=lambda pair: (-pair[1], pair[0]))[:k]
    assert order_ranking([n for n, _ in ranking], [s for _, s in ranking], k) == expected
    assert RankedBlock.of([row("q", ranking)]).top(0, k) == expected


def test_ordered_rankings_are_handed_on_as_they_are() -> None:
    block = RankedBlock.of([row("q", [("b", 2.0), ("a", 1.0), ("c", 1.0)])])
    assert block.top(0, 2) == [("b", 2.0), ("a", 1.0)]


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "family", "k"),
    [
        ("ndcg_at_10", "ndcg", 10),
        ("success_at_1", "success", 1),
        ("mrr_at_1000000", "mrr", 1_000_000),
        ("map", "map", None),
        ("mrr", "mrr", None),
    ],
)
def test_metric_names(name: str, family: str, k: int | None) -> None:
    metric = parse_metric(name)
    assert (metric.name, metric.family.value, metric.k, metric.full) == (name, family, k, k is None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ncdg_at_10", "did you mean 'ndcg_at_10'?"),
        ("recal_at_5", "did you mean 'recall_at_5'?"),
        ("ndcg@10", "did you mean 'ndcg_at_10'?"),
        ("mapp", "did you mean 'map'?"),
        ("ndcg", "such as ndcg_at_10"),
        ("ndcg_at_0", "from 1 to 1000000"),
        ("ndcg_at_01", "from 1 to 1000000"),
        ("ndcg_at_1000001", "from 1 to 1000000"),
        ("ndcg_at_10\n", "from 1 to 1000000"),
        ("auroc", "use one of: ndcg_at_10"),
        ("", "use one of: ndcg_at_10"),
    ],
)
def test_unknown_metric_names_say_what_there_is(name: str, words: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_metric(name)
    assert caught.value.code == "metric.unknown"
    assert words in f"{caught.value.message} {caught.value.fix}"
