"""Could chance have given this difference? Paired permutation tests over blocks, exact if few.

Where two methods are equally good, their answers on a block (a query, a group of pairs) could as
well be exchanged. All exchanges are enumerated where there are at most ``EXACT_BLOCKS`` blocks,
else ``PERMUTATIONS`` are drawn, the same ones for every comparison on the same blocks and on every
machine. A metric is a quotient of sums over blocks, a mean being the simplest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

PERMUTATIONS = 9_999
EXACT_BLOCKS = 12
#: More blocks are joined to so many: a test on coarser blocks is as valid, and bounded.
MAX_BLOCKS = 4_000
#: Differences this close are equal: two machines may add in another order.
TOLERANCE = 1e-10
_CHUNK_CELLS = 1 << 22


class Terms(NamedTuple):
    """A metric of one method on one dataset: sum of numerators / sum of denominators."""

    numerators: NDArray[float64]
    denominators: NDArray[float64]


class Contest(NamedTuple):
    """Two methods on one metric: their terms on every dataset, in the same order.

    ``shared``: a block is the same thing in every dataset (a reviewer in ten versions of the
    profiles), so it is exchanged in all of them or in none.
    """

    first: Sequence[Terms]
    second: Sequence[Terms]
    shared: bool = False

    def blocks(self) -> int:
        """Number of blocks that are exchanged, once joined."""
        sizes = [min(len(terms.numerators), MAX_BLOCKS) for terms in self.first]
        return sizes[0] if self.shared else sum(sizes)


def p_values(contests: Sequence[Contest], *, seed: int) -> list[float]:
    """Return the two-sided p-value of each contest; all are over the same blocks, all shared
    between datasets or none.

    The statistic is the mean over datasets of the difference of the two quotients.
    """
    import numpy as np

    if not contests:
        return []
    sizes = [len(terms.numerators) for terms in contests[0].first]
    joined = [_Joined.of(contest) for contest in contests]
    observed = np.abs([one.difference() for one in joined])
    gains = np.stack([one.numerator_gain for one in joined], axis=1)
    moves = np.stack([one.denominator_gain for one in joined], axis=1)
    fixed = not moves.any()
    hits = np.zeros(len(contests), dtype=np.int64)
    total = 0
    starts, shared = _starts(sizes), contests[0].shared
    blocks = starts[1] if shared else starts[-1]
    for swaps in _swaps(blocks, seed):
        total += len(swaps)
        statistic = np.zeros((len(swaps), len(contests)))
        for at, (begin, end) in enumerate(pairwise(starts)):
            part = swaps if shared else swaps[:, begin:end]
            shift = part @ gains[begin:end]
            move = 0.0 if fixed else part @ moves[begin:end]
            ends = np.array([one.totals[at] for one in joined])
            statistic += _quotient(ends[:, 0] + shift, ends[:, 1] + move)
            statistic -= _quotient(ends[:, 2] - shift, ends[:, 3] - move)
        hits += (np.abs(statistic / len(sizes)) >= observed - TOLERANCE).sum(axis=0)
    exact = blocks <= EXACT_BLOCKS
    found = hits / total if exact else (hits + 1) / (total + 1)
    return [float(value) for value in found]


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's method: the family's error rate stays at the level."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted = [1.0] * len(values)
    highest = 0.0
    for passed, index in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - passed) * values[index]))
        adjusted[index] = highest
    return adjusted


def bootstrap_p_value(differences: NDArray[float64]) -> float:
    """Return a two-sided p-value from differences on shared resamples: how often the sign turns."""
    count = len(differences)
    below, above = int((differences <= 0).sum()), int((differences >= 0).sum())
    return min(1.0, 2.0 * (1 + min(below, above)) / (count + 1))


class _Joined(NamedTuple):
    """A contest with its datasets end to end. ``totals``: of each dataset, the sums of the first
    method's numerators and denominators, then the second's; gains are second minus first."""

    numerator_gain: NDArray[float64]
    denominator_gain: NDArray[float64]
    totals: list[tuple[float, float, float, float]]

    @classmethod
    def of(cls, contest: Contest) -> _Joined:
        import numpy as np

        gains: list[list[NDArray[float64]]] = [[], []]
        totals = []
        for first, second in zip(contest.first, contest.second, strict=True):
            for kind in (0, 1):
                gains[kind].append(_coarse(second[kind] - first[kind]))
            sums = [float(values.sum()) for values in (*first, *second)]
            totals.append((sums[0], sums[1], sums[2], sums[3]))
        return cls(np.concatenate(gains[0]), np.concatenate(gains[1]), totals)

    def difference(self) -> float:
        parts = [_share(a, b) - _share(c, d) for a, b, c, d in self.totals]
        return sum(parts) / len(parts)


def _starts(sizes: Sequence[int]) -> list[int]:
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + min(size, MAX_BLOCKS))
    return starts


def _coarse(values: NDArray[float64]) -> NDArray[float64]:
    import numpy as np

    if len(values) <= MAX_BLOCKS:
        return values
    part = np.arange(len(values)) % MAX_BLOCKS
    return np.bincount(part, weights=values, minlength=MAX_BLOCKS).astype(np.float64)


def _swaps(blocks: int, seed: int) -> Iterator[NDArray[float64]]:
    """Yield rows of 0 and 1: which blocks are exchanged."""
    import numpy as np

    if blocks <= EXACT_BLOCKS:
        numbers = np.arange(1 << blocks)[:, None]
        yield ((numbers >> np.arange(blocks)) & 1).astype(np.float64)
        return
    stream = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(blocks,)))
    step = max(1, _CHUNK_CELLS // blocks)
    for begin in range(0, PERMUTATIONS, step):
        rows = min(step, PERMUTATIONS - begin)
        raw = stream.random_raw(-(-rows * blocks // 64)).astype("<u8")
        bits = np.unpackbits(raw.view(np.uint8), count=rows * blocks, bitorder="little")
        yield bits.reshape(rows, blocks).astype(np.float64)


def _quotient(part: NDArray[float64], whole: NDArray[float64]) -> NDArray[float64]:
    import numpy as np

    shape = np.broadcast_shapes(part.shape, np.shape(whole))
    wide = np.broadcast_to(whole, shape)
    return np.divide(part, wide, out=np.zeros(shape), where=wide > TOLERANCE)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
