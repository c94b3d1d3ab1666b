"""Write what each query came to: judgments, results, latency, failure and every metric.

``query_id,judged,positives,results,latency_ms,failed,<metrics>`` with one line for each query that
has a row, in the order of split ``all``. An empty cell is what was not measured. With the rows and
the score artifact this is all that a figure can be traced to; it holds ids and numbers only.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from runner.datasets.lines import FileDigest

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

    from runner.metrics.ranking import PerQuery
    from runner.metrics.ranks import RankedBlock

COLUMNS = ("query_id", "judged", "positives", "results", "latency_ms", "failed")
_LINES = 1 << 14  # written at a time


class QueryArtifact:
    """Takes rows as they come; memory holds two numbers a query."""

    def __init__(
        self,
        path: Path,
        qrels: Mapping[str, Mapping[str, int]],
        top_k: int,
        *,
        names: Mapping[str, str],
    ) -> None:
        """Write to ``path``, which must not exist yet. ``names`` are as in ``ScoreArtifact``."""
        self._path, self._qrels, self._top_k, self._names = path, qrels, top_k, names
        self._results: dict[str, int] = {}
        self._latencies: dict[str, float] = {}

    def add(self, block: RankedBlock) -> None:
        """Take in the rows of a block; each query comes once."""
        for row in block.rows:
            self._results[row.query_id] = min(len(row.documents), self._top_k)
            if row.latency_ms is not None:
                self._latencies[row.query_id] = float(row.latency_ms)

    def save(self, per_query: PerQuery) -> FileDigest:
        """Write the artifact and return its digest; ``OSError`` where that fails."""
        answered = np.flatnonzero(per_query.answered)
        names = [metric.name for metric in per_query.metrics]
        columns = [_column(per_query.column(name), answered) for name in names]
        digest, size = hashlib.sha256(), 0
        with self._path.open("xb") as target:
            lines = zip(self._facts(per_query, answered), zip(*columns, strict=True), strict=True)
            for block in _blocks([*COLUMNS, *names], lines):
                digest.update(block)
                size += target.write(block)
        return FileDigest(name=self._path.name, sha256=digest.hexdigest(), size=size)

    def _facts(self, per_query: PerQuery, answered: NDArray[int64]) -> Iterator[tuple[object, ...]]:
        failed = per_query.failed
        for position in answered.tolist():
            query = per_query.query_ids[position]
            grades = self._qrels[query].values()
            latency = self._latencies.get(query)
            yield (
                self._names.get(query, query),
                len(grades),
                sum(grade > 0 for grade in grades),
                self._results[query],
                "" if latency is None else repr(latency),
                int(failed[position]),
            )


def _column(values: NDArray[float64] | None, positions: NDArray[int64]) -> Sequence[str]:
    """One metric as text; a value is written once however often it stands there."""
    if values is None:
        return [""] * len(positions)
    distinct, where = np.unique(values[positions], return_inverse=True)
    texts = [repr(value) for value in distinct.tolist()]
    return [texts[index] for index in where.tolist()]


def _blocks(
    head: Sequence[str], lines: Iterator[tuple[tuple[object, ...], tuple[str, ...]]]
) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for number, (facts, scores) in enumerate(lines, 1):
        writer.writerow(facts + scores)
        if number % _LINES == 0:
            yield text.getvalue().encode("utf-8")
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode("utf-8")
