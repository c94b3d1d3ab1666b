"""What a method puts on top: WKTD@k, MRR@k, nDCG@k and precision@k per reviewer, and ties.

Ties are broken by paper id: ascending in scores, descending in ratings. With one direction for both
a scorer that calls everything equal would find the best of equally rated papers on top; so it gains
nothing. How often that rule decided is counted at each k.

Source: the appendix of Stelmakh et al., TMLR 2025 (arXiv 2303.16750).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy import float64

from runner.metrics.expertise_names import ExpertiseMetric, parse_metric
from runner.metrics.kendall import Flags, Floats, Ints, RatedPairs, RatedPapers, Ratio


def ranks(papers: RatedPapers, values: Floats, *, last_id_first: bool = False) -> Ints:
    """Return each paper's rank within its reviewer, 1 for the highest value; ties by id."""
    place = np.arange(len(values))
    order = np.lexsort((-place if last_id_first else place, -values, papers.owner))
    starts = np.searchsorted(papers.owner, np.arange(papers.reviewers))
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.arange(len(values)) - starts[papers.owner] + 1
    return found


def ties_at(papers: RatedPapers, values: Floats, k: int) -> int:
    """Count the reviewers whose papers at ranks k and k + 1 have equal values."""
    place = ranks(papers, values)
    last, following = _at(papers, values, place == k), _at(papers, values, place == k + 1)
    return int(np.count_nonzero(last == following))


def _at(papers: RatedPapers, values: Floats, chosen: Flags) -> Floats:
    found = np.full(papers.reviewers, np.nan)  # NaN equals nothing: no paper of that rank
    found[papers.owner[chosen]] = values[chosen]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The ratings, ready to judge any scores on some metrics."""

    papers: RatedPapers
    pairs: RatedPairs
    metrics: tuple[ExpertiseMetric, ...]
    true_rank: Ints

    @classmethod
    def of(cls, papers: RatedPapers, metrics: Iterable[str]) -> Judge:
        """Prepare metrics by name; ``ProtocolError`` for a name that is none."""
        return cls(
            papers=papers,
            pairs=RatedPairs.of(papers),
            metrics=tuple(map(parse_metric, metrics)),
            true_rank=ranks(papers, papers.rating, last_id_first=True),
        )

    def ratios(self, scores: Floats) -> dict[str, Ratio]:
        """Return every metric of these scores, which stand beside the ratings."""
        agreement = self.pairs.agreement(scores)
        rank = ranks(self.papers, scores)
        return {
            metric.name: self._plain(metric.family, agreement)
            if metric.k is None
            else self._at_k(metric.family, metric.k, agreement, rank)
            for metric in self.metrics
        }

    def ties(self, scores: Floats) -> dict[str, object]:
        """Count ties: pairs of all, and boundaries that the id rule decided, by k."""
        pairs, rating = self.pairs, self.papers.rating
        cuts = sorted({metric.k for metric in self.metrics if metric.k is not None})
        return {
            "pairs": len(pairs.gap),
            "pairs_tied_in_truth": int(np.count_nonzero(pairs.gap == 0)),
            "pairs_tied_in_scores": int(
                np.count_nonzero(scores[pairs.left] == scores[pairs.right])
            ),
            "at_k": [
                {
                    "k": k,
                    "in_truth": ties_at(self.papers, rating, k),
                    "in_scores": ties_at(self.papers, scores, k),
                }
                for k in cuts
            ],
        }

    def _plain(self, family: str, agreement: Floats) -> Ratio:
        if family == "wkt_loss":
            return self.pairs.loss(agreement)
        among = self.pairs.easy if family == "easy_accuracy" else self.pairs.hard
        return self.pairs.accuracy(agreement, among)

    def _at_k(self, family: str, k: int, agreement: Floats, rank: Ints) -> Ratio:
        if family in ("wktd", "wktd_mean"):
            top = rank <= k
            loss = self.pairs.loss(agreement, top[self.pairs.left] | top[self.pairs.right])
            return loss if family == "wktd" else _mean_of(loss)
        per_reviewer, true_top = self.papers.per_reviewer, self.true_rank <= k
        if family == "mrr":
            return _mean_of(Ratio(per_reviewer(true_top / rank), per_reviewer(true_top)))
        if family == "precision":
            overlap = per_reviewer(true_top & (rank <= k)) / k
            return Ratio(overlap, np.ones_like(overlap))
        return _mean_of(Ratio(self._gain(rank, k), self._gain(self.true_rank, k)))

    def _gain(self, rank: Ints, k: int) -> Floats:
        discounted = self.papers.rating * (rank <= k) / np.log2(rank + 1.0)
        return self.papers.per_reviewer(discounted)


def _mean_of(ratio: Ratio) -> Ratio:
    """Turn one global ratio into a mean of each reviewer's own, over those who have one."""
    counted = ratio.denominator > 0
    own = np.divide(ratio.numerator, ratio.denominator, out=np.zeros(len(counted)), where=counted)
    return Ratio(own, counted.astype(float64))
