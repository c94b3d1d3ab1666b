"""Rows of a bundle -> every figure again; nothing that is stored is believed.

Everything is computed anew from rows and labels, and compared. Who has no data takes the labels
from the score files in the bundle (``sealed``). Where those do not determine them, rows are checked
for form and completeness (the protocol has the digest of the query ids), and aggregates against
the per-dataset scores.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from runner.bundle.admission import Fault, fault_of
from runner.bundle.read import BundleView
from runner.determinism import with_rows_digest
from runner.errors import BundleError
from runner.latency import KIND as LATENCY_KIND
from runner.latency import Latencies
from runner.metrics.direction import lower_is_better
from runner.model import Outcome, RowsReport, Unit, UnitOutcome
from runner.protocol.splits import ids_sha256, split_order
from runner.results import competition_ranks
from runner.rows.read import RowChecker, file_lines, read_rows
from runner.scoring import import_notes, outcome_notes, results_document, score_run
from runner.tasks import task_module
from runner.tasks.api import Dataset, Scorer, SealedDataset, Task, UnitScores, per_query_path
from runner.verify.comparisons import comparison_faults
from runner.verify.documents import Documents, row_parts, unit_files
from runner.verify.sealed import known_figures, sealed_labels, stored_scores
from runner.verify.times import latency_faults

#: Two correct computations may differ in the last bits: another order of additions.
RELATIVE, ABSOLUTE = 1e-9, 1e-12
MAX_FAULTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCheck:
    """One bundle's rows and figures under examination; every finding goes into ``faults``."""

    view: BundleView
    documents: Documents
    faults: list[Fault]
    reference: bool

    def from_score_files(self) -> str:
        """Recompute what the labels in the score files determine; say in words what that was."""
        documents = self.documents
        labels = sealed_labels(self.view, documents, self.faults)
        for record in documents.outcomes:
            if record.outcome is not Outcome.OK or record.unit.dataset in labels.reasons:
                self._check_form(record)

        def score(record: UnitOutcome, dataset: SealedDataset | None, path: Path) -> UnitScores:
            if dataset is None:
                return stored_scores(documents, record.unit)
            own = dataset.of_unit(unit_files(record.unit)["scores"])
            return self._score(record, own, path)

        datasets = {**dict.fromkeys(labels.reasons), **labels.datasets}
        again = known_figures(self._results(datasets, score), documents, labels.reasons)
        stored = known_figures(documents.results, documents, labels.reasons)
        self.faults.extend(compare_results(stored, again))
        if labels.reasons:
            self.faults.extend(_cell_faults(documents))
            self.faults.extend(_aggregate_faults(documents.results))
            self.faults.extend(comparison_faults(documents.results, documents.plan.baseline))
        return labels.detail(len(again["per_dataset"]) + len(again["aggregate"]))

    def recompute(self, datasets: Mapping[str, Dataset]) -> None:
        """Compute every score, interval, rank and score artifact from the rows, and compare."""
        for record in self.documents.outcomes:
            if record.outcome is not Outcome.OK:
                self._check_partial(record, datasets[record.unit.dataset])
        again = self._results(datasets, self._score)
        self.faults.extend(compare_results(self.documents.results, again))

    def _results(
        self, datasets: Mapping[str, Any], score: Callable[[UnitOutcome, Any, Path], UnitScores]
    ) -> dict[str, Any]:
        """Return results.json, made anew; its notes are those alone that follow from the run."""
        documents = self.documents
        records = {record.unit.unit_id: record for record in documents.outcomes}
        with tempfile.TemporaryDirectory(prefix="sealbench-verify-") as folder:
            artifact = Path(folder) / "scores.csv"
            units = score_run(
                documents.plan,
                documents.protocol,
                datasets,
                documents.outcomes,
                lambda unit, dataset: score(records[unit.unit_id], dataset, artifact),
            )
        # Words that explain figures are not figures: another version may choose others.
        notes = [*import_notes(documents.plan), *outcome_notes(documents.outcomes)]
        return {**results_document(documents.plan, documents.protocol, units, ()), "notes": notes}

    def _check_form(self, record: UnitOutcome) -> None:
        """Check rows by themselves: form, completeness, and what their record says of them."""
        keys: list[str] = []
        report = self._read(record, self._task(record).row_checker(), partial(_take_keys, keys))
        self.faults.extend(_row_faults(record, report))
        if record.outcome is Outcome.OK and report is not None:
            self.faults.extend(_key_faults(self.documents, record, keys))

    def _score(self, record: UnitOutcome, dataset: Dataset, artifact: Path) -> UnitScores:
        with self._scorer(record, dataset, artifact) as scorer:
            report = self._read(record, scorer.checker(), scorer.add)
            self.faults.extend(_row_faults(record, report))
            scores = scorer.result(report or _nothing(record))
        self.faults.extend(_artifact_faults(self.view, record.unit, scores))
        for file in (artifact, per_query_path(artifact)):
            file.unlink(missing_ok=True)
        parts = row_parts(self.view, record.unit)
        if self.documents.plan.repeats == 1 or report is None:
            return scores
        return with_rows_digest(scores, self._task(record).ROW_KIND, _lines(self.view, parts))

    def _check_partial(self, record: UnitOutcome, dataset: Dataset) -> None:
        """Rows of a unit that is not ok: as many valid ones as its record says, no other."""
        with self._scorer(record, dataset, None) as scorer:
            report = self._read(record, scorer.checker(), None)
        self.faults.extend(_row_faults(record, report))

    def _task(self, record: UnitOutcome) -> Task:
        return task_module(self.documents.protocol.dataset(record.unit.dataset).task)

    def _scorer(self, record: UnitOutcome, dataset: Dataset, artifact: Path | None) -> Scorer:
        protocol, splits = self.documents.protocol, self.documents.plan.splits
        return self._task(record).unit_scorer(dataset, protocol, splits, artifact=artifact)

    def _read(
        self,
        record: UnitOutcome,
        checker: RowChecker[Any],
        on_block: Callable[[list[Any]], object] | None,
    ) -> RowsReport | None:
        """Read all row files of a unit as one; None when there is none or one is not as listed."""
        parts = row_parts(self.view, record.unit)
        if not parts:
            return None
        lines = _lines(self.view, parts)
        latencies = Latencies()
        if record.image is not None and checker.kind == LATENCY_KIND:
            on_block = _both(latencies.add, on_block)
        try:
            found = read_rows(lines, checker, on_block=on_block, reference=self.reference)
        except BundleError as error:
            self.faults.append(fault_of(error, parts[0]))
            return None
        self.faults.extend(latency_faults(record, latencies.total_ms))
        room = max(0, MAX_FAULTS - len(self.faults))
        for row in found.report.faults[:room]:
            fault = Fault(file=parts[0], code=row.code, message=row.message, line=row.line)
            self.faults.append(fault)
        return found.report


