"""Did a re-execution come out the same? One verdict a method, and one for the run. Pure.

*identical*: every row has the same canonical bytes (all but measured times, see ``rowform``),
every outcome is the same. *equivalent*: rows and scores are within the tolerances that the
protocol declares, ranks are the same. *different*: not even that. *not_comparable*: one of the two
was never measured (cancelled, not started, the engine failed), with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from runner.compare_rows import RowsComparison
from runner.model import Outcome, Unit

DEFAULT_TOLERANCE = 1e-9
#: Outcomes that say nothing about the method.
UNMEASURED = frozenset({Outcome.CANCELLED, Outcome.NOT_STARTED, Outcome.ENGINE_ERROR})


class Verdict(StrEnum):
    """What a comparison came to, worst last."""

    IDENTICAL = "identical"
    EQUIVALENT = "equivalent"
    NOT_COMPARABLE = "not_comparable"
    DIFFERENT = "different"


_ORDER = list(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """Absolute tolerances. ``row_score`` None: numbers in rows may move freely, metrics decide."""

    row_score: float | None = DEFAULT_TOLERANCE
    metric: float = DEFAULT_TOLERANCE
    metrics: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, protocol: Mapping[str, Any]) -> Tolerances:
        """Return those of a protocol document; the defaults where it declares none."""
        found: Mapping[str, Any] = protocol.get("tolerances", {})
        metrics: Mapping[str, float] = found.get("metrics", {})
        return cls(row_score=found.get("row_score", DEFAULT_TOLERANCE), metrics=metrics)

    def for_metric(self, name: str) -> float:
        """Return how far a metric may move."""
        return self.metrics.get(name, self.metric)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSide:
    """One unit as one of the two executions left it."""

    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitComparison:
    """One unit of both. ``rows`` is None where rows were not compared; ``reason`` says why."""

    unit: Unit
    verdict: Verdict
    reason: str
    original: UnitSide
    reproduction: UnitSide
    rows: RowsComparison | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDifference:
    """A score that is not the same; ``move`` is None where one of them was not measured."""

    method: str
    dataset: str
    split: str
    metric: str
    original: float | None
    reproduction: float | None
    move: float | None
    tolerance: float
    within: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDifference:
    """A rank that is not the same; None is no rank."""

    method: str
    task: str
    split: str
    metric: str
    original: int | None
    reproduction: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodComparison:
    """One method over all its datasets and repeats."""

    method: str
    method_id: str
    verdict: Verdict
    reason: str
    units: tuple[UnitComparison, ...]
    scores: tuple[ScoreDifference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The whole of it. ``reason`` is one sentence for people."""

    verdict: Verdict
    reason: str
    tolerances: Tolerances
    methods: tuple[MethodComparison, ...]
    ranks: tuple[RankDifference, ...]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict over several; *identical* over none."""
    return max(verdicts, key=_ORDER.index, default=Verdict.IDENTICAL)


def rows_matter(original: UnitSide, reproduction: UnitSide) -> bool:
    """Are there rows on both sides that were scored? Those of a failed unit never are."""
    return original.outcome is Outcome.OK and reproduction.outcome is Outcome.OK


def compare_unit(
    unit: Unit, original: UnitSide, reproduction: UnitSide, rows: RowsComparison | None
) -> UnitComparison:
    """Judge one unit; ``rows`` is needed where ``rows_matter``."""
    verdict, reason = _judge(original, reproduction, rows)
    return UnitComparison(
        unit=unit,
        verdict=verdict,
        reason=reason,
        original=original,
        reproduction=reproduction,
        rows=rows,
    )


def _judge(
    original: UnitSide, reproduction: UnitSide, rows: RowsComparison | None
) -> tuple[Verdict, str]:
    for name, side in (("original", original), ("re-execution", reproduction)):
        if side.outcome in UNMEASURED:
            text = f"the {name} was not measured: {side.outcome.value}: {side.reason}"
            return Verdict.NOT_COMPARABLE, text
    if original.outcome is not reproduction.outcome:
        text = f"it was {original.outcome.value}, and is now {reproduction.outcome.value}"
        return Verdict.DIFFERENT, f"{text}: {reproduction.reason}"
    if rows is None:
        return Verdict.IDENTICAL, f"{original.outcome.value} both times; such rows are not scored"
    if not rows.differing:
        return Verdict.IDENTICAL, f"all {rows.compared} rows are the same"
    if rows.beyond:
        return Verdict.DIFFERENT, f"{rows.beyond} of {rows.compared} rows are not the same"
    text = f"{rows.differing} of {rows.compared} rows moved, by at most {rows.largest!r}"
    return Verdict.EQUIVALENT, f"{text}: within the tolerance"


def compare_scores(
    original: Mapping[str, Any], reproduction: Mapping[str, Any], tolerances: Tolerances
) -> tuple[ScoreDifference, ...]:
    """Return every score of two results documents that is not the same; both of one plan."""
    again = {_cell(row): row["score"] for row in reproduction["per_dataset"]}
    found = []
    for row in original["per_dataset"]:
        then, now = row["score"], again[_cell(row)]
        if then == now:
            continue
        move = None if then is None or now is None else abs(now - then)
        allowed = tolerances.for_metric(row["metric"])
        found.append(
            ScoreDifference(
                **{name: row[name] for name in ("method", "dataset", "split", "metric")},
                original=then,
                reproduction=now,
                move=move,
                tolerance=allowed,
                within=move is not None and move <= allowed,
            )
        )
    return tuple(found)


def compare_ranks(
    original: Mapping[str, Any], reproduction: Mapping[str, Any]
) -> tuple[RankDifference, ...]:
    """Return every rank of two results documents that is not the same."""
    names = ("method", "task", "split", "metric")
    again = {tuple(row[n] for n in names): row["rank"] for row in reproduction["aggregate"]}
    return tuple(
        RankDifference(
            **{name: row[name] for name in names}, original=row["rank"], reproduction=now
        )
        for row in original["aggregate"]
        if row["rank"] != (now := again[tuple(row[name] for name in names)])
    )


def compare_runs(
    units: Sequence[UnitComparison],
    original: Mapping[str, Any],
    reproduction: Mapping[str, Any],
    tolerances: Tolerances,
) -> Comparison:
    """Bring units, scores and ranks together; the documents are the two results.json."""
    scores = compare_scores(original, reproduction, tolerances)
    methods = tuple(_methods(units, scores))
    ranks = compare_ranks(original, reproduction)
    verdict = worst(method.verdict for method in methods)
    if ranks and verdict in (Verdict.IDENTICAL, Verdict.EQUIVALENT):
        verdict, reason = Verdict.DIFFERENT, f"{len(ranks)} ranks changed"
    else:
        counts = [
            f"{sum(method.verdict is one for method in methods)} {one.value}" for one in Verdict
        ]
        reason = "methods: " + ", ".join(text for text in counts if not text.startswith("0 "))
    return Comparison(
        verdict=verdict, reason=reason, tolerances=tolerances, methods=methods, ranks=ranks
    )


def _methods(
    units: Sequence[UnitComparison], scores: Sequence[ScoreDifference]
) -> Iterator[MethodComparison]:
    grouped: dict[str, list[UnitComparison]] = {}
    for item in units:
        grouped.setdefault(item.unit.method, []).append(item)
    for name, own in grouped.items():
        verdict = worst(item.verdict for item in own)
        reason = next(item.reason for item in own if item.verdict is verdict)
        moved = tuple(score for score in scores if score.method == name)
        # Scores of a unit that was not measured once are no finding of their own.
        if verdict in (Verdict.IDENTICAL, Verdict.EQUIVALENT):
            beyond = [score for score in moved if not score.within]
            if beyond:
                one = beyond[0]
                reason = (
                    f"{one.metric} on {one.dataset} ({one.split}) was {one.original!r}, "
                    f"and is now {one.reproduction!r}"
                )
                verdict = Verdict.DIFFERENT
            elif moved:
                verdict = Verdict.EQUIVALENT
        yield MethodComparison(
            method=name,
            method_id=own[0].unit.method_id,
            verdict=verdict,
            reason=reason,
            units=tuple(own),
            scores=moved,
        )


def _cell(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in ("method", "dataset", "split", "metric"))
