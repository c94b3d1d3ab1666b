"""Outcomes and rows -> results.json: what the run writes and what the verifier recomputes.

Both call ``score_run``, over their own way of reading rows; neither trusts a figure of the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.comparisons import note as comparison_note
from runner.determinism import determinism_section
from runner.expectation import cut_short
from runner.model import Outcome, Plan, Unit, UnitOutcome
from runner.protocol.load import Protocol
from runner.results import Scope, ScoredUnit, Section, build_results, failed_unit, interval_note
from runner.rows.read import file_lines, read_rows
from runner.tasks import task_module
from runner.tasks.api import Dataset, UnitScores

#: Scores the rows of one unit, wherever they lie.
ScoreUnit = Callable[[Unit, Dataset], UnitScores]


def scope_of(plan: Plan, protocol: Protocol) -> Scope:
    """What the results of a plan under a protocol are over: a section for each task."""
    return Scope(
        plan=plan,
        sections=tuple(
            Section(
                task=task,
                metrics=protocol.metrics_of(task),
                datasets=tuple(one.name for one in protocol.datasets if one.task == task),
            )
            for task in protocol.tasks
        ),
    )


def score_parts(
    parts: Sequence[Path],
    dataset: Dataset,
    protocol: Protocol,
    splits: Sequence[str],
    *,
    artifact: Path | None = None,
) -> UnitScores:
    """Score the row files of one unit, read as one file in the order given.

    A faulty or missing row leaves the metrics unmeasured, with the reason; it is never an error.
    """
    task = task_module(protocol.dataset(dataset.name).task)
    with task.unit_scorer(dataset, protocol, splits, artifact=artifact) as scorer:
        report = read_rows(part_lines(parts), scorer.checker(), on_block=scorer.add).report
        return scorer.result(report)


def part_lines(parts: Iterable[Path]) -> Iterator[bytes]:
    """Yield the lines of row files, read as one file in the order given."""
    for part in parts:
        with part.open("rb") as stream:
            yield from file_lines(stream)


def score_run(
    plan: Plan,
    protocol: Protocol,
    datasets: Mapping[str, Dataset],
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
    document = build_results(
        scope_of(plan, protocol), units, (*notes, interval_note(), comparison_note())
    )
    repeated = determinism_section(plan, units)
    return {**document, "determinism": repeated} if repeated else document


def _scored(record: UnitOutcome, scores: UnitScores) -> list[ScoredUnit]:
    return [
        ScoredUnit(
            method=record.unit.method,
            dataset=record.unit.dataset,
            repeat=record.unit.repeat,
            outcome=record.outcome,
            score=split,
            rows_sha256=scores.rows_sha256,
        )
        for split in scores.splits
    ]


def _unscored(record: UnitOutcome, plan: Plan, protocol: Protocol) -> list[ScoredUnit]:
    dataset = protocol.dataset(record.unit.dataset)
    metrics = protocol.metrics_of(dataset.task)
    return [
        failed_unit(record, split, dataset.splits[split].queries, metrics) for split in plan.splits
    ]


def import_notes(plan: Plan) -> list[str]:
    """What the results must say about methods that nobody executed here."""
    return [
        f"{method.name} is precomputed: its rows were imported from files, not executed here"
        for method in plan.methods
        if method.image is None
    ]


def outcome_notes(outcomes: Iterable[UnitOutcome]) -> list[str]:
    """What the results must say about units that ended other than ok."""
    records = tuple(outcomes)
    counts = Counter(record.outcome for record in records)
    notes = [
        f"{count} of the planned units ended as {outcome.value}: their scores are null"
        for outcome, count in sorted(counts.items())
        if outcome is not Outcome.OK
    ]
    if any(map(cut_short, records)):
        notes.append("incomplete: not every planned unit was run to its end")
    return notes
