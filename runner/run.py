"""From a run manifest to a sealed bundle: resolve everything, then run, score and seal.

Nothing starts before manifest, protocol, data, plan, engine, limits, images, disk and key have all
been looked at. An interrupted run of the same plan is found again by its working folder and goes
on where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.access import Given, given_to_methods, network_notes
from runner.bundle.archive import export_archive
from runner.bundle.read import open_bundle
from runner.bundle.write import SealedBundle
from runner.clock import SystemClock
from runner.config_freeze import FILE as FREEZE_FILE
from runner.config_freeze import read_freeze, read_freeze_file, refuse_unfrozen
from runner.determinism import with_rows_digest
from runner.engine.api import Engine, EngineInfo
from runner.engine.cgroups import open_cgroups
from runner.engine.clean import sweep
from runner.engine.usage import Cgroups
from runner.execute import Execution, execute
from runner.expectation import as_expected, cut_short
from runner.host import host_document, read_load
from runner.imagelock import host_platform, load_locks
from runner.imports import check_pinned
from runner.journal import Journal
from runner.keys import SigningKey, own_keys
from runner.manifest import RunManifest, imported_paths, load_run_manifest
from runner.model import ImagePin, Plan, Unit, UnitOutcome
from runner.models import find_models, foreseen
from runner.modules import Module, planned_modules
from runner.plan import Overrides, build_plan
from runner.preflight import Ready, preflight
from runner.progress import Reporter
from runner.progress_text import RunSummary
from runner.protocol.bind import bind
from runner.protocol.load import Protocol, load_protocol
from runner.protocol.splits import HELDOUT, freeze_required
from runner.scoring import (
    import_notes,
    outcome_notes,
    part_lines,
    results_document,
    score_parts,
    score_run,
)
from runner.seal import Sealing, seal
from runner.signals import CancelToken
from runner.supervisor import PATIENCE_S, Platform
from runner.tasks import task_module
from runner.tasks.api import Dataset, UnitScores
from runner.timespan import run_span
from runner.trust import explicit
from runner.workspace import UnitFiles, Workspace, result_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """All units ended and scored, nothing sealed yet. ``files`` is keyed by unit id."""

    outcomes: tuple[UnitOutcome, ...]
    results: Mapping[str, object]
    files: Mapping[str, UnitFiles]


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What executing a sealed plan again adds to a run.

    ``obtain`` gets the images into the engine and returns the pins to prove in place of the
    plan's; ``attach`` returns documents to seal beside the others, by name; ``work`` names the
    working folder, so that no interrupted run of the same plan passes for its re-execution.
    """

    obtain: Callable[[Engine], Mapping[ImagePin, ImagePin]]
    attach: Callable[[Finished], Mapping[str, bytes]]
    work: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a command line chooses beside the manifest; ``key`` None leaves the bundle unsigned."""

    data_root: Path | None = None
    out: Path | None = None
    key: SigningKey | None = None
    overrides: Overrides | None = None
    retry_failed: bool = False
    fresh: bool = False
    again: Again | None = None
    config_freeze: Path | None = None
    models_root: Path | None = None  # holds <model name>/ folders
    cache_dir: Path | None = None  # where methods' caches outlive the run


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """How to reach what runs containers; opened only when everything else is resolved."""

    open_engine: Callable[[], Engine]
    open_cgroups: Callable[[EngineInfo], Cgroups] = open_cgroups
    patience_s: float = PATIENCE_S  # how long a lost engine is asked again


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A manifest with all that it names loaded and checked; no engine was asked yet."""

    manifest: RunManifest
    protocol: Protocol
    plan: Plan
    datasets: Mapping[str, Dataset]
    data_root: Path | None
    config_freeze: bytes | None = None  # of a run that scores the held-out split
    models: Mapping[str, Path | None] = field(default_factory=dict)  # None: not on this host
    modules: Mapping[str, Module] = field(default_factory=dict)  # of the plan, by digest


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run came to; ``results`` is the document of results.json."""

    resolved: Resolved
    bundle: SealedBundle
    archive: Path
    outcomes: tuple[UnitOutcome, ...]
    results: Mapping[str, object]
    summary: RunSummary


def resolve(path: Path, options: RunOptions) -> Resolved:
    """Read and check everything that lies in files; raises the first error."""
    return resolve_manifest(load_run_manifest(path), options)


def resolve_manifest(manifest: RunManifest, options: RunOptions) -> Resolved:
    """``resolve`` for a manifest that is read already."""
    protocol = load_protocol(manifest.protocol)
    plan = build_plan(manifest, protocol.document, load_locks(), host_platform(), options.overrides)
    data_root = options.data_root or manifest.data_root
    config_freeze = _config_freeze(manifest, protocol, plan, options)
    datasets = bind(protocol, data_root)  # first: whoever lacks the data is told where to get them
    check_pinned(manifest, plan, data_root)
    return Resolved(
        config_freeze=config_freeze,
        manifest=manifest,
        protocol=protocol,
        plan=plan,
        datasets=datasets,
        data_root=data_root,
        models=find_models(plan, options.models_root or manifest.models_root),
        modules=planned_modules(manifest, plan),
    )


def _config_freeze(
    manifest: RunManifest, protocol: Protocol, plan: Plan, options: RunOptions
) -> bytes | None:
    """Return the record of a run that scores the held-out split; refuse one that is not as it was
    settled. The key that signs the run must have signed the record."""
    if HELDOUT not in plan.splits:
        return None
    path = options.config_freeze or manifest.config_freeze
    required = freeze_required(plan.splits, protocol.splits, tuned=manifest.tuned)
    if path is None:
        refuse_unfrozen(plan, None, required=required)
        return None
    envelope, signers = read_freeze_file(path), own_keys(options.key)
    frozen, _ = read_freeze(envelope, signers, file=str(path))
    refuse_unfrozen(plan, frozen, required=required)
    return envelope


def run_manifest(
    path: Path,
    options: RunOptions,
    *,
    host: Host,
    reporter: Reporter,
    cancel: CancelToken,
) -> RunResult:
    """Run a manifest and seal its bundle, complete or not.

    Raises a ``SealbenchError`` when something is refused beforehand, and ``StorageError`` when the
    disk fails; a method that fails is an outcome, not an error.
    """
    resolved = resolve(path, options)
    return run_resolved(resolved, options, host=host, reporter=reporter, cancel=cancel)


def run_resolved(
    resolved: Resolved,
    options: RunOptions,
    *,
    host: Host,
    reporter: Reporter,
    cancel: CancelToken,
) -> RunResult:
    """``run_manifest`` for what is resolved already, from a manifest or from a bundle."""
    out = result_folder(resolved.plan, options.out)
    again = options.again
    given = given_to_methods(resolved.manifest, resolved.plan, resolved.modules)
    executes = any(method.image is not None for method in resolved.plan.methods)
    engine = host.open_engine() if executes else None
    try:
        pins = again.obtain(engine) if again and engine else {}
        ready = preflight(engine, resolved.plan, out, pins)
        if engine is not None:
            sweep(engine, dry_run=False)  # what dead runs left must not distort this one
        work = again.work if again else None
        workspace = Workspace.open(out, resolved.plan, fresh=options.fresh, name=work)
        try:
            session = _Session(
                resolved=resolved, ready=ready, engine=engine, workspace=workspace, host=host,
                options=options, reporter=reporter, cancel=cancel, given=given,
            )  # fmt: skip
            return session.run()
        finally:
            workspace.remove_if_unused()
    finally:
        if engine is not None:
            engine.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """One run on a host that was found ready."""

    resolved: Resolved
    ready: Ready
    host: Host
    engine: Engine | None
    workspace: Workspace
    options: RunOptions
    reporter: Reporter
    cancel: CancelToken
    given: Mapping[str, Given]

    def run(self) -> RunResult:
        clock, plan = SystemClock(), self.resolved.plan
        begun, begun_ns, load = clock.utc_stamp(), clock.monotonic_ns(), read_load()
        self.reporter.run_started(plan)
        for note in self.ready.notes():
            self.reporter.note(note)
        retry = self.options.retry_failed
        with Journal.open(self.workspace.journal, plan, retry_failed=retry) as journal:
            outcomes = self._execute(journal, clock)
            results = self._score(outcomes)
            files = {unit.unit_id: self.workspace.files(unit) for unit in plan.units}
            finished = Finished(outcomes=outcomes, results=results, files=files)
            again = self.options.again
            process = (begun, clock.monotonic_ns() - begun_ns)
            span = run_span(journal.started, process, clock.utc_stamp(), outcomes)
            sealing = Sealing(
                plan=plan,
                protocol=self.resolved.protocol,
                manifest_raw=self.resolved.manifest.raw,
                outcomes=outcomes,
                results=results,
                host=host_document(self.ready.info, load_start=load, load_end=read_load()),
                images=self.ready.images,
                started=span[0],
                finished=span[1],
                modules=tuple(self.resolved.modules.values()),
                attached={**self._freeze(), **(again.attach(finished) if again else {})},
            )
            bundle = seal(sealing, files, self.workspace.out, self.options.key)
        self.workspace.remove()
        archive = _archive(bundle, self.options.key)
        summary = _summary(bundle, outcomes, self.resolved, clock.monotonic_ns() - begun_ns)
        self.reporter.run_finished(summary)
        return RunResult(
            resolved=self.resolved,
            bundle=bundle,
            archive=archive,
            outcomes=outcomes,
            results=results,
            summary=summary,
        )

    def _execute(self, journal: Journal, clock: SystemClock) -> tuple[UnitOutcome, ...]:
        if journal.finished:
            count = len(journal.finished)
            self.reporter.note(f"resuming an interrupted run: {count} units are finished already")
        return execute(
            Execution(
                plan=self.resolved.plan,
                protocol=self.resolved.protocol,
                datasets=self.resolved.datasets,
                ready=self.ready,
                platform=self._platform(clock),
                workspace=self.workspace,
                journal=journal,
                reporter=self.reporter,
                cancel=self.cancel,
                imports=imported_paths(
                    self.resolved.manifest, self.resolved.plan, self.resolved.data_root
                ),
                models=self.resolved.models,
                cache_dir=self.options.cache_dir,
                given=self.given,
            )
        )

    def _freeze(self) -> dict[str, bytes]:
        record = self.resolved.config_freeze
        return {} if record is None else {FREEZE_FILE: record}

    def _platform(self, clock: SystemClock) -> Platform | None:
        if self.engine is None or self.ready.info is None:
            return None
        return Platform(
            engine=self.engine,
            cgroups=self.host.open_cgroups(self.ready.info),
            clock=clock,
            patience_s=self.host.patience_s,
        )

    def _score(self, outcomes: Sequence[UnitOutcome]) -> dict[str, object]:
        """Compute results.json from the harvested rows, and write the score artifacts."""
        protocol, plan = self.resolved.protocol, self.resolved.plan

        def score(unit: Unit, dataset: Dataset) -> UnitScores:
            files = self.workspace.files(unit)
            for file in (files.scores, files.per_query):  # of a sealing that was interrupted
                file.unlink(missing_ok=True)
            parts, splits = files.parts(), plan.splits
            scores = score_parts(parts, dataset, protocol, splits, artifact=files.scores)
            if plan.repeats == 1:
                return scores
            kind = task_module(protocol.dataset(dataset.name).task).ROW_KIND
            return with_rows_digest(scores, kind, part_lines(parts))

        units = score_run(plan, protocol, self.resolved.datasets, outcomes, score)
        of_plan = (*import_notes(plan), *network_notes(plan))
        notes = (*self.ready.notes(), *of_plan, *outcome_notes(outcomes))
        return results_document(plan, protocol, units, notes)


def _archive(bundle: SealedBundle, key: SigningKey | None) -> Path:
    """Write ``bundle.tar`` beside the bundle; every byte is verified while it is copied."""
    trust = None if key is None else explicit([key.public])
    protocol_id = bundle.claims.protocol_id
    with open_bundle(
        bundle.path, protocol_id=protocol_id, trust=trust, allow_unsigned=key is None
    ) as view:
        return export_archive(view, bundle.path.with_name("bundle.tar"))


def _summary(
    bundle: SealedBundle, outcomes: Sequence[UnitOutcome], resolved: Resolved, elapsed_ns: int
) -> RunSummary:
    plan, models = resolved.plan, resolved.models
    expected = {method.name: method.expect for method in plan.methods}
    foreseen_lack = {method.name for method in plan.methods if foreseen(method, models)}
    surprising = [r for r in outcomes if not as_expected(r, expected[r.unit.method])]
    return RunSummary(
        run_id=plan.run_id,
        bundle=str(bundle.path),
        complete=not any(map(cut_short, outcomes)),
        signed=bundle.signed,
        elapsed_ms=elapsed_ns // 1_000_000,
        outcomes=dict(Counter(record.outcome.value for record in outcomes)),
        unexpected=sum(record.unit.method not in foreseen_lack for record in surprising),
    )
