"""The expertise metrics: by hand, against plain loops, and on the released predictions."""

from __future__ import annotations

import csv
import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from runner.errors import ProtocolError
from runner.metrics.bootstrap import percentile_interval, resampled_sums
from runner.metrics.direction import lower_is_better
from runner.metrics.expertise_names import is_metric
from runner.metrics.kendall import RatedPairs, RatedPapers, Ratio, replicates
from runner.metrics.top_papers import Judge, ranks
from runner.tasks.opaque import opaque

Table = list[dict[str, float]]
CUTS = (1, 3, 5, 7)
PLAIN = ("wkt_loss", "easy_accuracy", "hard_accuracy")
EVERY = (
    *PLAIN,
    *(f"{name}_at_{k}" for name in ("wktd", "wktd_mean", "mrr", "ndcg", "precision") for k in CUTS),
)


def judged(ratings: Table, scores: Table, metrics: tuple[str, ...] = EVERY) -> dict[str, Ratio]:
    judge = Judge.of(RatedPapers.of(ratings), metrics)
    return judge.ratios(column(scores))


def column(scores: Table) -> np.ndarray:
    return np.array([one[paper] for one in scores for paper in sorted(one)], dtype=float)


def values(ratings: Table, scores: Table) -> dict[str, float | None]:
    return {name: ratio.value() for name, ratio in judged(ratings, scores).items()}


def test_one_reviewer_by_hand() -> None:
    ratings = [{"a": 5.0, "b": 4.0, "c": 2.0}]
    scores = [{"a": 0.1, "b": 0.2, "c": 0.1}]
    # a-b reversed costs 1; a-c (gap 3) tied costs 1.5; b-c is right. All gaps: 1 + 3 + 2.
    found = values(ratings, scores)
    assert found["wkt_loss"] == 2.5 / 6
    assert found["easy_accuracy"] == 1 / 2  # a-c tied, b-c right
    assert found["hard_accuracy"] == 0.0  # a-b
    # Predicted order: b, then a before c by id. True order: a, b, c.
    assert found["mrr_at_1"] == 1 / 2
    assert found["mrr_at_3"] == (1 / 2 + 1 + 1 / 3) / 3
    assert found["precision_at_1"] == 0.0
    assert found["precision_at_3"] == 1.0
    assert found["ndcg_at_1"] == 4 / 5
    gain = 4 + 5 / np.log2(3) + 2 / 2
    assert found["ndcg_at_3"] == pytest.approx(gain / (5 + 4 / np.log2(3) + 2 / 2), abs=1e-15)
    assert found["wktd_at_1"] == 1 / 3  # the pairs with b: a-b reversed, b-c right
    assert found["wktd_mean_at_1"] == 1 / 3
    assert found["wktd_at_3"] == 2.5 / 6


