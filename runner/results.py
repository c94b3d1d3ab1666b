"""Scores of units -> results.json: per-dataset rows, aggregates, coverage, eligibility, ranks.

Pure. A failed or unmeasured score is null with a reason; it is never 0, never averaged, never
hidden. A method is eligible for a rank only with a finite score on every declared dataset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from runner.comparisons import Field, Ranked, aggregate_replicates, compare
from runner.metrics.bootstrap import (
    CONFIDENCE,
    RESAMPLES,
    percentile_interval,
)
from runner.metrics.direction import lower_is_better
from runner.model import MethodPlan, Outcome, Plan, UnitOutcome
from runner.replicates import Replicates
from runner.tasks.api import SplitScore


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredUnit:
    """The scores of one unit on one split."""

    method: str
    dataset: str
    repeat: int
    outcome: Outcome
    score: SplitScore
    rows_sha256: str | None = None


Cells = dict[tuple[str, str, str], list[ScoredUnit]]  # (method, dataset, split) -> repeats
NONE: tuple[None, None] = (None, None)
#: Why a metric has no interval where its task does not say more.
NOTHING_COUNTED = "a resample leaves nothing that the metric could count"


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
    reason = f"{outcome.outcome.value}: {outcome.reason}"
    return ScoredUnit(
        method=outcome.unit.method,
        dataset=outcome.unit.dataset,
        repeat=outcome.unit.repeat,
        outcome=outcome.outcome,
        score=SplitScore(
            split=split,
            queries=queries,
            scores=dict.fromkeys(names),
            reasons=dict.fromkeys(names, reason),
        ),
    )


def competition_ranks(
    scores: Mapping[str, float | None], *, lowest_first: bool = False
) -> dict[str, int | None]:
    """Rank names by score, ties sharing the better rank (1, 1, 3); null for None.

    High scores come first, or low ones for a metric of which less is better.
    """
    ranked = [value for value in scores.values() if value is not None]
    if lowest_first:
        return {
            name: None if value is None else 1 + sum(other < value for other in ranked)
            for name, value in scores.items()
        }
    return {
        name: None if value is None else 1 + sum(other > value for other in ranked)
        for name, value in scores.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One task of a protocol. Rankings of different tasks never share a table."""

    task: str
    metrics: Sequence[str]
    datasets: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What the results are over."""

    plan: Plan
    sections: Sequence[Section]


def build_results(
    scope: Scope, units: Sequence[ScoredUnit], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the document results.json; ``units`` has one entry for every unit and split."""
    cells: Cells = {}
    for unit in units:
        cells.setdefault((unit.method, unit.dataset, unit.score.split), []).append(unit)
    replicates = Replicates(scope.plan.seed)
    per_dataset: list[dict[str, Any]] = []
    aggregate: list[dict[str, Any]] = []
    comparisons: list[dict[str, Any]] = []
    for section in scope.sections:
        for split in scope.plan.splits:
            for metric in section.metrics:
                per_dataset += _dataset_rows(scope.plan, section, split, metric, cells)
                aggregate += _aggregate_rows(
                    scope.plan, section, (split, metric), cells, replicates
                )
            field = _field(scope.plan, section, split, cells)
            ranked = _ranked(scope.plan.baseline, section, split, aggregate)
            comparisons += compare(field, ranked, replicates, scope.plan.seed)
    return {
        "schema": "sealbench/results/v1",
        "protocol_id": scope.plan.protocol_id,
        "run_id": scope.plan.run_id,
        "per_dataset": per_dataset,
        "aggregate": aggregate,
        "comparisons": comparisons,
        "summaries": [_summary(unit) for unit in units if unit.score.summary is not None],
        "notes": list(notes),
    }


def merge_repeats(units: Sequence[ScoredUnit], metric: str) -> DatasetScore:
    """One cell over its repeats: their mean, or null as soon as one of them has no score."""
    ordered = sorted(units, key=lambda unit: unit.repeat)
    for unit in ordered:
        value = unit.score.scores[metric]
        if value is None or not isfinite(value):
            reason = unit.score.reasons.get(metric, "the score is not finite")
            if len(ordered) > 1:
                reason = f"repeat {unit.repeat}: {reason}"
            return DatasetScore(
                score=None, n=unit.score.queries, outcome=unit.outcome, error=reason
            )
    values = [unit.score.scores[metric] or 0.0 for unit in ordered]
    return DatasetScore(
        score=sum(values) / len(values),
        n=ordered[0].score.queries,
        outcome=ordered[0].outcome,
        error=None,
    )