def _lines(view: BundleView, parts: list[str]) -> Iterator[bytes]:
    for part in parts:
        with view.open_verified(part) as stream:
            yield from file_lines(stream)


def _both(
    first: Callable[[list[Any]], object], second: Callable[[list[Any]], object] | None
) -> Callable[[list[Any]], object]:
    def take(rows: list[Any]) -> None:
        first(rows)
        if second is not None:
            second(rows)

    return take


def _take_keys(keys: list[str], rows: list[Any]) -> None:
    keys.extend(row[0] for row in rows)


def _nothing(record: UnitOutcome) -> RowsReport:
    expected = record.evidence.rows.expected if record.evidence.rows else 0
    return RowsReport(expected=expected, valid=0, missing=expected, errors=0)


def _row_faults(record: UnitOutcome, report: RowsReport | None) -> Iterator[Fault]:
    """Does the record tell the truth about the rows that are there?"""
    place = unit_files(record.unit)["rows"].rstrip("/")
    said = record.evidence.rows
    if report is None or said is None:
        if (report is None or report.valid == 0) != (said is None or said.valid == 0):
            message = "the outcome record and the row files disagree whether there are rows"
            yield Fault(file=place, code="bundle.rows", message=message)
        return
    if (report.valid, report.errors) != (said.valid, said.errors):
        message = (
            f"{report.valid} valid rows, {report.errors} with an error; "
            f"the outcome record says {said.valid} and {said.errors}"
        )
        yield Fault(file=place, code="bundle.rows", message=message)
    if said.first_error not in (None, report.first_error):
        message = "the outcome record gives another first error than the rows"
        yield Fault(file=place, code="bundle.rows", message=message)


def _key_faults(documents: Documents, record: UnitOutcome, keys: list[str]) -> Iterator[Fault]:
    """Are these exactly the planned queries? The protocol has their number and digest."""
    entry = documents.protocol.dataset(record.unit.dataset)
    splits, asked = entry.splits, set(documents.plan.splits)
    whole = "all" in asked or len(asked) > 1 or entry.task == "pair"
    name = "all" if whole else next(iter(asked))
    found = ids_sha256(split_order(keys))
    if len(keys) != splits[name].queries or found != splits[name].ids_sha256:
        message = f"its query ids are not those of split {name}: some are missing, or others there"
        place = unit_files(record.unit)["rows"].rstrip("/")
        yield Fault(file=place, code="bundle.rows", message=message)


def _artifact_faults(view: BundleView, unit: Unit, scores: UnitScores) -> Iterator[Fault]:
    for kind, again in (("scores", scores.artifact), ("per_query", scores.per_query)):
        path = unit_files(unit)[kind]
        entry = view.manifest.get(path)
        if (entry and entry.sha256) != (again and again.sha256):
            message = "it is not what the rows and the labels give"
            yield Fault(file=path, code="bundle.score-artifact", message=message)


