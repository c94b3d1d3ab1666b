"""How far a method's order of papers is from what reviewers said: weighted Kendall, easy and hard.

Pure functions on arrays. Everything is a ratio of two sums over reviewers, so each metric is a pair
of columns, (numerator, denominator) per reviewer, computed once; resampling reviewers is then a
product of counts and columns. All sums of the loss are multiples of 1/8: exact in any order.

Source: Stelmakh, Wieting, Xi, Neubig, Shah, "A Gold Standard Dataset for the Reviewer Assignment
Problem", TMLR 2025. Global normalisation: one ratio, not a mean of ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy import bool_, float64, int64
from numpy.typing import NDArray

from runner.metrics.bootstrap import RESAMPLES, resampled_sums

Floats = NDArray[float64]
Ints = NDArray[int64]
Flags = NDArray[bool_]

#: A triplet is easy where one paper is well known and the other is not, hard where both are.
WELL_KNOWN, LITTLE_KNOWN = 4.0, 2.0


class Ratio(NamedTuple):
    """A metric: the sum of ``numerator`` over the sum of ``denominator``; one value a reviewer."""

    numerator: Floats
    denominator: Floats

    def value(self) -> float | None:
        """The metric over all reviewers; None where nothing is to be counted."""
        total = float(self.denominator.sum())
        return float(self.numerator.sum()) / total if total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedPapers:
    """The ratings of all reviewers in one row: reviewer after reviewer, papers in id order.

    ``owner[i]`` is the reviewer (0, 1, ...) of rating i, ascending; ``rating[i]`` is 1 to 5.
    """

    reviewers: int
    owner: Ints
    rating: Floats

    @classmethod
    def of(cls, ratings: Sequence[Mapping[str, float]]) -> RatedPapers:
        """Line up the ratings of reviewers; each maps paper id to rating."""
        return cls(
            reviewers=len(ratings),
            owner=np.repeat(np.arange(len(ratings)), [len(one) for one in ratings]),
            rating=np.array([one[paper] for one in ratings for paper in sorted(one)], dtype=float),
        )

    def per_reviewer(self, values: Floats | Flags) -> Floats:
        """Sum values that stand beside the ratings by reviewer."""
        return _sums(self.owner, values, self.reviewers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedPairs:
    """All pairs of rated papers of one reviewer each; ``left`` and ``right`` index the ratings.

    ``gap`` is |e1 - e2|, ``sign`` is that of e1 - e2; a pair tied in truth has gap 0.
    """

    reviewers: int
    owner: Ints
    left: Ints
    right: Ints
    gap: Floats
    sign: Floats
    easy: Flags
    hard: Flags

    @classmethod
    def of(cls, papers: RatedPapers) -> RatedPairs:
        """Enumerate the pairs."""
        left, right = _pairs_within(papers)
        one, other = papers.rating[left], papers.rating[right]
        high, low = np.maximum(one, other), np.minimum(one, other)
        return cls(
            reviewers=papers.reviewers,
            owner=papers.owner[left],
            left=left,
            right=right,
            gap=np.abs(one - other),
            sign=np.sign(one - other),
            easy=(high >= WELL_KNOWN) & (low <= LITTLE_KNOWN),
            hard=(low >= WELL_KNOWN) & (high > low),
        )

    def agreement(self, scores: Floats) -> Floats:
        """Return 1 where the scores order a pair as the ratings do, -1 reversed, 0 for a tie.

        Signs are multiplied, never differences: a tiny difference would underflow to a tie.
        """
        one, other = scores[self.left], scores[self.right]
        return self.sign * ((one > other).astype(float64) - (one < other))

    def loss(self, agreement: Floats, among: Flags | None = None) -> Ratio:
        """Return the weighted Kendall loss, over all pairs or those of ``among``.

        A reversed pair costs its gap, a pair that the scores tie half of it.
        """
        gap = self.gap if among is None else self.gap * among
        return Ratio(self._sums(gap * (1.0 - agreement) / 2.0), self._sums(gap))

    def accuracy(self, agreement: Floats, among: Flags) -> Ratio:
        """Return the share of ``among`` in the strictly right order; a tie is wrong."""
        return Ratio(self._sums(among & (agreement > 0)), self._sums(among))

    def _sums(self, values: Floats | Flags) -> Floats:
        return _sums(self.owner, values, self.reviewers)


def _pairs_within(papers: RatedPapers) -> tuple[Ints, Ints]:
    """Return both places of every pair within a reviewer."""
    sizes = np.bincount(papers.owner, minlength=papers.reviewers).tolist()
    shapes = {size: np.triu_indices(size, k=1) for size in set(sizes)}
    starts = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(shapes[size][0]) for size in sizes])
    left, right = (np.concatenate([shapes[size][end] for size in sizes]) for end in (0, 1))
    return left + starts, right + starts


def _sums(owner: Ints, values: Floats | Flags, owners: int) -> Floats:
    return np.bincount(owner, weights=values, minlength=owners).astype(float64)


def replicates(
    ratios: Mapping[str, Ratio], *, seed: int, resamples: int = RESAMPLES
) -> dict[str, Floats]:
    """Return each metric on each resample of the reviewers, drawn with replacement.

    The draws follow from ``seed`` and the number of reviewers alone, so versions and methods share
    them. A metric that a resample leaves without anything to count is left out.
    """
    if not ratios:
        return {}
    columns = np.stack([column for ratio in ratios.values() for column in ratio], axis=1)
    sums = resampled_sums(columns, seed=seed, resamples=resamples)
    found = {}
    for position, name in enumerate(ratios):
        numerator, denominator = sums[:, 2 * position], sums[:, 2 * position + 1]
        if denominator.all():
            found[name] = numerator / denominator
    return found