def test_one_global_ratio_is_no_mean_of_ratios() -> None:
    ratings = [{"a": 1.0, "b": 5.0}, {"a": 3.0, "b": 4.0}]
    scores = [{"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 0.0}]
    found = values(ratings, scores)
    assert found["wkt_loss"] == 1 / 5
    assert found["wktd_at_1"] == 1 / 5
    assert found["wktd_mean_at_1"] == 1 / 2


def test_tiny_differences_are_no_ties() -> None:
    ratings = [{"a": 5.0, "b": 1.0}]
    tiny = 5e-324
    assert values(ratings, [{"a": tiny, "b": 0.0}])["wkt_loss"] == 0.0
    assert values(ratings, [{"a": 0.0, "b": tiny}])["wkt_loss"] == 1.0
    assert values(ratings, [{"a": tiny, "b": tiny}])["wkt_loss"] == 0.5
    assert values(ratings, [{"a": 1e300, "b": -1e300}])["wkt_loss"] == 0.0


def test_what_cannot_be_counted_is_none() -> None:
    alone = [{"a": 5.0}, {"b": 3.0, "c": 3.0}]
    found = values(alone, [{"a": 0.0}, {"b": 0.0, "c": 1.0}])
    assert found["wkt_loss"] is found["easy_accuracy"] is found["hard_accuracy"] is None
    assert found["wktd_at_3"] is found["wktd_mean_at_3"] is None
    assert found["precision_at_1"] == 1.0  # c before b: by id downwards in truth, by score
    assert replicates(judged(alone, [{"a": 0.0}, {"b": 0.0, "c": 1.0}]), seed=0).keys() == {
        f"{name}_at_{k}" for name in ("mrr", "ndcg", "precision") for k in CUTS
    }


def made_up(seed: int) -> tuple[Table, Table]:
    source = random.Random(seed)
    ratings: Table = [
        {f"p{n}": 1 + source.randrange(17) / 4 for n in range(source.randrange(1, 11))}
        for _ in range(source.randrange(2, 12))
    ]
    scores = [{paper: source.randrange(6) / 7 for paper in one} for one in ratings]
    return ratings, scores


def plain_loss(ratings: Table, scores: Table) -> float | None:
    loss = norm = 0.0
    for rated, scored in zip(ratings, scores, strict=True):
        for one, other in combinations(rated, 2):
            gap = abs(rated[one] - rated[other])
            norm += gap
            if scored[one] == scored[other]:
                loss += gap / 2
            elif (scored[one] > scored[other]) != (rated[one] > rated[other]):
                loss += gap
    return loss / norm if norm else None


@pytest.mark.parametrize("seed", range(20))
def test_the_loss_and_its_resamples_are_those_of_plain_loops(seed: int) -> None:
    ratings, scores = made_up(seed)
    ratio = judged(ratings, scores, ("wkt_loss",))["wkt_loss"]
    assert ratio.value() == plain_loss(ratings, scores)
    counts = resampled_sums(np.eye(len(ratings)), seed=seed, resamples=50)
    again = []
    for row in counts.tolist():
        chosen = [who for who, times in enumerate(row) for _ in range(int(times))]
        again.append(plain_loss([ratings[w] for w in chosen], [scores[w] for w in chosen]))
    found = replicates({"wkt_loss": ratio}, seed=seed, resamples=50).get("wkt_loss")
    if found is None:
        assert None in again
    else:
        assert found.tolist() == again  # to the last bit


@pytest.mark.parametrize("seed", range(20))
def test_metrics_at_k_are_those_of_plain_loops(seed: int) -> None:
    ratings, scores = made_up(seed)
    found = values(ratings, scores)
    for k in CUTS:
        precision, mrr, ndcg = [], [], []
        for rated, scored in zip(ratings, scores, strict=True):
            true = sorted(sorted(rated, reverse=True), key=lambda p: -rated[p])
            said = sorted(scored, key=lambda p: (-scored[p], p))
            precision.append(len({*true[:k]} & {*said[:k]}) / k)
            mrr.append(sum(1 / (said.index(p) + 1) for p in true[:k]) / len(true[:k]))
            gains = [
                sum(rated[p] / np.log2(i + 2) for i, p in enumerate(order[:k]))
                for order in (said, true)
            ]
            ndcg.append(gains[0] / gains[1])
        for name, mine in (("precision", precision), ("mrr", mrr), ("ndcg", ndcg)):
            assert found[f"{name}_at_{k}"] == pytest.approx(sum(mine) / len(mine), abs=1e-14)


def test_equal_draws_for_every_version_and_method() -> None:
    ratings, scores = made_up(3)
    ratios = judged(ratings, scores)
    one, two = replicates(ratios, seed=5), replicates({"wkt_loss": ratios["wkt_loss"]}, seed=5)
    assert one["wkt_loss"].tolist() == two["wkt_loss"].tolist()
    assert one["wkt_loss"].tolist() != replicates(ratios, seed=6)["wkt_loss"].tolist()
    same = {"difference": ratios["wkt_loss"]}
    assert (one["wkt_loss"] - replicates(same, seed=5)["difference"]).any() == np.False_


def test_intervals_interpolate_as_numpy_does() -> None:
    numbers = np.arange(1000.0)
    assert percentile_interval(numbers, linear=True) == tuple(
        np.percentile(numbers, [2.5, 97.5]).tolist()
    )
    assert percentile_interval(numbers) == (24.0, 974.0)


def test_ranks_break_ties_by_id() -> None:
    papers = RatedPapers.of([{"b": 1.0, "a": 2.0, "c": 2.0}, {"z": 1.0}])
    assert ranks(papers, np.array([0.0, 0.0, 1.0, 9.0])).tolist() == [2, 3, 1, 1]


def test_ties_are_reported() -> None:
    ratings: Table = [{"a": 5.0, "b": 5.0, "c": 1.0}, {"a": 1.0, "b": 2.0}]
    judge = Judge.of(RatedPapers.of(ratings), ("mrr_at_1", "ndcg_at_3", "mrr_at_2"))
    assert judge.ties(column([{"a": 0.0, "b": 0.0, "c": 0.0}, {"a": 0.5, "b": 0.25}])) == {
        "pairs": 4,
        "pairs_tied_in_truth": 1,
        "pairs_tied_in_scores": 3,
        "at_k": [
            {"k": 1, "in_truth": 1, "in_scores": 1},
            {"k": 2, "in_truth": 0, "in_scores": 1},
            {"k": 3, "in_truth": 0, "in_scores": 0},
        ],
    }


@pytest.mark.parametrize(
    "name", ["wkt", "mrr", "ndcg_at_0", "wktd_at_", "mrr_at_1001", "recall_at_5", "ndcg_at_03"]
)
def test_no_metric_of_this_task(name: str) -> None:
    assert not is_metric(name)
    with pytest.raises(ProtocolError, match="no expertise metric"):
        Judge.of(RatedPapers.of([{"a": 1.0}]), [name])


def test_losses_are_better_when_lower() -> None:
    lower = [name for name in EVERY if lower_is_better(name)]
    assert lower == [name for name in EVERY if name.startswith("wkt")]
    assert not lower_is_better("ndcg_at_10")


#: Mean over the ten versions: loss, easy, hard.
PUBLISHED = {
    "tpms": (0.281058, 0.800383, 0.621823, (0.231, 0.334)),
    "elmo": (0.344692, 0.702682, 0.572182, (0.289, 0.402)),
    "specter": (0.268889, 0.852490, 0.566667, (0.212, 0.336)),
    "constant": (0.5, 0.0, 0.0, (0.5, 0.5)),
}


@pytest.mark.parametrize("method", PUBLISHED)
def test_the_released_predictions_reach_the_published_figures(
    method: str, reviewer_root: Path
) -> None:
    folder = reviewer_root / "reviewer-gold"
    rated = real_ratings(folder)
    papers = RatedPapers.of(list(rated.values()))
    judge = Judge.of(papers, PLAIN)
    assert len(judge.pairs.gap) == 1841
    assert int((judge.pairs.gap == 0).sum()) == 188
    assert (int(judge.pairs.easy.sum()), int(judge.pairs.hard.sum())) == (261, 417)
    with (folder / "predictions" / f"{method}_d_20_ta.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    names = opaque("paper", sorted({row["paper"] for row in rows}), "x")
    versions = [name for name in rows[0] if name.startswith("d_20_")]
    totals, draws = dict.fromkeys(PLAIN, 0.0), np.zeros(1000)
    for version in versions:
        scores: dict[str, dict[str, float]] = {}
        for row in rows:
            scores.setdefault(row["reviewer"], {})[names[row["paper"]]] = float(row[version])
        ratios = judge.ratios(column([scores[who] for who in rated]))
        for name in PLAIN:
            totals[name] += (ratios[name].value() or 0.0) / len(versions)
        draws += replicates({"loss": ratios["wkt_loss"]}, seed=0)["loss"] / len(versions)
    expected = PUBLISHED[method]
    for name, value in zip(PLAIN, expected[:3], strict=True):
        assert totals[name] == pytest.approx(value, abs=1e-6)
    assert percentile_interval(draws, linear=True) == pytest.approx(expected[3], abs=0.012)


def real_ratings(folder: Path) -> dict[str, dict[str, float]]:
    with (folder / "evaluations.csv").open(newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t"))[1:]
    names = opaque("paper", sorted({p for row in rows for p in row[1:11] if p}), "x")
    return {
        row[0]: {names[p]: float(e) for p, e in zip(row[1:11], row[11:], strict=True) if p}
        for row in sorted(rows)
    }


def test_a_constant_gains_nothing_from_ties_in_truth() -> None:
    ratings: Table = [{"a": 5.0, "b": 5.0, "c": 1.0}]
    found = values(ratings, [dict.fromkeys("abc", 0.0)])
    assert found["mrr_at_1"] == 1 / 2  # b is the best in truth, a on top of the scores
    assert found["precision_at_1"] == 0.0


def test_column_order_would_lift_a_constant_scorer(reviewer_root: Path) -> None:
    """Why ids are opaque: the order of the published columns alone is better than chance.

    With one direction for ties in scores and ratings, a constant would get MRR@1 .555 there.
    """
    with (reviewer_root / "reviewer-gold" / "evaluations.csv").open(newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t"))[1:]
    ratings: Table = [{f"{n:02d}": float(e) for n, e in enumerate(row[11:]) if e} for row in rows]
    scores = [dict.fromkeys(one, 1.0) for one in ratings]
    assert values(ratings, scores)["mrr_at_1"] == pytest.approx(0.348, abs=0.001)
    by_column = [{paper: -float(paper) for paper in one} for one in ratings]
    assert values(ratings, by_column)["wkt_loss"] == pytest.approx(0.391, abs=0.001)


def test_pairs_stay_within_a_reviewer() -> None:
    pairs = RatedPairs.of(RatedPapers.of([{"a": 1.0, "b": 2.0}, {"c": 5.0}, {"a": 3.0, "d": 3.0}]))
    assert list(zip(pairs.left, pairs.right, strict=True)) == [(0, 1), (3, 4)]
    assert pairs.owner.tolist() == [0, 2]
