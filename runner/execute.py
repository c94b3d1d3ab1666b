"""Run every unit of a plan and write down what became of each: the loop around the supervisor.

A group is one method in one repeat: its units share the method's wall budget and run in order.
Groups run side by side when the plan says ``jobs``. Every unit gets exactly one outcome.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from runner.cachehash import cache_digest
from runner.harvest import harvest
from runner.imports import Import, import_unit
from runner.journal import Journal
from runner.model import Evidence, ImagePin, MethodPlan, Plan, Unit, UnitOutcome
from runner.models import lack_of
from runner.outcome import classify
from runner.preflight import Ready
from runner.progress import Reporter, UnitTick
from runner.protocol.load import Protocol
from runner.purge import purge
from runner.request import UnitRequest, UnitResult, container_user, method_env
from runner.signals import CancelToken
from runner.supervisor import Platform, run_unit
from runner.tasks import task_module
from runner.tasks.api import Dataset, Task, TaskOptions
from runner.workspace import Workspace, short_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """All that units need; built once everything is validated."""

    plan: Plan
    protocol: Protocol
    datasets: Mapping[str, Dataset]
    ready: Ready
    platform: Platform | None  # None where nothing is executed
    workspace: Workspace
    journal: Journal
    reporter: Reporter
    cancel: CancelToken
    #: Of precomputed methods: (method, dataset) -> the file of results.
    imports: Mapping[tuple[str, str], Path] = field(default_factory=dict)
    #: Of model files: name -> folder, None where they are absent.
    models: Mapping[str, Path | None] = field(default_factory=dict)
    #: Where caches outlive the run; None: they end with it.
    cache_dir: Path | None = None


def execute(run: Execution) -> tuple[UnitOutcome, ...]:
    """Run the units that the journal does not have yet; return all outcomes in plan order.

    Raises ``StorageError`` when the disk fails; the journal then keeps what is finished.
    """
    shared = {
        name: task_of(run, name).share_inputs(dataset, run.workspace.shared(name))
        for name, dataset in run.datasets.items()
        if run.platform is not None
    }
    methods = {method.name: method for method in run.plan.methods}
    groups: dict[tuple[int, str], list[Unit]] = {}
    for unit in run.plan.units:
        groups.setdefault((unit.repeat, unit.method), []).append(unit)
    outcomes: dict[str, UnitOutcome] = {}
    failed = threading.Event()

    def work(units: list[Unit]) -> None:
        for outcome in _Group(run, methods[units[0].method], shared).run(units, failed):
            outcomes[outcome.unit.unit_id] = outcome

    with ThreadPoolExecutor(max_workers=run.plan.jobs) as pool:
        pending = [pool.submit(work, units) for units in groups.values()]
        try:
            for future in pending:
                future.result()
        except BaseException:
            # A full disk or a fault of our own: end what runs, start nothing more.
            failed.set()
            run.cancel.cancel()
            raise
    return tuple(outcomes[unit.unit_id] for unit in run.plan.units)


def task_of(run: Execution, dataset: str) -> Task:
    """The task of one of the run's datasets."""
    return task_module(run.protocol.dataset(dataset).task)


