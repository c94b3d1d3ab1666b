"""Rankings of one unit -> metrics of every split, a summary of each, and the score artifact.

Rows are taken block by block, from whoever reads them: the harvest and the verifier both check,
hash and score in one pass. Memory holds a row of numbers a query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from runner.datasets.beir import RetrievalDataset
from runner.metrics.names import parse_metric
from runner.metrics.qrels import Qrels
from runner.metrics.ranking import NOT_FULL, PerQuery, RankingScorer
from runner.metrics.ranks import RankedBlock
from runner.metrics.summary import SummaryBuilder
from runner.model import RowsReport
from runner.protocol.load import Protocol
from runner.protocol.policies import EXCLUDE
from runner.protocol.splits import ALL, TEST, split_ids, union_of
from runner.rows.read import RetrievalIds, RetrievalRow, RetrievalRows
from runner.tasks.api import SplitScore, UnitScores, per_query_path
from runner.tasks.code_collection import CodeRetrievalDataset, Collection
from runner.tasks.retrieval_artifact import ScoreArtifact
from runner.tasks.retrieval_queries import QueryArtifact
from runner.tasks.retrieval_sealed import SealedCollection


class UnitScorer:
    """Scores the rows of one unit; a context manager, since the artifact holds a file open.

    Give ``checker()`` and ``add`` to ``rows.read.read_rows``, then ask ``result`` with its report.
    """

    def __init__(
        self,
        dataset: Collection | SealedCollection,
        protocol: Protocol,
        splits: Sequence[str],
        *,
        artifact: Path | None = None,
    ) -> None:
        """Score for the run's ``splits``; ``artifact`` names a new file for the score artifact.

        Raises ``ProtocolError`` for a split or metric that does not exist, ``OSError`` where the
        artifact's folder cannot be written.
        """
        self._dataset, self._protocol = dataset, protocol
        every = _splits(dataset, protocol)
        self._asked = union_of(every, splits)
        self._splits = {name: every[name] for name in splits}
        self._metrics = tuple(map(parse_metric, protocol.metrics_of("retrieval")))
        self._qrels = Qrels.of({query: dataset.qrels[query] for query in self._asked})
        self._summaries = {
            name: SummaryBuilder(ids, top_k=protocol.top_k) for name, ids in self._splits.items()
        }
        # Over sources, rankings are whole and no depth cuts them.
        self._whole = _whole(dataset)
        self._depth = dataset.document_count if self._whole else protocol.top_k
        self._fullness = _Fullness(dataset.document_count, self._depth)
        self._scorer: RankingScorer | None = None
        self._artifact = (
            None
            if artifact is None
            else ScoreArtifact(
                artifact, self._asked, dataset.qrels, self._depth, names=_names(dataset)
            )
        )
        self._queries = (
            None
            if artifact is None
            else QueryArtifact(
                per_query_path(artifact), dataset.qrels, self._depth, names=_names(dataset)
            )
        )

    def __enter__(self) -> UnitScorer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._artifact is not None:
            self._artifact.__exit__(kind, error, trace)

    def checker(self) -> RetrievalRows:
        """Return the checker of rows that this scorer can take."""
        ids = RetrievalIds.of(self._asked, self._dataset.documents)
        return RetrievalRows(ids, whole=self._whole)

    def add(self, rows: Sequence[RetrievalRow]) -> None:
        """Take in checked rows, in any order, each query once."""
        self._fullness.see(rows)
        if self._scorer is None:
            # The first block shows whether rankings are full; deep ones cost time to read.
            self._scorer = self._new_scorer()
        block = RankedBlock.of(rows)
        self._scorer.add(block)
        for summary in self._summaries.values():
            summary.add(block)
        if self._artifact is not None:
            self._artifact.add(block)
        if self._queries is not None:
            self._queries.add(block)

    def result(self, report: RowsReport) -> UnitScores:
        """Return the scores, and write the artifact; ``report`` is that of the rows' reader.

        A split with a query that has no row, and every split of rows with a fault, is unmeasured:
        None for all metrics, never a mean of what there is. A row with an error counts as an empty
        ranking.
        """
        per_query = (self._scorer or self._new_scorer()).result()
        if not self._fullness.full:  # a later row may have shown what the first did not
            full = [metric.name for metric in self._metrics if metric.full]
            per_query = replace(per_query, unmeasured=dict.fromkeys(full, NOT_FULL))
        if isinstance(self._dataset, SealedCollection):
            per_query = self._dataset.completed(per_query)
        faults = report.fault_count
        why = f"{faults} faults in the rows" if faults else None
        return UnitScores(
            splits=tuple(self._split(name, per_query, why) for name in self._splits),
            artifact=None if self._artifact is None else self._artifact.save(),
            per_query=None if self._queries is None else self._queries.save(per_query),
        )

    def _new_scorer(self) -> RankingScorer:
        return RankingScorer(
            self._qrels,
            self._metrics,
            top_k=self._depth,
            full_rankings=self._fullness.full,
        )

    def _split(self, name: str, per_query: PerQuery, why: str | None) -> SplitScore:
        positions = [self._qrels.index[query] for query in self._splits[name]]
        missing = sum(not per_query.answered[position] for position in positions)
        if missing:
            why = why or f"{missing} of {len(positions)} queries have no row"
        if self._protocol.query_policy == EXCLUDE:
            positions = [at for at in positions if self._qrels.positives[at]]
        if not positions:
            why = why or "no query of the split has a relevant document"
        names = [metric.name for metric in self._metrics]
        reasons = dict.fromkeys(names, why) if why else dict(per_query.unmeasured)
        columns = {metric: per_query.column(metric) for metric in names if metric not in reasons}
        return SplitScore(
            split=name,
            queries=len(positions),
            scores={
                metric: None if metric in reasons else per_query.mean(metric, positions)
                for metric in names
            },
            reasons=reasons,
            samples={
                metric: column[positions]
                for metric, column in columns.items()
                if column is not None
            },
            summary={
                **self._summaries[name].result().as_dict(),
                **self._both_means(name, per_query, reasons),
            },
        )

    def _both_means(
        self, name: str, per_query: PerQuery, reasons: Mapping[str, str]
    ) -> dict[str, Any]:
        """Where a query of the split has no positives: means with and without such queries.

        The protocol's policy says which of the two is the score.
        """
        every = [self._qrels.index[query] for query in self._splits[name]]
        some = [at for at in every if self._qrels.positives[at]]
        if len(some) == len(every):
            return {}
        means = {
            metric.name: {
                "all_queries": per_query.mean(metric.name, every),
                "with_positives": per_query.mean(metric.name, some),
            }
            for metric in self._metrics
            if metric.name not in reasons
        }
        found = {"count": len(every) - len(some), "policy": self._protocol.query_policy}
        return {"queries_without_positives": {**found, "means": means}}


def _whole(dataset: Collection | SealedCollection) -> bool:
    if isinstance(dataset, SealedCollection):
        return dataset.whole
    return isinstance(dataset, CodeRetrievalDataset)


def _splits(
    dataset: Collection | SealedCollection, protocol: Protocol
) -> Mapping[str, tuple[str, ...]]:
    if isinstance(dataset, SealedCollection):
        return dataset.splits
    every = split_ids(dataset.queries.keys(), protocol.calibration)
    return {**every, TEST: every[ALL]} if isinstance(dataset, CodeRetrievalDataset) else every


def _names(dataset: Collection | SealedCollection) -> Mapping[str, str]:
    """What a score artifact calls queries and documents."""
    return {} if isinstance(dataset, RetrievalDataset) else dataset.real


class _Fullness:
    """Does every ranking hold all that the method could return?

    Yes where the protocol's depth lets a method return the whole corpus, and where each ranking
    (but that of a failed query) has every document.
    """

    def __init__(self, documents: int, top_k: int) -> None:
        self._documents = documents
        self._asked_for_all = top_k >= documents
        self._seen_cut = False

    @property
    def full(self) -> bool:
        """What holds of the rows seen so far; it can only turn from True to False."""
        return self._asked_for_all or not self._seen_cut

    def see(self, rows: Sequence[RetrievalRow]) -> None:
        """Look at the lengths of some rankings."""
        self._seen_cut = self._seen_cut or any(
            row.error is None and len(row.documents) != self._documents for row in rows
        )