def _dataset_rows(
    plan: Plan, section: Section, split: str, metric: str, cells: Cells
) -> list[dict[str, Any]]:
    rows = []
    for method in plan.methods:
        for dataset in section.datasets:
            cell = merge_repeats(cells[method.name, dataset, split], metric)
            rows.append(
                {
                    "method": method.name,
                    "method_id": method.method_id,
                    "task": section.task,
                    "dataset": dataset,
                    "split": split,
                    "metric": metric,
                    "score": cell.score,
                    "n": cell.n,
                    "eligible": cell.score is not None,
                    "outcome": cell.outcome.value,
                    "error": cell.error,
                    **_imported(method),
                }
            )
    return rows


def _aggregate_rows(
    plan: Plan, section: Section, column: tuple[str, str], cells: Cells, replicates: Replicates
) -> list[dict[str, Any]]:
    split, metric = column
    expected = len(section.datasets)
    found: dict[str, list[float]] = {}
    for method in plan.methods:
        scores = [
            merge_repeats(cells[method.name, dataset, split], metric).score
            for dataset in section.datasets
        ]
        found[method.name] = [score for score in scores if score is not None]
    means = {
        name: sum(scores) / expected if len(scores) == expected else None
        for name, scores in found.items()
    }
    ranks = competition_ranks(means, lowest_first=lower_is_better(metric))
    rows = []
    for method in plan.methods:
        mean, covered = means[method.name], len(found[method.name])
        low, high = NONE
        reason: dict[str, str] = {}
        if mean is not None:
            units = [cells[method.name, name, split] for name in section.datasets]
            low, high = _interval(units, metric, replicates)
            if low is None:
                reason = {"ci_reason": _no_interval(units, metric, replicates)}
        rows.append(
            {
                "method": method.name,
                "method_id": method.method_id,
                "task": section.task,
                "split": split,
                "metric": metric,
                "mean_score": mean,
                "ci_low": low,
                "ci_high": high,
                **reason,
                "dataset_count": covered,
                "expected_dataset_count": expected,
                "coverage": covered / expected,
                "complete_coverage": covered == expected,
                "eligible": mean is not None,
                "rank": ranks[method.name],
                **_imported(method),
            }
        )
    return rows


def _imported(method: MethodPlan) -> dict[str, bool]:
    """The mark of a method that nobody executed here; absent from all others."""
    return {"executed": False} if method.image is None else {}


def _interval(
    datasets: Sequence[Sequence[ScoredUnit]], metric: str, replicates: Replicates
) -> tuple[float | None, float | None]:
    """The interval of the mean over datasets, each of which is a sequence of repeats."""
    scores = [[unit.score for unit in repeats] for repeats in datasets]
    total, linear = aggregate_replicates(scores, metric, replicates)
    return NONE if total is None else percentile_interval(total, linear=linear)


def _no_interval(
    datasets: Sequence[Sequence[ScoredUnit]], metric: str, replicates: Replicates
) -> str:
    """Why a mean that there is has no interval: the first dataset's reason that has one."""
    for position, repeats in enumerate(datasets):
        for unit in repeats:
            if replicates.of(unit.score, metric, position) is None:
                why = unit.score.no_interval.get(metric, NOTHING_COUNTED)
                return f"{unit.dataset}: {why}"
    return NOTHING_COUNTED


def _field(plan: Plan, section: Section, split: str, cells: Cells) -> Field:
    """All scores of one task on one split."""

    def scores(method: str, dataset: str) -> list[SplitScore]:
        units = sorted(cells[method, dataset, split], key=lambda unit: unit.repeat)
        return [unit.score for unit in units]

    return Field(
        task=section.task,
        split=split,
        scores={
            method.name: [scores(method.name, name) for name in section.datasets]
            for method in plan.methods
        },
    )


def _ranked(
    baseline: str | None, section: Section, split: str, aggregate: Sequence[Mapping[str, Any]]
) -> list[Ranked]:
    """The eligible methods on every metric of a section and split."""
    found = []
    for metric in section.metrics:
        key = (section.task, split, metric)
        rows = [
            row
            for row in aggregate
            if (row["task"], row["split"], row["metric"]) == key and row["eligible"]
        ]
        found.append(
            Ranked(
                metric=metric,
                means={row["method"]: row["mean_score"] for row in rows},
                best=next((row["method"] for row in rows if row["rank"] == 1), None),
                baseline=baseline,
            )
        )
    return found


def _summary(unit: ScoredUnit) -> dict[str, Any]:
    return {
        "method": unit.method,
        "dataset": unit.dataset,
        "repeat": unit.repeat,
        "split": unit.score.split,
        **(unit.score.summary or {}),
    }


def interval_note() -> str:
    """What the intervals in results.json are."""
    return (
        f"ci_low and ci_high: {CONFIDENCE:.0%} percentile bootstrap over queries, groups of pairs "
        f"or reviewers, {RESAMPLES} resamples from the run's seed"
    )