class _Group:
    """One method in one repeat: units in order, on what is left of one budget."""

    def __init__(self, run: Execution, method: MethodPlan, shared: Mapping[str, Any]) -> None:
        self._run, self._method, self._shared = run, method, shared
        self._pin = None if method.image is None else run.ready.pin(method)
        self._left_ms = method.limits.wall_ms

    def run(self, units: Iterable[Unit], failed: threading.Event) -> Iterable[UnitOutcome]:
        for unit in units:
            if failed.is_set():
                return
            kept = self._run.journal.finished.get(unit.unit_id)
            if kept is not None:
                self._left_ms -= ceil((kept.evidence.wall_ns or 0) / 1_000_000)
                yield kept
                continue
            yield self._one(unit)

    def _one(self, unit: Unit) -> UnitOutcome:
        run = self._run
        run.reporter.unit_started(unit)
        run.journal.unit_started(unit)
        if self._method.image is None:
            evidence = self._import(unit)
            result = UnitResult(evidence=evidence, started=None, wall_ms_used=0)
        elif (lack := lack_of(self._method, run.models)) is not None:
            evidence = Evidence(not_started_reason=lack)
            result = UnitResult(evidence=evidence, started=None, wall_ms_used=0)
        else:
            result, evidence = self._attempt(unit, self._method.image)
        self._left_ms -= result.wall_ms_used
        outcome, reason = classify(evidence, self._method.limits)
        record = UnitOutcome(
            unit=unit,
            outcome=outcome,
            reason=reason,
            evidence=evidence,
            started=result.started,
            image=self._pin,
            limits=self._method.limits,
        )
        run.journal.unit_finished(record)
        run.reporter.unit_finished(record)
        return record

    def _import(self, unit: Unit) -> Evidence:
        """Take the rows of a precomputed method."""
        run, file = self._run, self._method.imported(unit.dataset)
        if file is None or run.cancel.cancelled:
            return Evidence()
        task, dataset = task_of(run, unit.dataset), run.datasets[unit.dataset]
        with task.unit_scorer(dataset, run.protocol, run.plan.splits) as scorer:
            return import_unit(
                Import(
                    path=run.imports[unit.method, unit.dataset],
                    file=file,
                    task=task,
                    dataset=dataset,
                    ids=task.expected_ids(run.protocol, dataset, run.plan.splits),
                    checker=scorer.checker(),
                    rows_dir=run.workspace.files(unit).rows,
                )
            )

    def _attempt(self, unit: Unit, pin: ImagePin) -> tuple[UnitResult, Evidence]:
        run, limits = self._run, self._method.limits
        assert run.platform is not None  # noqa: S101 - an image is only run on an engine
        dataset = run.datasets[unit.dataset]
        task = task_of(run, unit.dataset)
        ids = task.expected_ids(run.protocol, dataset, run.plan.splits)
        files = run.workspace.files(unit)
        in_dir, out_dir, work_dir = (
            run.workspace.scratch(kind, unit) for kind in ("in", "out", "scratch")
        )
        options = TaskOptions(
            seed=unit.seed,
            top_k=run.protocol.top_k,
            threads=ceil(limits.cpus_milli / 1000),
            config=self._method.config,
        )
        shared = self._shared[unit.dataset]
        task.write_blind_inputs(dataset, ids, options, in_dir, shared=shared)
        out_dir.mkdir()
        work_dir.mkdir()
        cache = self._cache()
        before = cache_digest(cache)
        request = UnitRequest(
            run_id=run.plan.run_id,
            unit=unit,
            image_id=run.ready.images[pin].image_id,
            command=self._method.command,
            limits=limits,
            remaining_wall_ms=self._left_ms,
            in_dir=in_dir,
            out_dir=out_dir,
            work_dir=work_dir,
            stdout_log=files.stdout,
            stderr_log=files.stderr,
            env=method_env(limits, unit.seed),
            user=container_user(),
            cache_dir=cache,
            models={
                pin.name: folder
                for pin in self._method.models
                if (folder := run.models[pin.name]) is not None
            },
            rows_planned=len(ids),
        )

        def progress(tick: UnitTick) -> None:
            run.reporter.unit_tick(unit, tick)

        try:
            result = run_unit(run.platform, request, cancel=run.cancel, on_progress=progress)
            evidence = self._harvested(unit, result.evidence, out_dir, files.rows)
            after = cache_digest(cache)
            return result, replace(evidence, cache_before=before, cache_after=after)
        finally:
            purge(in_dir)
            purge(out_dir)
            purge(work_dir)

    def _harvested(self, unit: Unit, evidence: Evidence, out_dir: Path, rows: Path) -> Evidence:
        """Add what may cross from the container; nothing does without proof of its death."""
        if not (evidence.started and evidence.death_proven):
            return evidence
        run = self._run
        task = task_of(run, unit.dataset)
        with task.unit_scorer(run.datasets[unit.dataset], run.protocol, run.plan.splits) as scorer:
            found = harvest(
                out_dir, limits=self._method.limits, checker=scorer.checker(), rows_dir=rows
            )
        return replace(evidence, rows=found.rows, harvest_refused=found.refused)

    def _cache(self) -> Path | None:
        """The method's cache: private to one method id, shared by its units of this run and, with
        a cache folder, by those of later runs."""
        if not self._method.cache:
            return None
        caches = self._run.cache_dir or self._run.workspace.folder / "cache"
        folder = caches.absolute() / short_id(self._method.method_id, 32)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
