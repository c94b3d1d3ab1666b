"""Scores of units -> results.json: per-dataset rows, aggregates, coverage, eligibility, ranks.

Pure. A failed or unmeasured score is null with a reason; it is never 0, never averaged, never
hidden. A method is eligible for a rank only with a finite score on every declared dataset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from runner.metrics.bootstrap import CONFIDENCE, RESAMPLES, bootstrap_mean_ci
from runner.model import Outcome, Plan, UnitOutcome

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredUnit:
    """The scores of one unit on one split.

    ``scores`` has every metric of the protocol, None where unmeasured (``reasons`` says why);
    ``samples`` has per metric the 1-D float array of the queries that the mean is over.
    """

    method: str
    dataset: str
    repeat: int
    split: str
    outcome: Outcome
    queries: int
    scores: Mapping[str, float | None]
    reasons: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[str, np.ndarray] = field(default_factory=dict)
    summary: Mapping[str, Any] | None = None


Cells = dict[tuple[str, str, str], list[ScoredUnit]]  # (method, dataset, split) -> repeats
NONE: tuple[None, None] = (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetScore:
    """One cell: a method on a dataset, split and metric, over all repeats."""

    score: float | None
    n: int
    outcome: Outcome
    error: str | None


def failed_unit(
    outcome: UnitOutcome, split: str, queries: int, metrics: Iterable[str]
) -> ScoredUnit:
    """The record of a unit that has no scores: null for every metric, with the reason."""
    names = tuple(metrics)
    return ScoredUnit(
        method=outcome.unit.method,
        dataset=outcome.unit.dataset,
        repeat=outcome.unit.repeat,
        split=split,
        outcome=outcome.outcome,
        queries=queries,
        scores=dict.fromkeys(names),
        reasons=dict.fromkeys(names, f"{outcome.outcome.value}: {outcome.reason}"),
    )


def competition_ranks(scores: Mapping[str, float | None]) -> dict[str, int | None]:
    """Rank names by score, high first, ties sharing the better rank (1, 1, 3); null for None."""
    ranked = [value for value in scores.values() if value is not None]
    return {
        name: None if value is None else 1 + sum(other > value for other in ranked)
        for name, value in scores.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What the results are over: the protocol's task, metrics and datasets, and the plan."""

    plan: Plan
    task: str
    metrics: Sequence[str]
    datasets: Sequence[str]


def build_results(
    scope: Scope, units: Sequence[ScoredUnit], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the document results.json; ``units`` has one entry for every unit and split."""
    cells: Cells = {}
    for unit in units:
        cells.setdefault((unit.method, unit.dataset, unit.split), []).append(unit)
    per_dataset: list[dict[str, Any]] = []
    aggregate: list[dict[str, Any]] = []
    for split in scope.plan.splits:
        for metric in scope.metrics:
            per_dataset += _dataset_rows(scope, split, metric, cells)
            aggregate += _aggregate_rows(scope, split, metric, cells)
    return {
        "schema": "sealbench/results/v1",
        "protocol_id": scope.plan.protocol_id,
        "run_id": scope.plan.run_id,
        "per_dataset": per_dataset,
        "aggregate": aggregate,
        "summaries": [_summary(unit) for unit in units if unit.summary is not None],
        "notes": list(notes),
    }


def merge_repeats(units: Sequence[ScoredUnit], metric: str) -> DatasetScore:
    """One cell over its repeats: their mean, or null as soon as one of them has no score."""
    ordered = sorted(units, key=lambda unit: unit.repeat)
    for unit in ordered:
        value = unit.scores[metric]
        if value is None or not isfinite(value):
            reason = unit.reasons.get(metric, "the score is not finite")
            if len(ordered) > 1:
                reason = f"repeat {unit.repeat}: {reason}"
            return DatasetScore(score=None, n=unit.queries, outcome=unit.outcome, error=reason)
    values = [unit.scores[metric] or 0.0 for unit in ordered]
    size = len(ordered[0].samples.get(metric, ())) or ordered[0].queries
    return DatasetScore(
        score=sum(values) / len(values), n=size, outcome=ordered[0].outcome, error=None
    )


def _dataset_rows(scope: Scope, split: str, metric: str, cells: Cells) -> list[dict[str, Any]]:
    rows = []
    for method in scope.plan.methods:
        for dataset in scope.datasets:
            cell = merge_repeats(cells[method.name, dataset, split], metric)
            rows.append(
                {
                    "method": method.name,
                    "method_id": method.method_id,
                    "task": scope.task,
                    "dataset": dataset,
                    "split": split,
                    "metric": metric,
                    "score": cell.score,
                    "n": cell.n,
                    "eligible": cell.score is not None,
                    "outcome": cell.outcome.value,
                    "error": cell.error,
                }
            )
    return rows


def _aggregate_rows(scope: Scope, split: str, metric: str, cells: Cells) -> list[dict[str, Any]]:
    expected = len(scope.datasets)
    found: dict[str, list[float]] = {}
    for method in scope.plan.methods:
        scores = [
            merge_repeats(cells[method.name, dataset, split], metric).score
            for dataset in scope.datasets
        ]
        found[method.name] = [score for score in scores if score is not None]
    means = {
        name: sum(scores) / expected if len(scores) == expected else None
        for name, scores in found.items()
    }
    ranks = competition_ranks(means)
    rows = []
    for method in scope.plan.methods:
        mean, covered = means[method.name], len(found[method.name])
        low, high = (
            _interval(scope, method.name, split, metric, cells) if mean is not None else NONE
        )
        rows.append(
            {
                "method": method.name,
                "method_id": method.method_id,
                "task": scope.task,
                "split": split,
                "metric": metric,
                "mean_score": mean,
                "ci_low": low,
                "ci_high": high,
                "dataset_count": covered,
                "expected_dataset_count": expected,
                "coverage": covered / expected,
                "complete_coverage": covered == expected,
                "eligible": mean is not None,
                "rank": ranks[method.name],
            }
        )
    return rows


def _interval(
    scope: Scope, method: str, split: str, metric: str, cells: Cells
) -> tuple[float | None, float | None]:
    groups = [_mean_samples(cells[method, dataset, split], metric) for dataset in scope.datasets]
    present = [group for group in groups if group is not None and len(group)]
    if len(present) < len(groups):
        return NONE
    return bootstrap_mean_ci(present, seed=scope.plan.seed)


def _mean_samples(units: Sequence[ScoredUnit], metric: str) -> np.ndarray | None:
    """Per-query values averaged over repeats, so that the interval is one over queries."""
    arrays = [unit.samples[metric] for unit in units if metric in unit.samples]
    if len(arrays) != len(units):
        return None
    total = arrays[0].copy()
    for array in arrays[1:]:
        total += array
    return total / len(arrays)


def _summary(unit: ScoredUnit) -> dict[str, Any]:
    return {
        "method": unit.method,
        "dataset": unit.dataset,
        "repeat": unit.repeat,
        "split": unit.split,
        **(unit.summary or {}),
    }


def interval_note() -> str:
    """What the intervals in results.json are."""
    return (
        f"ci_low and ci_high: {CONFIDENCE:.0%} percentile bootstrap over queries, "
        f"{RESAMPLES} resamples from the run's seed"
    )
