"""Which labels do the score files of a bundle give, and which figures follow from those alone?

What they do not determine is not looked at and said to be so; it is never passed over in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from runner.bundle.admission import Fault, fault_of
from runner.bundle.read import BundleView
from runner.errors import BundleError
from runner.model import Outcome, Unit
from runner.tasks import task_module
from runner.tasks.api import (
    SealedDataset,
    SealedFile,
    SealedSource,
    SealedUnit,
    SplitScore,
    Unavailable,
    UnitScores,
)
from runner.verify.documents import Documents, unit_files

CONTRADICTED = "its score files contradict the protocol or each other"
_SHOWN = 3
_BY_DATASET, _BY_TASK = ("per_dataset", "summaries", "determinism"), ("aggregate", "comparisons")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLabels:
    """The datasets whose labels the score files give; ``reasons`` why others have none."""

    datasets: Mapping[str, SealedDataset]
    reasons: Mapping[str, str]

    def detail(self, count: int) -> str:
        """Say what ``count`` recomputed figures rest on, and what was not looked at."""
        missing = [f"{name} ({reason})" for name, reason in self.reasons.items()]
        unseen = f"not looked at: {_some(missing)}" if missing else ""
        if not count:
            return unseen or "nothing was scored"
        parts = [f"{count} scores came out again from the sealed score files", self._origin()]
        believed = sum(dataset.believed for dataset in self.datasets.values())
        if believed:
            parts.append(
                f"{believed} figures of queries with relevant documents that no score file has "
                "were held within bounds only"
            )
        return "; ".join([*parts, unseen] if unseen else parts)

    def _origin(self) -> str:
        proven = [name for name, dataset in self.datasets.items() if dataset.proven]
        if proven and len(proven) == len(self.datasets):
            return "the labels in them have the digests that the protocol froze"
        but = f" but for {_some(proven)}, which have the protocol's digest" if proven else ""
        return f"the labels in them were not compared with the data{but} (--data-root does that)"


def sealed_labels(view: BundleView, documents: Documents, faults: list[Fault]) -> SealedLabels:
    """Read the labels of every dataset that has an ok unit; append a fault for every lie."""
    datasets: dict[str, SealedDataset] = {}
    reasons: dict[str, str] = {}
    for entry in documents.protocol.datasets:
        units = [
            record.unit
            for record in documents.outcomes
            if record.unit.dataset == entry.name and record.outcome is Outcome.OK
        ]
        if not units:
            continue
        source = SealedSource(
            entry=entry,
            protocol=documents.protocol,
            splits=documents.plan.splits,
            units=tuple(found for unit in units if (found := _files(view, unit)) is not None),
        )
        try:
            labels = task_module(entry.task).sealed_dataset(source)
        except BundleError as error:
            faults.append(fault_of(error, "scores"))
            reasons[entry.name] = CONTRADICTED
            continue
        if isinstance(labels, Unavailable):
            reasons[entry.name] = labels.reason
        else:
            datasets[entry.name] = labels
    return SealedLabels(datasets=datasets, reasons=reasons)


def stored_scores(documents: Documents, unit: Unit) -> UnitScores:
    """Return the figures of results.json for a unit that cannot be scored: those beside it are
    looked at all the same."""
    rows = {
        (row["split"], row["metric"]): row
        for row in documents.results["per_dataset"]
        if (row["method"], row["dataset"]) == (unit.method, unit.dataset)
    }
    entry = documents.protocol.dataset(unit.dataset)
    metrics = documents.protocol.metrics_of(entry.task)
    return UnitScores(
        splits=tuple(
            SplitScore(
                split=split,
                queries=0,
                scores={name: rows.get((split, name), {}).get("score") for name in metrics},
            )
            for split in documents.plan.splits
        ),
        artifact=None,
    )


def known_figures(
    results: Mapping[str, Any], documents: Documents, unknown: Iterable[str]
) -> dict[str, Any]:
    """Return results.json without what rests on datasets that were not looked at."""
    left = frozenset(unknown)
    if not left:
        return dict(results)
    tasks = {documents.protocol.dataset(name).task for name in left}
    kept = dict(results)
    for table in _BY_DATASET:
        if table in kept:
            kept[table] = [row for row in kept[table] if row["dataset"] not in left]
    for table in _BY_TASK:
        if table in kept:
            kept[table] = [row for row in kept[table] if row["task"] not in tasks]
    return kept


def _files(view: BundleView, unit: Unit) -> SealedUnit | None:
    names = unit_files(unit)
    scores = _file(view, names["scores"])
    if scores is None:
        return None
    return SealedUnit(scores=scores, per_query=_file(view, names["per_query"]))


def _file(view: BundleView, path: str) -> SealedFile | None:
    entry = view.manifest.get(path)
    if entry is None:
        return None
    return SealedFile(path=path, size=entry.size, open=partial(view.open_verified, path))


def _some(items: list[str]) -> str:
    more = len(items) - _SHOWN
    shown = ", ".join(items[:_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown
