"""What the rows say beside the scores: latency, failures and what was retrieved."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.metrics.ranks import RankedBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """Latency in milliseconds over the rows that give one; percentiles by nearest rank."""

    count: int
    mean: float
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSummary:
    """One method on one dataset and split. ``latency`` is None where no row gives one.

    ``failures`` counts rows with an error; ``missing`` planned queries without a row. The rest is
    about the rankings as the protocol cuts them: ``result_counts`` maps a number of results to
    the number of queries that have it (missing queries are not in it, failed ones have 0).
    """

    queries: int
    missing: int
    failures: int
    latency: LatencySummary | None
    result_counts: Mapping[int, int]
    unique_documents: int
    top_document: str | None
    top_document_queries: int

    def as_dict(self) -> dict[str, object]:
        """The form of ``summaries`` in results.json; counts keyed by text, in ascending order."""
        latency, top = self.latency, self.top_document
        return {
            "queries": self.queries,
            "missing": self.missing,
            "failures": self.failures,
            "latency_ms": latency
            and {
                "mean": latency.mean,
                "p50": latency.p50,
                "p95": latency.p95,
                "max": latency.max,
                "n": latency.count,
            },
            "result_counts": {str(n): count for n, count in sorted(self.result_counts.items())},
            "unique_documents": self.unique_documents,
            "top1_most_repeated": None
            if top is None
            else {"document_id": top, "count": self.top_document_queries},
        }


def latency_summary(milliseconds: Sequence[float]) -> LatencySummary | None:
    """Summarise latencies in any order; None for none. The mean's sum is rounded once."""
    if not milliseconds:
        return None
    ordered = sorted(milliseconds)
    return LatencySummary(
        count=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        p50=nearest_rank(ordered, 50),
        p95=nearest_rank(ordered, 95),
        max=ordered[-1],
    )


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """Return the smallest value that ``percent`` % of the ascending values do not exceed."""
    rank = max(1, -(-percent * len(ordered) // 100))
    return ordered[rank - 1]


class SummaryBuilder:
    """Gathers a summary block by block.

    Memory: 8 bytes a row, and the distinct documents at the ranks that the protocol scores.
    """

    def __init__(self, queries: Sequence[str], *, top_k: int | None) -> None:
        """Summarise rows of ``queries`` only: the queries of one split."""
        self._queries = frozenset(queries)
        self._top_k = top_k
        self._rows = 0
        self._failures = 0
        self._latencies = array("d")
        self._sizes: Counter[int] = Counter()
        self._documents: set[str] = set()
        self._first: Counter[str] = Counter()

    def add(self, block: RankedBlock) -> None:
        """Take in the rows of a block."""
        for position, row in enumerate(block.rows):
            if row.query_id not in self._queries:
                continue
            self._rows += 1
            self._failures += row.error is not None
            if row.latency_ms is not None:
                self._latencies.append(row.latency_ms)
            if block.ordered[position]:
                names = row.documents[: self._top_k]
            else:
                names = [name for name, _ in block.top(position, self._top_k)]
            self._sizes[len(names)] += 1
            self._documents.update(names)
            if names:
                self._first[names[0]] += 1

    def result(self) -> RetrievalSummary:
        """Return the summary of what was added; of equally frequent documents the smallest id."""
        top = min(self._first.items(), key=lambda item: (-item[1], item[0]), default=(None, 0))
        return RetrievalSummary(
            queries=len(self._queries),
            missing=len(self._queries) - self._rows,
            failures=self._failures,
            latency=latency_summary(self._latencies),
            result_counts=dict(sorted(self._sizes.items())),
            unique_documents=len(self._documents),
            top_document=top[0],
            top_document_queries=top[1],
        )
