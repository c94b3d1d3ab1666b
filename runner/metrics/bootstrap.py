"""Seeded percentile bootstrap of a mean over queries: equal on every machine, to the last bit.

Two things would differ between machines: numpy's drawing of integers may change with its version,
and a matrix product adds in an order that depends on the processor. So indices come from the raw
PCG64 stream, which numpy guarantees, and values are rounded to a grid so coarse that every partial
sum is exact in double precision, in any order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy import float64
    from numpy.random import PCG64
    from numpy.typing import NDArray

RESAMPLES = 1_000
CONFIDENCE = 0.95
_MANTISSA_BITS = 53
#: Draws held at once: 32 MB of counts or raw numbers.
_BLOCK_DRAWS = 1 << 22


def bootstrap_mean_ci(
    groups: Sequence[NDArray[float64]],
    *,
    seed: int,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> tuple[float, float]:
    """Return (low, high) of the mean of the groups' means: one group of values a dataset.

    Each group is resampled with replacement on its own; one group gives the interval of a plain
    mean. The limits are nearest-rank percentiles of the resampled means. Rounding moves a value by
    at most 2**-(51 - log2 n) of the largest one. Equal seeds and sizes draw equal resamples, so two
    methods on the same queries are compared on the same draws.
    ``ValueError`` for no group, an empty group or values that are not finite.
    """
    import numpy as np

    if not groups:
        raise ValueError("the bootstrap needs a group of values")
    total = np.zeros(resamples)
    for position, values in enumerate(groups):
        stream = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(position,)))
        total += _resampled_means(values, stream, resamples)
    means = np.sort(total / len(groups))
    tail = (1.0 - confidence) / 2.0
    return _nearest_rank(means, tail), _nearest_rank(means, 1.0 - tail)


def _resampled_means(values: NDArray[float64], stream: PCG64, resamples: int) -> NDArray[float64]:
    import numpy as np

    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not len(sample) or not np.isfinite(sample).all():
        raise ValueError("the bootstrap needs 1-D arrays of finite values")
    count = len(sample)
    largest = float(np.abs(sample).max())
    if largest == 0.0:
        return np.zeros(resamples)
    bits = _MANTISSA_BITS - 1 - math.ceil(math.log2(count + 1)) - math.frexp(largest)[1]
    grid = np.rint(np.ldexp(sample, bits))
    sums = np.empty(resamples)
    step = max(1, _BLOCK_DRAWS // count)
    for begin in range(0, resamples, step):
        rows = min(step, resamples - begin)
        sums[begin : begin + rows] = _count_matrix(stream, rows, count) @ grid
    return np.ldexp(sums, -bits) / count


def _count_matrix(stream: PCG64, rows: int, count: int) -> NDArray[float64]:
    """Return how often each of ``count`` values is drawn in each of ``rows`` resamples."""
    import numpy as np

    raw = stream.random_raw(rows * count) >> np.uint64(32)
    # Multiply and shift: a bias below count / 2**32, and no rejected draws.
    drawn = ((raw * np.uint64(count)) >> np.uint64(32)).astype(np.int64).reshape(rows, count)
    drawn += np.arange(rows)[:, None] * count
    counts = np.bincount(drawn.ravel(), minlength=rows * count)
    return counts.reshape(rows, count).astype(np.float64)


def _nearest_rank(ordered: NDArray[float64], fraction: float) -> float:
    # The small term keeps 0.975 * 1000 at rank 975 where binary fractions would say 976.
    rank = math.ceil(fraction * len(ordered) - 1e-9)
    return float(ordered[max(rank, 1) - 1])
