"""Ranking metrics of trec_eval, vectorised: all from the ranks of the relevant documents.

Linear gain, negative grades count as 0, unjudged documents are not relevant, ties go to the smaller
id. A query without an answer, or without anything relevant, has 0 in every metric.
Definitions: nDCG = sum of grade / log2(rank + 1) over the same sum of the best ranking cut at k;
recall and MAP divide by all relevant documents; precision divides by k.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from runner.metrics.names import Family, Metric
from runner.metrics.ranks import RankedBlock, positive_ranks

if TYPE_CHECKING:
    from numpy import bool_, float64, int64
    from numpy.typing import NDArray

    from runner.metrics.qrels import Qrels
    from runner.rows.retrieval import RetrievalRow

Ints: TypeAlias = "NDArray[int64]"
Floats: TypeAlias = "NDArray[float64]"

NOT_FULL = "needs a full ranking, and the rankings are cut"
#: Scores of a block this large stay in the processor's cache.
BLOCK_DOCUMENTS = 1 << 15
BLOCK_ROWS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PerQuery:
    """Scores of every query: ``values[i, j]`` is ``metrics[j]`` of ``query_ids[i]``.

    A metric in ``unmeasured`` (name -> reason) has NaN in its column, for arithmetic only: ask
    ``column`` and ``mean``, which say None. ``answered`` marks queries with a row, ``failed``
    those whose row is an error; both other kinds score 0.
    """

    query_ids: tuple[str, ...]
    metrics: tuple[Metric, ...]
    values: Floats
    answered: NDArray[bool_]
    failed: NDArray[bool_]
    unmeasured: Mapping[str, str]

    def column(self, name: str) -> Floats | None:
        """Return a metric of all queries, or None where it is unmeasured."""
        if name in self.unmeasured:
            return None
        names = [metric.name for metric in self.metrics]
        column: Floats = self.values[:, names.index(name)]
        return column

    def mean(self, name: str, queries: Sequence[int] | Ints | None = None) -> float | None:
        """Return the mean over all queries or over some positions; None if unmeasured or empty.

        The sum is rounded once, so the result depends on no order and on no machine.
        """
        column = self.column(name)
        if column is None:
            return None
        chosen = column if queries is None else column[np.asarray(queries, dtype=np.int64)]
        return math.fsum(chosen.tolist()) / len(chosen) if len(chosen) else None


class RankingScorer:
    """Scores rows block by block; what stays in memory is one row of numbers a query."""

    def __init__(
        self,
        qrels: Qrels,
        metrics: Sequence[Metric],
        *,
        top_k: int | None,
        full_rankings: bool = False,
    ) -> None:
        """Cut each ranking at ``top_k`` for all but the full-ranking metrics.

        ``full_rankings`` says that every row ranks all documents that the method could return;
        without it ``map`` and ``mrr`` are unmeasured.
        """
        self._qrels = qrels
        self._metrics = tuple(metrics)
        self._top_k = top_k
        self._measured = [not metric.full or full_rankings for metric in self._metrics]
        self._depth = _depth(self._metrics, self._measured, top_k)
        count = len(qrels.query_ids)
        self._values = np.zeros((count, len(self._metrics)))
        self._values[:, [not measured for measured in self._measured]] = np.nan
        self._answered = np.zeros(count, dtype=np.bool_)
        self._failed = np.zeros(count, dtype=np.bool_)
        self._discounts = _Discounts()
        self._ideals = {
            metric.k: self._ideal(metric.k)
            for metric in self._metrics
            if metric.family is Family.NDCG
        }

    def add(self, block: RankedBlock) -> None:
        """Score the rows of a block; rows of queries outside the qrels are passed over.

        A query's last row counts; the reader of rows has already refused second ones.
        """
        index, positives = self._qrels.index, self._qrels.positives
        owners: list[int] = []
        ranks: list[int] = []
        grades: list[int] = []
        touched: list[int] = []
        for row, ordered in zip(block.rows, block.ordered.tolist(), strict=True):
            query = index.get(row.query_id)
            if query is None:
                continue
            touched.append(query)
            self._failed[query] = row.error is not None
            found = positive_ranks(row, ordered, positives[query], self._depth)
            if found:
                owners.extend([len(touched) - 1] * len(found))
                ranks.extend(pair[0] for pair in found)
                grades.extend(pair[1] for pair in found)
        if touched:
            self._answered[touched] = True
            hits = _Hits(
                owner=np.array(owners, dtype=np.int64),
                rank=np.array(ranks, dtype=np.int64),
                grade=np.array(grades, dtype=np.float64),
                queries=len(touched),
            )
            self._score(np.array(touched, dtype=np.int64), hits)

    def result(self) -> PerQuery:
        """Return the scores of all queries of the qrels, in their order."""
        unmeasured = {
            metric.name: NOT_FULL
            for metric, measured in zip(self._metrics, self._measured, strict=True)
            if not measured
        }
        return PerQuery(
            query_ids=self._qrels.query_ids,
            metrics=self._metrics,
            values=self._values,
            answered=self._answered,
            failed=self._failed,
            unmeasured=unmeasured,
        )

    def _score(self, queries: Ints, hits: _Hits) -> None:
        relevant = self._qrels.relevant[queries]
        for column, metric in enumerate(self._metrics):
            if not self._measured[column]:
                continue
            seen = hits.within(_cut(metric, self._top_k))
            if metric.family is Family.NDCG:
                ideal = self._ideals[metric.k][queries]
                values = _ratio(self._discounts.gain(seen), ideal)
            else:
                values = _SCORES[metric.family](seen, relevant, metric.k or 0)
            self._values[queries, column] = values

    def _ideal(self, k: int | None) -> Floats:
        owner, rank, grade = self._qrels.ideal
        best = _Hits(owner=owner, rank=rank, grade=grade, queries=len(self._qrels.query_ids))
        # The best ranking is cut at the metric's k alone: a shorter protocol depth costs gain.
        return self._discounts.gain(best.within(k))


def score_rankings(
    rows: Iterable[RetrievalRow],
    qrels: Qrels,
    metrics: Sequence[Metric],
    *,
    top_k: int | None,
    full_rankings: bool = False,
) -> PerQuery:
    """Score rows from any source, in blocks; see ``RankingScorer``."""
    scorer = RankingScorer(qrels, metrics, top_k=top_k, full_rankings=full_rankings)
    for block in _blocks(rows):
        scorer.add(RankedBlock.of(block))
    return scorer.result()


def _blocks(rows: Iterable[RetrievalRow]) -> Iterator[list[RetrievalRow]]:
    block: list[RetrievalRow] = []
    documents = 0
    for row in rows:
        block.append(row)
        documents += len(row.documents)
        if documents >= BLOCK_DOCUMENTS or len(block) >= BLOCK_ROWS:
            yield block
            block, documents = [], 0
    yield block


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hits:
    """Relevant documents found: (query of the block, rank, grade), by query, then by rank."""

    owner: Ints
    rank: Ints
    grade: Floats
    queries: int

    def within(self, k: int | None) -> _Hits:
        if k is None:
            return self
        seen = self.rank <= k
        return _Hits(
            owner=self.owner[seen],
            rank=self.rank[seen],
            grade=self.grade[seen],
            queries=self.queries,
        )

    def counts(self) -> Ints:
        return np.bincount(self.owner, minlength=self.queries)

    def sums(self, values: Floats) -> Floats:
        # bincount adds one by one in rank order, as trec_eval does: equal to the last bit.
        sums = np.bincount(self.owner, weights=values, minlength=self.queries)
        return sums.astype(np.float64, copy=False)  # without hits numpy counts in integers


class _Discounts:
    """log2(rank + 1) of the C library, since numpy's may differ in the last bit."""

    def __init__(self) -> None:
        self._table = np.empty(0)

    def gain(self, hits: _Hits) -> Floats:
        deepest = int(hits.rank.max(initial=0))
        if deepest > len(self._table):
            ranks = range(1, max(deepest, 2 * len(self._table)) + 1)
            self._table = np.array([math.log2(rank + 1) for rank in ranks])
        return hits.sums(hits.grade / self._table[hits.rank - 1])


