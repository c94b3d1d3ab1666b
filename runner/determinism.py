"""Do repeats of a method say the same, and if not, how far do its scores move? Pure.

Each repeat has its own seed, as the plan records; hash seed and thread counts are fixed. Rows that
differ between repeats thus follow the seed or nothing at all: executing the same plan again, with
the same seeds (`sealbench reproduce`), tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from runner.model import MethodPlan, Outcome, Plan
from runner.results import ScoredUnit
from runner.rows.form import RowsDigest
from runner.tasks.api import UnitScores


def with_rows_digest(scores: UnitScores, kind: str, lines: Iterable[bytes]) -> UnitScores:
    """Add the digest of a unit's rows, without measured times and whatever their order."""
    digest = RowsDigest(kind)
    digest.add_lines(lines)
    return replace(scores, rows_sha256=digest.hexdigest())


def determinism_section(plan: Plan, units: Sequence[ScoredUnit]) -> list[dict[str, Any]]:
    """Return an entry for each method and dataset; nothing where there is one repeat only."""
    if plan.repeats < 2:
        return []
    methods = {method.name: method for method in plan.methods}
    cells: dict[tuple[str, str], list[ScoredUnit]] = {}
    for unit in units:
        cells.setdefault((unit.method, unit.dataset), []).append(unit)
    datasets = dict.fromkeys(unit.dataset for unit in plan.units)
    seeds = [
        next(unit.seed for unit in plan.units if unit.repeat == repeat)
        for repeat in range(plan.repeats)
    ]
    return [
        _entry(method, dataset, cells[name, dataset], seeds)
        for name, method in methods.items()
        for dataset in datasets
        if method.image is not None  # a file that is read twice says nothing
    ]


def _entry(
    method: MethodPlan, dataset: str, units: Sequence[ScoredUnit], seeds: Sequence[int]
) -> dict[str, Any]:
    measured = [unit for unit in units if unit.outcome is Outcome.OK]
    digests = {unit.repeat: unit.rows_sha256 for unit in measured}
    distinct = len(set(digests.values()))
    enough = len(digests) > 1
    return {
        "method": method.name,
        "method_id": method.method_id,
        "dataset": dataset,
        "repeats": len(seeds),
        "measured": len(digests),
        "seeds": list(seeds),
        "threads": ceil(method.limits.cpus_milli / 1000),
        "rows_identical": distinct == 1 if enough else None,
        "distinct_rows": distinct if enough else None,
        "scores": list(_spreads(measured)) if enough else [],
    }


def _spreads(units: Sequence[ScoredUnit]) -> Iterable[dict[str, Any]]:
    """How far each score moves over the repeats that were measured."""
    values: dict[tuple[str, str], list[float | None]] = {}
    for unit in units:
        for metric, value in unit.score.scores.items():
            values.setdefault((unit.score.split, metric), []).append(value)
    for (split, metric), found in values.items():
        known = [value for value in found if value is not None]
        low, high = (min(known), max(known)) if len(known) == len(found) else (None, None)
        spread = None if low is None or high is None else high - low
        yield {"split": split, "metric": metric, "min": low, "max": high, "spread": spread}


def nondeterministic_lines(results: Mapping[str, Any], metric: str) -> Iterable[str]:
    """Yield a line for each method whose rows differ between repeats, with a metric's spread."""
    for entry in results.get("determinism", ()):
        if entry["rows_identical"] is not False:
            continue
        moves = [
            f"{one['metric']} on {one['split']} moves by {one['spread']:.6f}"
            for one in entry["scores"]
            if one["metric"] == metric and one["spread"] is not None
        ]
        yield (
            f"nondeterministic: {entry['method']} on {entry['dataset']}: "
            f"{entry['distinct_rows']} different sets of rows in {entry['measured']} repeats"
            + "".join(f"; {move}" for move in moves)
        )
