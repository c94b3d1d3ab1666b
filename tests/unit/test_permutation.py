"""Paired permutation tests against plain enumeration, and Holm's correction."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from runner.metrics.permutation import (
    EXACT_BLOCKS,
    MAX_BLOCKS,
    PERMUTATIONS,
    Contest,
    Terms,
    bootstrap_p_value,
    holm,
    p_values,
)


def mean_terms(values: NDArray[np.float64]) -> Terms:
    return Terms(values, np.ones(len(values)))


def enumerate_means(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    observed = abs(first.mean() - second.mean())
    hits = 0
    for swap in product((False, True), repeat=len(first)):
        one = np.where(swap, second, first).mean()
        other = np.where(swap, first, second).mean()
        hits += abs(one - other) >= observed - 1e-12
    return float(hits / 2 ** len(first))


@pytest.mark.parametrize("count", [1, 2, 7, EXACT_BLOCKS])
def test_few_blocks_are_enumerated(count: int) -> None:
    source = np.random.default_rng(count)
    for _ in range(5):
        first, second = source.random(count), source.random(count) * 0.7
        contest = Contest([mean_terms(first)], [mean_terms(second)])
        assert p_values([contest], seed=1) == pytest.approx([enumerate_means(first, second)])


def test_many_blocks_are_sampled_close_to_scipys_p_value() -> None:
    source = np.random.default_rng(8)
    for shift in (0.0, 0.03, 0.3):
        first = source.random(80)
        second = first + source.normal(shift, 0.15, 80)
        (found,) = p_values([Contest([mean_terms(first)], [mean_terms(second)])], seed=4)
        peer = stats.permutation_test(
            (first - second,), np.mean, permutation_type="samples", n_resamples=9_999, rng=1
        )
        assert found == pytest.approx(peer.pvalue, abs=0.03)
        assert found >= 1 / (PERMUTATIONS + 1)


def test_equal_methods_are_never_parted_and_seeds_decide_the_draws() -> None:
    values = np.random.default_rng(3).random(50)
    same = Contest([mean_terms(values)], [mean_terms(values)])
    assert p_values([same], seed=0) == [1.0]
    other = Contest([mean_terms(values)], [mean_terms(values[::-1] + 0.01)])
    assert p_values([other], seed=0) == p_values([other], seed=0)
    assert p_values([same, other], seed=0)[1] == p_values([other], seed=0)[0]


def test_quotients_whose_denominators_move_are_exchanged_whole() -> None:
    source = np.random.default_rng(2)
    parts = [
        Terms(
            source.integers(0, 5, 6).astype(np.float64), source.integers(5, 9, 6).astype(np.float64)
        )
        for _ in "ab"
    ]
    observed = abs(_quotient(parts[0]) - _quotient(parts[1]))
    hits = 0
    for swap in product((False, True), repeat=6):
        one = Terms(*(np.where(swap, parts[1][k], parts[0][k]) for k in (0, 1)))
        two = Terms(*(np.where(swap, parts[0][k], parts[1][k]) for k in (0, 1)))
        hits += abs(_quotient(one) - _quotient(two)) >= observed - 1e-12
    assert p_values([Contest([parts[0]], [parts[1]])], seed=0) == pytest.approx([hits / 64])


def _quotient(terms: Terms) -> float:
    whole = float(terms.denominators.sum())
    return float(terms.numerators.sum()) / whole if whole else 0.0


def test_datasets_weigh_alike_whatever_their_sizes() -> None:
    small, large = np.array([1.0, 0.0]), np.full(8, 0.5)
    better = Contest(
        [mean_terms(small + 1), mean_terms(large)], [mean_terms(small), mean_terms(large)]
    )
    assert p_values([better], seed=0) == pytest.approx([0.5])


def test_shared_blocks_are_exchanged_in_every_dataset_or_in_none() -> None:
    source = np.random.default_rng(5)
    versions = [source.random((2, 6)) for _ in range(3)]
    contest = Contest(
        [mean_terms(first) for first, _ in versions],
        [mean_terms(second) for _, second in versions],
        shared=True,
    )
    # Versions of one size have one denominator: the mean over them is one sample of six.
    means = np.mean(versions, axis=0)
    assert p_values([contest], seed=0) == pytest.approx([enumerate_means(means[0], means[1])])
    apart = contest._replace(shared=False)
    assert p_values([apart], seed=0) != p_values([contest], seed=0)


def test_a_great_many_blocks_are_joined() -> None:
    source = np.random.default_rng(6)
    first = source.random(3 * MAX_BLOCKS)
    second = first + 0.05 + source.normal(0, 0.1, len(first))
    (found,) = p_values([Contest([mean_terms(first)], [mean_terms(second)])], seed=0)
    assert found == 1 / (PERMUTATIONS + 1)


def test_holm_by_hand() -> None:
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_the_bootstrap_counts_how_often_the_sign_turns() -> None:
    assert bootstrap_p_value(np.full(1_000, 0.1)) == pytest.approx(2 / 1_001)
    assert bootstrap_p_value(np.array([-1.0, 1.0] * 500)) == 1.0
    assert bootstrap_p_value(np.zeros(10)) == 1.0