def _recall(hits: _Hits, relevant: Ints, _: int) -> Floats:
    return _ratio(hits.counts(), relevant)


def _precision(hits: _Hits, _: Ints, k: int) -> Floats:
    return hits.counts() / k


def _success(hits: _Hits, _: Ints, __: int) -> Floats:
    return (hits.counts() > 0).astype(np.float64)


def _mrr(hits: _Hits, _: Ints, __: int) -> Floats:
    values = np.zeros(hits.queries)
    owners, first = np.unique(hits.owner, return_index=True)
    values[owners] = 1.0 / hits.rank[first]
    return values


def _map(hits: _Hits, relevant: Ints, _: int) -> Floats:
    counts = hits.counts()
    starts = np.cumsum(counts) - counts
    ordinal = np.arange(len(hits.owner)) - starts[hits.owner] + 1
    return _ratio(hits.sums(ordinal / hits.rank), relevant)


_SCORES = {
    Family.RECALL: _recall,
    Family.PRECISION: _precision,
    Family.SUCCESS: _success,
    Family.MRR: _mrr,
    Family.MAP: _map,
}


def _ratio(part: Floats | Ints, whole: Floats | Ints) -> Floats:
    """Divide, with 0 where the whole is 0: a query without positives."""
    out = np.zeros(len(whole))
    np.divide(part, whole, out=out, where=whole > 0)
    return out


def _cut(metric: Metric, top_k: int | None) -> int | None:
    if metric.k is None or top_k is None:
        return metric.k
    return min(metric.k, top_k)


def _depth(metrics: Sequence[Metric], measured: Sequence[bool], top_k: int | None) -> int | None:
    """Return how deep a ranking must be read for the metrics at hand; None is to its end."""
    wanted = [metric for metric, used in zip(metrics, measured, strict=True) if used]
    if any(metric.full for metric in wanted):
        return None
    return max((cut for metric in wanted if (cut := _cut(metric, top_k))), default=0)