def _cell_faults(documents: Documents) -> Iterator[Fault]:
    """Is there one per-dataset row for every planned cell, and null where a unit was not ok?"""
    plan, protocol = documents.plan, documents.protocol
    ids = {method.name: method.method_id for method in plan.methods}
    failed = {
        (record.unit.method, record.unit.dataset)
        for record in documents.outcomes
        if record.outcome is not Outcome.OK
    }
    expected = {
        (split, metric, method, ids[method], dataset.name)
        for split in plan.splits
        for dataset in protocol.datasets
        for metric in protocol.metrics_of(dataset.task)
        for method in ids
    }
    names = ("split", "metric", "method", "method_id", "dataset")
    rows = documents.results["per_dataset"]
    found = [tuple(row[name] for name in names) for row in rows]
    if set(found) != expected or len(found) != len(expected):
        message = "it has not exactly one row for each planned method, dataset, split and metric"
        yield _results_fault("per_dataset", message)
    for index, row in enumerate(rows):
        if (row["method"], row["dataset"]) in failed and row["score"] is not None:
            yield _results_fault(f"per_dataset[{index}]" + _label(row), "a failed unit has a score")
        if row["eligible"] != (row["score"] is not None):
            yield _results_fault(f"per_dataset[{index}]" + _label(row), "eligible is not as scored")


def _aggregate_faults(results: Mapping[str, Any]) -> Iterator[Fault]:
    """Means, coverage, eligibility and ranks follow from the per-dataset scores."""
    scores: dict[tuple[str, str, str], list[float | None]] = {}
    for row in results["per_dataset"]:
        cell = (row["split"], row["metric"], row["method"])
        scores.setdefault(cell, []).append(row["score"])
    means: dict[tuple[str, str], dict[str, float | None]] = {}
    for (split, metric, method), found in scores.items():
        present = [score for score in found if score is not None]
        complete = len(present) == len(found)
        mean = sum(present) / len(found) if complete else None
        means.setdefault((split, metric), {})[method] = mean
    ranks = {
        (split, metric): competition_ranks(found, lowest_first=lower_is_better(metric))
        for (split, metric), found in means.items()
    }
    rows = [(row["split"], row["metric"], row["method"]) for row in results["aggregate"]]
    if sorted(rows) != sorted(scores):
        yield _results_fault("aggregate", "it has not one row for each method, split and metric")
        return
    for index, row in enumerate(results["aggregate"]):
        key, method = (row["split"], row["metric"]), row["method"]
        mean, rank = means[key][method], ranks[key][method]
        found = scores[row["split"], row["metric"], method]
        covered = sum(score is not None for score in found)
        expected = {
            "mean_score": mean,
            "rank": rank,
            "dataset_count": covered,
            "expected_dataset_count": len(found),
            "coverage": covered / len(found),
            "complete_coverage": covered == len(found),
            "eligible": mean is not None,
        }
        stored = {name: row[name] for name in expected}
        yield from _differences(stored, expected, f"aggregate[{index}]", _label(row))


def compare_results(stored: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a fault for every figure of results.json that is not the recomputed one."""
    for name in ("protocol_id", "run_id"):
        yield from _differences(stored[name], again[name], name, "")
    for name in ("per_dataset", "aggregate", "comparisons", "summaries"):
        before, after = stored.get(name, []), again[name]
        if len(before) != len(after):
            counts = f"{len(before)} entries, recomputed {len(after)}"
            yield _results_fault(name, f"it has {counts}")
            continue
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, f"{name}[{index}]", _label(other))
    yield from _differences(
        stored.get("determinism", []), again.get("determinism", []), "determinism", ""
    )
    missing = [note for note in again["notes"] if note not in stored["notes"]]
    if missing:
        yield _results_fault("notes", f"it leaves out: {missing[0]}")


def _label(row: Mapping[str, Any]) -> str:
    names = ("method", "other", "dataset", "split", "metric")
    return " (" + ", ".join(str(row[name]) for name in names if name in row) + ")"


def _differences(stored: Any, again: Any, path: str, label: str) -> Iterator[Fault]:
    if isinstance(stored, dict) and isinstance(again, dict):
        for key in sorted(stored.keys() | again.keys()):
            yield from _differences(stored.get(key), again.get(key), f"{path}.{key}", label)
    elif isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
        for index, (one, other) in enumerate(zip(stored, again, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]", label)
    elif not _same(stored, again):
        yield _results_fault(path + label, f"it is {stored!r}, recomputed {again!r}")


def _same(stored: Any, again: Any) -> bool:
    # bool is an int to Python, and 1 == 1.0: compare numbers as numbers and nothing else.
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (stored, again))
    if numbers and (isinstance(stored, float) or isinstance(again, float)):
        return math.isclose(stored, again, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(stored) is type(again) and bool(stored == again)


def _results_fault(path: str, message: str) -> Fault:
    return Fault(
        file="results.json", code="bundle.recomputed-differs", message=f"{path}: {message}"
    )
