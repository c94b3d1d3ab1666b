"""Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009), with what it was made of.

A document's score is the sum over the lists of ``weight / (k + rank)``, ranks from 1; a list that
does not hold it adds nothing. The evidence says for each document of the result its rank and score
in each list, so that anybody can add up the score again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sealbench_sdk import Ranking

Evidence = dict[str, list[float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """A ranking and, per list, the rank and score of each of its documents (None: not in it)."""

    ranking: list[tuple[str, float]]
    evidence: Evidence


def fuse(
    lists: Mapping[str, Ranking], weights: Mapping[str, float], *, k: float, top: int
) -> Fused:
    """Fuse rankings, each best first, into the best ``top``: by score, then by id ascending."""
    scores: dict[str, float] = {}
    for name, ranking in lists.items():
        for rank, (ident, _) in enumerate(ranking, 1):
            scores[ident] = scores.get(ident, 0.0) + weights[name] / (k + rank)
    best = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
    evidence: Evidence = {}
    for name, ranking in lists.items():
        places = {ident: (rank, score) for rank, (ident, score) in enumerate(ranking, 1)}
        evidence[f"{name}_rank"] = _column(places, best, 0)
        evidence[f"{name}_score"] = _column(places, best, 1)
    return Fused(ranking=best, evidence=evidence)


def _column(
    places: Mapping[str, tuple[int, float]], best: Sequence[tuple[str, float]], item: int
) -> list[float | None]:
    return [places[ident][item] if ident in places else None for ident, _ in best]
