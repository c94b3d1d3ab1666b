"""Outcomes and rows -> results.json: what the run writes and what the verifier recomputes.

Both call ``score_run``, over their own way of reading rows; neither trusts a figure of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from runner.datasets.beir import RetrievalDataset
from runner.model import Outcome, Plan, Unit, UnitOutcome
from runner.protocol.load import Protocol
from runner.results import Scope, ScoredUnit, build_results, failed_unit, interval_note
from runner.tasks.retrieval_score import UnitScores

#: Scores the rows of one unit, wherever they lie.
ScoreUnit = Callable[[Unit, RetrievalDataset], UnitScores]


def scope_of(plan: Plan, protocol: Protocol) -> Scope:
    """What the results of a plan under a protocol are over."""
    return Scope(
        plan=plan,
        task=protocol.datasets[0].task,
        metrics=protocol.metrics,
        datasets=tuple(dataset.name for dataset in protocol.datasets),
    )


def score_run(
    plan: Plan,
    protocol: Protocol,
    datasets: Mapping[str, RetrievalDataset],
    outcomes: Sequence[UnitOutcome],
    score: ScoreUnit,
) -> list[ScoredUnit]:
    """Return the scores of every unit on every split; null for each unit that is not ok."""
    found: list[ScoredUnit] = []
    for record in outcomes:
        if record.outcome is Outcome.OK:
            found += _scored(record, score(record.unit, datasets[record.unit.dataset]))
        else:
            found += _unscored(record, plan, protocol)
    return found


def results_document(
    plan: Plan, protocol: Protocol, units: Sequence[ScoredUnit], notes: Iterable[str]
) -> dict[str, Any]:
    """Return results.json."""
    return build_results(scope_of(plan, protocol), units, (*notes, interval_note()))


def _scored(record: UnitOutcome, scores: UnitScores) -> list[ScoredUnit]:
    return [
        ScoredUnit(
            method=record.unit.method,
            dataset=record.unit.dataset,
            repeat=record.unit.repeat,
            split=split.split,
            outcome=record.outcome,
            queries=split.queries,
            scores=split.scores,
            reasons=split.reasons,
            samples=split.samples,
            summary=split.summary,
        )
        for split in scores.splits
    ]


def _unscored(record: UnitOutcome, plan: Plan, protocol: Protocol) -> list[ScoredUnit]:
    splits = protocol.dataset(record.unit.dataset).splits
    return [
        failed_unit(record, split, splits[split].queries, protocol.metrics) for split in plan.splits
    ]


def outcome_notes(outcomes: Iterable[UnitOutcome]) -> list[str]:
    """What the results must say about units that ended other than ok."""
    counts: dict[Outcome, int] = {}
    for record in outcomes:
        counts[record.outcome] = counts.get(record.outcome, 0) + 1
    notes = [
        f"{count} of the planned units ended as {outcome.value}: their scores are null"
        for outcome, count in sorted(counts.items())
        if outcome is not Outcome.OK
    ]
    if Outcome.CANCELLED in counts or Outcome.NOT_STARTED in counts:
        notes.append("incomplete: not every planned unit was run to its end")
    return notes
