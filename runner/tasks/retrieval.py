"""The retrieval task: what a method is asked, and what its rankings are worth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.datasets.beir import RetrievalDataset
from runner.errors import ProtocolError
from runner.metrics.names import parse_metric
from runner.protocol.load import Protocol
from runner.protocol.splits import split_ids, union_of
from runner.tasks.retrieval_inputs import (
    BlindCorpus,
    InputReport,
    TaskOptions,
    discard_inputs,
    write_blind_corpus,
    write_blind_inputs,
)

if TYPE_CHECKING:
    from runner.tasks.retrieval_score import UnitScorer, UnitScores

__all__ = [
    "BlindCorpus",
    "InputReport",
    "TaskOptions",
    "check_metrics",
    "discard_inputs",
    "expected_ids",
    "metrics_for",
    "score_unit",
    "unit_scorer",
    "write_blind_corpus",
    "write_blind_inputs",
]


def check_metrics(metrics: Sequence[str], top_k: int) -> None:
    """Raise ``ProtocolError`` for an unknown metric, or one that looks deeper than ``top_k``."""
    for name in metrics:
        metric = parse_metric(name)
        if metric.k is not None and metric.k > top_k:
            raise ProtocolError(
                "metric.beyond-top-k",
                f"{name} looks deeper than top_k {top_k}, where every ranking is cut",
                fix="raise top_k or lower the metric's cut-off",
            )


def metrics_for(protocol: Protocol) -> tuple[str, ...]:
    """Return the metrics of a protocol in its order; raise ``ProtocolError`` for an unknown one."""
    check_metrics(protocol.metrics, protocol.top_k)
    return protocol.metrics


def expected_ids(
    protocol: Protocol, dataset: RetrievalDataset, splits: Iterable[str]
) -> tuple[str, ...]:
    """Return the queries that a method must answer for these splits, in the order of ``all``."""
    return union_of(split_ids(dataset.queries.keys(), protocol.calibration), splits)


def unit_scorer(
    dataset: RetrievalDataset,
    protocol: Protocol,
    splits: Sequence[str],
    *,
    artifact: Path | None = None,
) -> UnitScorer:
    """Return a scorer to feed while rows are read; see ``retrieval_score.UnitScorer``."""
    from runner.tasks.retrieval_score import UnitScorer  # numpy: not for `check` and `plan`

    return UnitScorer(dataset, protocol, splits, artifact=artifact)


def score_unit(
    parts: Sequence[Path],
    dataset: RetrievalDataset,
    protocol: Protocol,
    splits: Sequence[str],
    *,
    artifact: Path | None = None,
) -> UnitScores:
    """Score the row files of one unit; see ``retrieval_score.score_unit``."""
    from runner.tasks import retrieval_score

    return retrieval_score.score_unit(parts, dataset, protocol, splits, artifact=artifact)
