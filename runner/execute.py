"""Run every unit of a plan and write down what became of each: the loop around the supervisor.

A group is one method in one repeat: its units share the method's wall budget and run in order.
Groups run side by side when the plan says ``jobs``. Every unit gets exactly one outcome.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from runner.access import Access, Given, Withheld, open_access
from runner.cachehash import settled
from runner.harvest import harvest
from runner.ids import cache_id
from runner.imports import Import, import_unit
from runner.journal import Journal
from runner.latency import KIND as LATENCY_KIND
from runner.latency import Latencies, with_excess
from runner.model import Evidence, ImagePin, MethodPlan, Plan, Unit, UnitOutcome
from runner.models import lack_of
from runner.outcome import classify
from runner.preflight import Ready
from runner.progress import Reporter
from runner.progress_text import UnitTick
from runner.protocol.load import Protocol
from runner.purge import purge
from runner.request import UnitRequest, UnitResult, container_user, method_env
from runner.signals import CancelToken
from runner.supervisor import Platform, reason_not_to_start, run_unit
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
    #: Of methods that are given something: secrets and recordings, by method name.
    given: Mapping[str, Given] = field(default_factory=dict)


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

    turns = {cache_id(method): threading.Lock() for method in methods.values() if method.cache}

    def work(units: list[Unit]) -> None:
        method = methods[units[0].method]
        # Methods that share a cache take turns: two writers would spoil what both rely on.
        with turns[cache_id(method)] if method.cache else nullcontext():
            for outcome in _Group(run, method, shared).run(units, failed):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """The folders of one attempt at a unit; all but the cache go away with it."""

    in_dir: Path
    out_dir: Path
    work_dir: Path
    cache: Path | None
    rows_planned: int


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
        run.journal.unit_started(unit)
        lack = self._lack()
        if lack is not None:
            evidence = Evidence(not_started_reason=lack)
            result = UnitResult(evidence=evidence, started=None, wall_ms_used=0)
        elif self._method.image is None:
            run.reporter.unit_started(unit)
            evidence = self._import(unit)
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

    def _lack(self) -> str | None:
        """Why the next unit cannot start; asked before anybody is told that it did."""
        if self._method.image is None:
            return reason_not_to_start(1, self._run.cancel)  # nothing runs: it has no budget
        lack = lack_of(self._method, self._run.models)
        return lack or reason_not_to_start(self._left_ms, self._run.cancel)

    def _import(self, unit: Unit) -> Evidence:
        """Take the rows of a precomputed method."""
        run, file = self._run, self._method.imported(unit.dataset)
        if file is None:
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
        run, method = self._run, self._method
        assert run.platform is not None  # noqa: S101 - an image is only run on an engine
        room = self._room(unit)
        before, lost = settled(room.cache)

        def progress(tick: UnitTick) -> None:
            run.reporter.unit_tick(unit, tick)

        given, user = run.given.get(method.name, Given()), container_user()
        try:
            with open_access(method, unit.dataset, given, room.work_dir, user) as access:
                request = self._request(unit, pin, room, access)
                run.reporter.unit_started(unit)
                result = run_unit(run.platform, request, cancel=run.cancel, on_progress=progress)
            evidence = self._harvested(unit, result.evidence, room.out_dir, access)
            writing = evidence.started and not evidence.death_proven
            after, lost_after = settled(room.cache, writing=writing)
            refused = (*evidence.harvest_refused, *lost, *lost_after)
            return result, replace(
                evidence, cache_before=before, cache_after=after, harvest_refused=refused
            )
        except Withheld as lack:
            evidence = Evidence(not_started_reason=str(lack))
            return UnitResult(evidence=evidence, started=None, wall_ms_used=0), evidence
        finally:
            for folder in (room.in_dir, room.out_dir, room.work_dir):
                purge(folder)

    def _room(self, unit: Unit) -> _Room:
        """Make a unit's folders, with its inputs in place."""
        run = self._run
        dataset, task = run.datasets[unit.dataset], task_of(run, unit.dataset)
        ids = task.expected_ids(run.protocol, dataset, run.plan.splits)
        in_dir, out_dir, work_dir = (
            run.workspace.scratch(kind, unit) for kind in ("in", "out", "scratch")
        )
        options = TaskOptions(
            seed=unit.seed,
            top_k=run.protocol.top_k,
            threads=ceil(self._method.limits.cpus_milli / 1000),
            config=self._method.config,
        )
        shared = self._shared[unit.dataset]
        task.write_blind_inputs(dataset, ids, options, in_dir, shared=shared)
        out_dir.mkdir()
        work_dir.mkdir()
        return _Room(
            in_dir=in_dir,
            out_dir=out_dir,
            work_dir=work_dir,
            cache=self._cache(),
            rows_planned=len(ids),
        )

    def _request(self, unit: Unit, pin: ImagePin, room: _Room, access: Access) -> UnitRequest:
        run, limits, files = self._run, self._method.limits, self._run.workspace.files(unit)
        models = {model.name: run.models[model.name] for model in self._method.models}
        return UnitRequest(
            run_id=run.plan.run_id,
            unit=unit,
            image_id=run.ready.images[pin].image_id,
            command=self._method.command,
            limits=limits,
            remaining_wall_ms=self._left_ms,
            in_dir=room.in_dir,
            out_dir=room.out_dir,
            work_dir=room.work_dir,
            stdout_log=files.stdout,
            stderr_log=files.stderr,
            env={**method_env(limits, unit.seed), **access.env},
            user=container_user(),
            cache_dir=room.cache,
            models={name: folder for name, folder in models.items() if folder is not None},
            rows_planned=room.rows_planned,
            mounts=access.mounts,
            passing=access.passing,
            needles=access.needles,
        )

    def _harvested(self, unit: Unit, evidence: Evidence, out_dir: Path, access: Access) -> Evidence:
        """Add what may cross from the container; nothing does without proof of its death."""
        if evidence.started:
            evidence = replace(evidence, network=access.use())
        if not (evidence.started and evidence.death_proven):
            return evidence
        run, files = self._run, self._run.workspace.files(unit)
        task, latencies = task_of(run, unit.dataset), Latencies()
        with task.unit_scorer(run.datasets[unit.dataset], run.protocol, run.plan.splits) as scorer:
            found = harvest(
                out_dir,
                limits=self._method.limits,
                checker=scorer.checker(),
                rows_dir=files.rows,
                needles=access.needles,
                recording=None if self._method.network is None else files.recording,
                on_block=latencies.add if task.ROW_KIND == LATENCY_KIND else None,
            )
        evidence = with_excess(latencies.total_ms, evidence, self._method.limits)
        return replace(evidence, rows=found.rows, harvest_refused=found.refused)

    def _cache(self) -> Path | None:
        """The method's cache: private to one image, whatever the command and settings, shared by
        its units of this run and, with a cache folder, by those of later runs."""
        if not self._method.cache:
            return None
        caches = self._run.cache_dir or self._run.workspace.folder / "cache"
        folder = caches.absolute() / short_id(cache_id(self._method), 32)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
