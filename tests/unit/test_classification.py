"""Pair metrics: scikit-learn's values to 1e-12, and what it leaves undefined."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import metrics as peer

from runner.metrics.bootstrap import RESAMPLES, draw_counts
from runner.metrics.classification import (
    METRICS,
    Confusion,
    all_metrics,
    all_positive_f1,
    base_rate,
    best_threshold,
    classes,
    confusion,
    decided,
    placements,
    precisions,
    ranked,
)
from runner.metrics.pair_resamples import MAX_RANKED, Sample, replicates, why_none

Arrays = tuple[NDArray[np.float64], NDArray[np.bool_]]


def draw(seed: int, count: int, levels: int | None, share: float = 0.4) -> Arrays:
    source = np.random.default_rng(seed)
    labels = source.random(count) < share
    labels[:2] = True, False
    scores = source.random(count)
    if levels is not None:
        scores = np.floor(scores * levels) / levels
    return scores, labels


def by_peer(scores: NDArray[np.float64], labels: NDArray[np.bool_], at: float) -> dict[str, float]:
    called = scores >= at
    quiet = {"zero_division": 0.0}
    return {
        "average_precision": peer.average_precision_score(labels, scores),
        "auroc": peer.roc_auc_score(labels, scores),
        "f1": peer.f1_score(labels, called, **quiet),
        "precision": peer.precision_score(labels, called, **quiet),
        "recall": peer.recall_score(labels, called, **quiet),
        "accuracy": peer.accuracy_score(labels, called),
    }


@pytest.mark.parametrize("levels", [None, 1, 2, 7, 100])
@pytest.mark.parametrize("count", [2, 3, 17, 460, 5_000])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.99, 1.0])
def test_every_metric_is_the_peers(count: int, levels: int | None, threshold: float) -> None:
    for seed in range(3):
        scores, labels = draw(seed, count, levels)
        found = all_metrics(classes(scores, labels), threshold)
        assert found == pytest.approx(by_peer(scores, labels, threshold), rel=0, abs=1e-12)


def test_one_class_has_no_average_precision_and_no_auroc() -> None:
    scores = np.array([0.2, 0.9, 0.9])
    for labels in (np.ones(3, dtype=bool), np.zeros(3, dtype=bool)):
        found = all_metrics(classes(scores, labels), 0.5)
        assert found["average_precision"] is None
        assert found["auroc"] is None
        assert all(found[name] is not None for name in METRICS[2:])


def test_nothing_out_of_nothing_is_zero() -> None:
    assert decided(Confusion(0, 0, 0, 5)) == {
        "f1": 0.0, "precision": 0.0, "recall": 0.0, "accuracy": 1.0,
    }  # fmt: skip


def test_base_rate_and_the_f1_of_calling_everything_positive() -> None:
    labels = np.arange(460) < 355
    found = classes(np.zeros(460), labels)
    assert base_rate(found) == pytest.approx(0.771739, abs=1e-6)
    assert all_positive_f1(found) == pytest.approx(0.871166, abs=1e-6)


def test_the_two_ranked_metrics_are_means_over_positives_in_any_order() -> None:
    scores, labels = draw(4, 500, 20)
    found = classes(scores, labels)
    metrics = all_metrics(found, 0.5)
    assert precisions(found, scores[labels]).mean() == pytest.approx(metrics["average_precision"])
    assert placements(found, scores[labels]).mean() == pytest.approx(metrics["auroc"])


def slow_best(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """All candidates of the rule, one by one."""
    distinct = sorted(set(scores.tolist()))
    middles = [(a + b) / 2 for a, b in pairwise(distinct)]
    ends: list[float] = [distinct[0] - 1.0, float(np.nextafter(distinct[-1], np.inf))]
    found = classes(scores, labels)

    def key(threshold: float) -> tuple[float, ...]:
        values = decided(confusion(found, threshold))
        return (*(values[n] for n in ("f1", "precision", "recall", "accuracy")), threshold)

    candidates: list[float] = [*distinct, *middles, *ends]
    return max(candidates, key=key)


@pytest.mark.parametrize("levels", [None, 2, 5])
def test_the_fitted_threshold_is_the_best_of_all_candidates(levels: int | None) -> None:
    for seed in range(20):
        scores, labels = draw(seed, 3 + seed, levels)
        assert best_threshold(classes(scores, labels)) == slow_best(scores, labels)


def test_without_positives_the_best_threshold_calls_nothing_positive() -> None:
    found = classes(np.array([0.1, 1.0]), np.array([False, False]))
    assert best_threshold(found) > 1.0


def test_replicates_are_the_metrics_of_the_resampled_pairs() -> None:
    scores, labels = draw(1, 60, 9)
    block = np.arange(60) % 7
    sample = Sample(scores, labels, block)
    found = replicates(sample, METRICS, 0.5, seed=3, position=1)
    counts = np.concatenate(list(draw_counts(7, seed=3, position=1)))
    assert counts.shape == (RESAMPLES, 7)
    for index in (0, 1, 500, 999):
        drawn = np.repeat(np.arange(60), counts[index][block])
        again = all_metrics(classes(scores[drawn], labels[drawn]), 0.5)
        values = {name: found[name][index] for name in METRICS}
        assert values == pytest.approx(again, abs=1e-12)


def test_no_interval_from_one_group_one_class_or_beyond_the_bound() -> None:
    scores, labels = draw(1, 60, 9)
    one = Sample(scores, labels, np.zeros(60, dtype=np.intp))
    assert replicates(one, METRICS, 0.5, seed=0, position=0) == {}
    assert why_none(one, "f1") == "all pairs are of one group, and whole groups are drawn"
    few = Sample(scores, np.arange(60) < 1, np.arange(60))
    assert set(replicates(few, METRICS, 0.5, seed=0, position=0)) == set(METRICS[2:])
    assert why_none(few, "auroc") == "a resample of the pairs holds one class only"
    many = MAX_RANKED + 1
    large = Sample(*draw(1, many, 9), np.arange(many) % 50)
    assert set(replicates(large, METRICS, 0.5, seed=0, position=0)) == set(METRICS[2:])
    assert why_none(large, "average_precision").startswith("60,001 pairs: beyond 60,000 ")


def test_average_precision_of_a_constant_is_the_base_rate() -> None:
    labels = np.arange(10) < 3
    assert ranked(classes(np.full(10, 0.5), labels))[0] == pytest.approx(0.3, abs=1e-15)
