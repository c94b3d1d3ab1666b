"""The bootstrap interval: the same bits everywhere, and an interval that means what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.comparisons import aggregate_replicates
from runner.metrics import bootstrap
from runner.metrics.bootstrap import RESAMPLES, percentile_interval
from runner.replicates import Replicates
from runner.tasks.api import SplitScore

FINITE = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)


def interval(groups: list[np.ndarray], seed: int) -> tuple[float, float] | None:
    """The interval of the mean of the groups' means, as results.json has it; None without."""
    scores = [
        [SplitScore(split="all", queries=len(values), scores={"m": None}, samples={"m": values})]
        for values in groups
    ]
    total, linear = aggregate_replicates(scores, "m", Replicates(seed))
    return None if total is None else percentile_interval(total, linear=linear)


def limits(groups: list[np.ndarray], seed: int) -> tuple[float, float]:
    found = interval(groups, seed)
    assert found is not None
    return found


def test_frozen_figures() -> None:
    """A change here changes every published interval: it needs a new rules version."""
    values = np.arange(300) / 299.0
    assert interval([values], seed=7) == (0.4693534002229679, 0.53304347826087)
    assert interval([values], seed=8) != interval([values], seed=7)


def test_agrees_with_the_plain_way_of_computing_it() -> None:
    values = np.random.default_rng(1).random(50)
    stream = np.random.PCG64(np.random.SeedSequence(3, spawn_key=(0,)))
    means = []
    for _ in range(RESAMPLES):
        drawn = [int((int(raw) >> 32) * 50 >> 32) for raw in stream.random_raw(50)]
        means.append(math.fsum(values[i] for i in drawn) / 50)
    means.sort()
    low, high = limits([values], seed=3)
    assert low == pytest.approx(means[24], abs=1e-13)
    assert high == pytest.approx(means[974], abs=1e-13)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = bootstrap._Draws(seed=1, position=0, size=333, resamples=100)
    whole = np.concatenate(list(bootstrap._drawn(draws)))
    monkeypatch.setattr(bootstrap, "_BLOCK_DRAWS", 1000)
    assert np.array_equal(np.concatenate(list(bootstrap._drawn(draws))), whole)
    assert whole.sum(axis=1).tolist() == [333] * 100


@pytest.mark.parametrize("size", [10, 600])
def test_kept_draws_are_the_drawn_ones(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random(size)
    kept = interval([values, values], seed=1)
    assert interval([values, values], seed=1) == kept
    monkeypatch.setattr(bootstrap, "_SMALL_DRAWS", 0)
    monkeypatch.setattr(bootstrap, "_LARGE_DRAWS", 0)
    assert interval([values, values], seed=1) == kept


def test_order_of_the_sum_does_not_matter() -> None:
    values = np.random.default_rng(1).random(333)
    draws = bootstrap._Draws(seed=1, position=0, size=333, resamples=100)
    counts = np.concatenate(list(bootstrap._drawn(draws)))
    backwards = counts[:, ::-1].astype(float) @ np.rint(np.ldexp(values, 43))[::-1]
    one_by_one = [
        math.fsum(c * v for c, v in zip(row, np.rint(np.ldexp(values, 43)), strict=True))
        for row in counts.tolist()
    ]
    assert backwards.tolist() == one_by_one


def test_width_is_that_of_the_normal_approximation() -> None:
    values = np.random.default_rng(4).random(2000)
    low, high = limits([values], seed=0)
    expected = 2 * 1.96 * values.std() / math.sqrt(2000)
    assert high - low == pytest.approx(expected, rel=0.1)
    assert low < values.mean() < high


def test_groups_count_alike_whatever_their_size() -> None:
    low, high = limits([np.zeros(5), np.ones(1000)], seed=0)
    assert (low, high) == (0.5, 0.5)


@given(st.lists(FINITE, min_size=1, max_size=40), st.integers(0, 2**32))
def test_the_interval_lies_within_the_values(values: list[float], seed: int) -> None:
    low, high = limits([np.array(values)], seed)
    slack = 1e-12 * max(abs(value) for value in values)
    assert min(values) - slack <= low <= high <= max(values) + slack


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-300, 1e300])
def test_equal_values_have_no_width(value: float) -> None:
    low, high = limits([np.full(7, value)], seed=0)
    assert low == high == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "groups",
    [[np.array([1.0, math.nan])], [np.array([math.inf])]],
)
def test_non_finite_values_are_refused(groups: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match="bootstrap needs"):
        interval(groups, seed=0)


def test_a_group_without_values_has_no_interval() -> None:
    assert interval([np.array([])], seed=0) is None
    assert interval([np.ones(3), np.array([])], seed=0) is None
