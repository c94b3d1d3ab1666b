"""Seeded percentile bootstrap of a mean over queries: equal on every machine, to the last bit.

Two things would differ between machines: numpy's drawing of integers may change with its version,
and a matrix product adds in an order that depends on the processor. So indices come from the raw
PCG64 stream, which numpy guarantees, and values are rounded to a grid so coarse that every partial
sum is exact in double precision, in any order.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy import float64
    from numpy.typing import NDArray

RESAMPLES = 1_000
CONFIDENCE = 0.95
_MANTISSA_BITS = 53
#: Draws made at once: the scratch arrays of more would leave the processor's cache.
_BLOCK_DRAWS = 1 << 18
#: Every metric and method on the same queries uses the same draws: keep them, 2 bytes each, in at
#: most 64 MB for up to 524 queries and 32 MB for up to 8,388.
_TINY_DRAWS, _TINY_KEPT = 1 << 17, 4
_SMALL_DRAWS, _SMALL_KEPT = 1 << 19, 64
_LARGE_DRAWS, _LARGE_KEPT = 1 << 23, 2


def resampled_sums(
    columns: NDArray[float64], *, seed: int, position: int = 0, resamples: int = RESAMPLES
) -> NDArray[float64]:
    """Return the sum of each column on each resample of the rows: (resamples, columns).

    ``columns`` is (rows, columns). Equal seeds, positions and numbers of rows draw equal resamples,
    so two methods on the same queries are compared on the same draws; ``position`` tells groups of
    one seed apart, such as the datasets of a benchmark. Exact where a column's values are multiples
    of one power of two, as the counts and quarter points of ratings are; else rounding moves a
    value by at most 2**-(51 - log2 rows) of the largest one.
    ``ValueError`` for no rows or values that are not finite.
    """
    import numpy as np

    table = np.asarray(columns, dtype=np.float64)
    if table.ndim != 2 or not len(table) or not np.isfinite(table).all():
        raise ValueError("the bootstrap needs a table of finite values with at least one row")
    largest = np.abs(table).max(axis=0)
    spare = _MANTISSA_BITS - 1 - math.ceil(math.log2(len(table) + 1))
    bits = spare - np.frexp(largest)[1]
    grid = np.rint(np.ldexp(table, bits))
    draws = _Draws(seed, position, len(table), resamples)
    if len(table) * resamples <= _TINY_DRAWS:
        sums = _kept_tiny(draws) @ grid
    else:
        sums = np.concatenate([counts.astype(np.float64) @ grid for counts in _counts(draws)])
    return np.asarray(np.ldexp(sums, -bits), dtype=np.float64)


def draw_counts(
    size: int, *, seed: int, position: int = 0, resamples: int = RESAMPLES
) -> Iterable[NDArray[Any]]:
    """Return blocks of the count matrix (resamples x size): how often each item is drawn.

    The draws are those of ``resampled_sums`` for as many rows.
    """
    return _counts(_Draws(seed, position, size, resamples))


def percentile_interval(
    replicates: NDArray[float64], confidence: float = CONFIDENCE, *, linear: bool = False
) -> tuple[float, float]:
    """Return the percentile interval of a statistic's values on the resamples.

    Limits are values of the nearest rank, or with ``linear`` interpolated as numpy does by default.
    """
    import numpy as np

    if linear:
        # Rounded: 0.025 and not 0.02500000000000002, as anybody would ask numpy for it.
        tails = [round((1.0 + sign * confidence) / 2.0, 12) for sign in (-1.0, 1.0)]
        low, high = np.quantile(replicates, tails)
        return float(low), float(high)

    ordered = np.sort(replicates)
    tail = (1.0 - confidence) / 2.0
    return _nearest_rank(ordered, tail), _nearest_rank(ordered, 1.0 - tail)


class _Draws(NamedTuple):
    """Which resamples: those of the group at ``position`` with ``size`` values."""

    seed: int
    position: int
    size: int
    resamples: int


def _counts(draws: _Draws) -> Iterable[NDArray[Any]]:
    """Return blocks of the count matrix, resamples x values: how often each value is drawn."""
    total = draws.size * draws.resamples
    if total <= _SMALL_DRAWS:
        return _kept_small(draws)
    return _kept_large(draws) if total <= _LARGE_DRAWS else _drawn(draws)


@lru_cache(maxsize=_TINY_KEPT)
def _kept_tiny(draws: _Draws) -> NDArray[float64]:
    """The count matrix as numbers that a product takes without converting them."""
    import numpy as np

    return np.concatenate([counts.astype(np.float64) for counts in _counts(draws)])


@lru_cache(maxsize=_SMALL_KEPT)
def _kept_small(draws: _Draws) -> tuple[NDArray[Any], ...]:
    return tuple(_drawn(draws))


@lru_cache(maxsize=_LARGE_KEPT)
def _kept_large(draws: _Draws) -> tuple[NDArray[Any], ...]:
    return tuple(_drawn(draws))


def _drawn(draws: _Draws) -> Iterator[NDArray[Any]]:
    import numpy as np

    count = draws.size
    stream = np.random.PCG64(np.random.SeedSequence(draws.seed, spawn_key=(draws.position,)))
    kind = np.uint16 if count < 1 << 16 else np.uint32
    step = max(1, _BLOCK_DRAWS // count)
    for begin in range(0, draws.resamples, step):
        rows = min(step, draws.resamples - begin)
        raw = stream.random_raw(rows * count) >> np.uint64(32)
        # Multiply and shift: a bias below count / 2**32, and no rejected draws.
        drawn = ((raw * np.uint64(count)) >> np.uint64(32)).astype(np.int64).reshape(rows, count)
        drawn += np.arange(rows)[:, None] * count
        counts = np.bincount(drawn.ravel(), minlength=rows * count)
        yield counts.reshape(rows, count).astype(kind)


def _nearest_rank(ordered: NDArray[float64], fraction: float) -> float:
    # The small term keeps 0.975 * 1000 at rank 975 where binary fractions would say 976.
    rank = math.ceil(fraction * len(ordered) - 1e-9)
    return float(ordered[max(rank, 1) - 1])
