"""Write what each query came to: judgments, results, latency, failure and every metric.

``query_id,judged,positives,results,latency_ms,failed,<metrics>`` with one line for each query that
has a row, in the order of split ``all``. An empty cell is what was not measured. With the rows and
the score artifact this is all that a figure can be traced to; it holds ids and numbers only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
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
_SPECIAL = re.compile(r'[,"\r\n]')


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
        metrics = [metric.name for metric in per_query.metrics]
        columns = [_column(per_query.column(name), answered) for name in metrics]
        digest, size = hashlib.sha256(), 0
        with self._path.open("xb") as target:
            block = ",".join([*COLUMNS, *metrics]).encode() + b"\n"
            for start in range(0, len(answered) + _LINES, _LINES):
                digest.update(block)
                size += target.write(block)
                positions = answered[start : start + _LINES]
                scores = [column[start : start + _LINES] for column in columns]
                lines = map(",".join, zip(*self._facts(per_query, positions), *scores, strict=True))
                block = "".join(line + "\n" for line in lines).encode("utf-8")
        return FileDigest(name=self._path.name, sha256=digest.hexdigest(), size=size)

    def _facts(self, per_query: PerQuery, positions: NDArray[int64]) -> list[list[str]]:
        """What is no metric, as columns of text."""
        queries = [per_query.query_ids[position] for position in positions.tolist()]
        grades = [self._qrels[query].values() for query in queries]
        latencies = [self._latencies.get(query) for query in queries]
        return [
            _quoted([self._names.get(query, query) for query in queries]),
            [str(len(judged)) for judged in grades],
            [str(sum(grade > 0 for grade in judged)) for judged in grades],
            [str(self._results[query]) for query in queries],
            ["" if latency is None else repr(latency) for latency in latencies],
            ["1" if failed else "0" for failed in per_query.failed[positions].tolist()],
        ]


def _column(values: NDArray[float64] | None, positions: NDArray[int64]) -> Sequence[str]:
    """One metric as text; a value is written once however often it stands there."""
    if values is None:
        return [""] * len(positions)
    distinct, where = np.unique(values[positions], return_inverse=True)
    texts = [repr(value) for value in distinct.tolist()]
    return [texts[index] for index in where.tolist()]


def _quoted(names: list[str]) -> list[str]:
    """Names as CSV wants them; nearly none needs a change, so all are looked at together."""
    if not _SPECIAL.search("".join(names)):
        return names
    return [
        '"' + name.replace('"', '""') + '"' if _SPECIAL.search(name) else name for name in names
    ]
