"""Run one sealed unit again on a part of its inputs, and return the rows that it gives.

The same image, command, config, environment and limits, through the supervisor like every unit;
no network, and a cache that is empty. What the container leaves is removed with its folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from runner.harvest import harvest
from runner.model import ImagePin, MethodPlan, Outcome, UnitOutcome
from runner.outcome import classify
from runner.progress import Reporter
from runner.progress_text import UnitTick
from runner.purge import purge
from runner.request import UnitRequest, UnitResult, container_user, method_env
from runner.rows.form import parse_row
from runner.rows.read import RetrievalIds, RetrievalRows, file_lines
from runner.signals import CancelToken
from runner.supervisor import Platform, run_unit
from runner.tasks.api import TaskOptions
from runner.tasks.code_collection import Collection
from runner.tasks.retrieval_part import write_part


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What units are run again on. ``images``: pin -> the engine's id; ``folder`` is ours alone."""

    run_id: str
    images: Mapping[ImagePin, str]
    models: Mapping[str, Path | None]
    platform: Platform
    folder: Path
    reporter: Reporter
    cancel: CancelToken


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The part of a dataset that is asked about, and what is left of the wall budget."""

    dataset: Collection
    queries: Sequence[str]
    documents: frozenset[str]
    left_ms: int


class Unmeasured(Exception):
    """A container gave no rows to compare; the text says why."""


def recompute(
    bench: Bench, record: UnitOutcome, method: MethodPlan, asked: Asked
) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the row of every query, each over all the documents, and the milliseconds it took.

    Raises ``Unmeasured`` for any outcome but ok, and ``StorageError`` when the disk fails.
    """
    place = bench.folder / "unit"

    def progress(tick: UnitTick) -> None:
        bench.reporter.unit_tick(record.unit, tick)

    try:
        request = _request(bench, record, method, (asked, place))
        result = run_unit(bench.platform, request, cancel=bench.cancel, on_progress=progress)
        ended = _ended(record, request, result, asked)
        bench.reporter.unit_finished(ended)
        if ended.outcome is not Outcome.OK:
            raise Unmeasured(f"not computed again, {ended.outcome.value}: {ended.reason}")
        return dict(_rows(_rows_folder(request))), result.wall_ms_used
    finally:
        purge(place)


def _ended(
    record: UnitOutcome, request: UnitRequest, result: UnitResult, asked: Asked
) -> UnitOutcome:
    """Take the rows over and judge the unit, as for every other one."""
    evidence, limits = result.evidence, request.limits
    if evidence.started and evidence.death_proven:
        checker = RetrievalRows(RetrievalIds.of(asked.queries, asked.documents))
        found = harvest(
            request.out_dir, limits=limits, checker=checker, rows_dir=_rows_folder(request)
        )
        evidence = replace(evidence, rows=found.rows, harvest_refused=found.refused)
    outcome, reason = classify(evidence, limits)
    return replace(
        record, outcome=outcome, reason=reason, evidence=evidence, started=result.started
    )


def _rows_folder(request: UnitRequest) -> Path:
    return request.out_dir.with_name("rows")


def _request(
    bench: Bench, record: UnitOutcome, method: MethodPlan, what: tuple[Asked, Path]
) -> UnitRequest:
    (asked, place), unit = what, record.unit
    place.mkdir()
    place.chmod(0o711)
    for name in ("out", "work", "cache", "logs"):
        (place / name).mkdir()
    options = TaskOptions(
        seed=unit.seed,
        top_k=len(asked.documents),
        threads=ceil(method.limits.cpus_milli / 1000),
        config=method.config,
    )
    write_part(asked.dataset, asked.queries, asked.documents, options, place / "in")
    models = {model.name: bench.models[model.name] for model in method.models}
    return UnitRequest(
        run_id=bench.run_id,
        unit=unit,
        image_id=bench.images[method.pin],
        command=method.command,
        limits=method.limits,
        remaining_wall_ms=asked.left_ms,
        in_dir=place / "in",
        out_dir=place / "out",
        work_dir=place / "work",
        stdout_log=place / "logs" / "stdout.log",
        stderr_log=place / "logs" / "stderr.log",
        env=method_env(method.limits, unit.seed),
        user=container_user(),
        cache_dir=place / "cache" if method.cache else None,
        models={name: folder for name, folder in models.items() if folder is not None},
        rows_planned=len(asked.queries),
    )


def _rows(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in sorted(folder.glob("part-*.jsonl")):
        with part.open("rb") as stream:
            for line in file_lines(stream):
                row = parse_row(line)
                yield str(row["query_id"]), row
