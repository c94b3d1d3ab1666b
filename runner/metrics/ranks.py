"""At which ranks do the relevant documents stand? Order: score descending, then id ascending.

A ranking that is stored in order is read by position. In any other, a document's rank is 1 + the
number of documents with a higher score + the number with an equal score and a smaller id, so
nothing need be sorted; only where many relevant documents stand in one ranking does one sort of
the scores beat counting for each of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy import bool_, float64, int64
    from numpy.typing import NDArray

    from runner.rows.retrieval import RetrievalRow

#: With more relevant documents than this in one unordered ranking, sort instead of counting.
COUNT_AT_MOST = 8
#: Finding this many ids one by one is as fast as one look at every id.
SEARCH_AT_MOST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedBlock:
    """Some rows, and which of them are stored in ranked order."""

    rows: Sequence[RetrievalRow]
    ordered: NDArray[bool_]

    @classmethod
    def of(cls, rows: Sequence[RetrievalRow]) -> RankedBlock:
        """Look at each row's order once; linear, and nothing is moved."""
        return cls(rows=rows, ordered=_ordered(rows))

    def top(self, position: int, k: int | None) -> list[tuple[str, float]]:
        """Return the first ``k`` (document, score) of a row in ranked order; None for all."""
        row = self.rows[position]
        if self.ordered[position]:
            return list(zip(row.documents[:k], row.scores[:k], strict=True))
        return order_ranking(row.documents, row.scores, k)


def order_ranking(
    documents: Sequence[str], scores: Sequence[float], k: int | None
) -> list[tuple[str, float]]:
    """Return the first ``k`` (document, score) by score descending, then id ascending."""
    pairs: list[tuple[str, float]] = list(zip(documents, scores, strict=True))
    if k is not None and k < len(pairs):
        # Only what reaches the k-th best score can be among the first k.
        values = np.asarray(scores, dtype=np.float64)
        least = np.partition(values, len(values) - k)[len(values) - k]
        pairs = [pairs[i] for i in np.flatnonzero(values >= least).tolist()]
    pairs.sort(key=itemgetter(0))
    pairs.sort(key=itemgetter(1), reverse=True)  # stable: equal scores keep their id order
    return pairs[:k]


def _ordered(rows: Sequence[RetrievalRow]) -> NDArray[bool_]:
    ordered = np.ones(len(rows), dtype=np.bool_)
    scores = np.frombuffer(b"".join([row.scores for row in rows]), dtype=np.float64)
    ends = np.cumsum([len(row.documents) for row in rows], dtype=np.int64)
    falls = scores[:-1] > scores[1:]
    borders = ends[:-1]  # where the next row begins; a row without documents has none of its own
    falls[borders[(borders > 0) & (borders < len(scores))] - 1] = True
    # Nearly all rankings are stored in order and without ties: then this is empty.
    doubtful = np.flatnonzero(~falls)
    owners = np.searchsorted(ends, doubtful, side="right")
    rises = scores[doubtful] < scores[doubtful + 1]
    ordered[owners[rises]] = False
    tied, owners = doubtful[~rises], owners[~rises]
    begins = ends[owners] - np.array([len(rows[i].documents) for i in owners.tolist()], np.int64)
    for row, at in zip(owners.tolist(), (tied - begins).tolist(), strict=True):
        documents = rows[row].documents
        if documents[at] > documents[at + 1]:
            ordered[row] = False
    return ordered


def positive_ranks(
    row: RetrievalRow, ordered: bool, positives: Mapping[str, int], depth: int | None
) -> list[tuple[int, int]]:
    """Return (rank, grade) of each relevant document that stands in the first ``depth`` ranks.

    Sorted by rank. ``depth`` None looks through the whole ranking.
    """
    documents = row.documents
    if ordered:
        seen = documents if depth is None else documents[:depth]
        return [(i + 1, positives[seen[i]]) for i in _hits(seen, positives)]
    hits = _hits(documents, positives)
    if not hits:
        return []
    scores = np.frombuffer(row.scores, dtype=np.float64)
    find = _ranks_by_count if len(hits) <= COUNT_AT_MOST else _ranks_by_sort
    ranks = find(documents, scores, hits)
    found = sorted(zip(ranks, (positives[documents[i]] for i in hits), strict=True))
    return found if depth is None else [pair for pair in found if pair[0] <= depth]


def _hits(documents: Sequence[str], positives: Mapping[str, int]) -> list[int]:
    """Return the positions of relevant documents, ascending."""
    found = frozenset(positives).intersection(documents)
    if len(found) <= SEARCH_AT_MOST:
        return sorted(map(documents.index, found))
    mask = bytes(map(found.__contains__, documents))
    hits, at = [], mask.find(1)
    while at >= 0:
        hits.append(at)
        at = mask.find(1, at + 1)
    return hits


def _ranks_by_count(
    documents: Sequence[str], scores: NDArray[float64], hits: Sequence[int]
) -> list[int]:
    ranks = []
    for at in hits:
        score = scores[at]
        rank = 1 + int(np.count_nonzero(scores > score))
        tied = np.flatnonzero(scores == score)
        if len(tied) > 1:
            name = documents[at]
            rank += sum(documents[other] < name for other in tied.tolist())
        ranks.append(rank)
    return ranks


def _ranks_by_sort(
    documents: Sequence[str], scores: NDArray[float64], hits: Sequence[int]
) -> list[int]:
    order: NDArray[int64] = np.argsort(-scores, kind="stable")
    falling = -scores[order]
    wanted = -scores[list(hits)]
    first = np.searchsorted(falling, wanted, side="left").tolist()
    last = np.searchsorted(falling, wanted, side="right").tolist()
    names: dict[int, list[str]] = {}  # first rank of a group of equal scores -> its ids, sorted
    ranks = []
    for at, begin, end in zip(hits, first, last, strict=True):
        rank = begin + 1
        if end - begin > 1:
            if begin not in names:
                names[begin] = sorted(map(documents.__getitem__, order[begin:end].tolist()))
            rank += bisect_left(names[begin], documents[at])
        ranks.append(rank)
    return ranks
