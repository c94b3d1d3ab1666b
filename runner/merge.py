"""Partial bundles of one protocol -> one bundle: methods side by side, every figure made anew.

Runs that were cut short, or shared out over machines, are merged if they agree in protocol, splits,
seed and repeats. Every bundle is verified first, with the labels; rows, logs and outcome records
are taken over unchanged, scores, ranks and comparisons are recomputed. A method stands in one
bundle only; where a bundle never came to run it, the other one's counts. The merged bundle is
signed by whoever merges, and says which bundles it was made of.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from runner.bundle.write import SealedBundle
from runner.canonical import canonical_bytes
from runner.engine.api import ImageInfo
from runner.errors import BundleError, Where
from runner.ids import planned_units
from runner.keys import SigningKey
from runner.manifest_read import LIMIT_NAMES
from runner.model import ImagePin, MethodPlan, Outcome, Plan, Unit, UnitOutcome
from runner.modules import Module, load_sealed, sealed_folder
from runner.plan_document import run_id_of
from runner.protocol.bind import bind
from runner.protocol.load import Protocol
from runner.quantities import format_limit
from runner.scoring import import_notes, outcome_notes, results_document, score_parts, score_run
from runner.seal import Sealing, seal
from runner.tasks.api import Dataset, UnitScores
from runner.trust import Trust
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle
from runner.verify.documents import Documents, unit_files
from runner.workspace import UnitFiles

NEVER_RAN = frozenset({Outcome.CANCELLED, Outcome.NOT_STARTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """What to merge, against what, into which new folder; ``name`` of the merged run."""

    bundles: Sequence[Path]
    protocol: Protocol
    data_root: Path
    trust: Trust | None
    out: Path
    key: SigningKey | None
    name: str | None = None
    allow_unsigned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One verified bundle. ``host`` and ``images`` are its documents."""

    folder: Path
    manifest_sha256: str
    documents: Documents
    host: Mapping[str, Any]
    images: Mapping[str, Any]
    started: str
    finished: str


def merge(request: MergeRequest) -> SealedBundle:
    """Verify, merge and seal. Raises ``BundleError`` for bundles that do not verify or do not fit
    together, ``DataError`` and ``StorageError`` as a run does."""
    if len(request.bundles) < 2:
        _refuse("merge.nothing", "a merge needs at least two bundles", request.bundles[0])
    parts = [_part(folder, request) for folder in request.bundles]
    for part in parts[1:]:
        _check_frame(parts[0], part)
    chosen = choose(parts)
    plan = merged_plan(parts[0].documents.plan, [method for method, _ in chosen], request)
    owners = {method.name: part for method, part in chosen}
    outcomes = tuple(_outcome(unit, owners[unit.method]) for unit in plan.units)
    datasets = bind(request.protocol, request.data_root)
    with tempfile.TemporaryDirectory(prefix="sealbench-merge-") as temporary:
        files = {
            unit.unit_id: _files(unit, owners[unit.method], Path(temporary)) for unit in plan.units
        }

        def score(unit: Unit, dataset: Dataset) -> UnitScores:
            found = files[unit.unit_id]
            return score_parts(
                found.parts(), dataset, request.protocol, plan.splits, artifact=found.scores
            )

        scored = score_run(plan, request.protocol, datasets, outcomes, score)
        notes = (*import_notes(plan), *outcome_notes(outcomes), *merge_notes(parts))
        sealing = Sealing(
            plan=plan,
            protocol=request.protocol,
            manifest_raw=run_yaml(plan),
            outcomes=outcomes,
            results=results_document(plan, request.protocol, scored, notes),
            host=parts[0].host,
            images=_images(chosen),
            modules=_modules(chosen),
            started=min(part.started for part in parts),
            finished=max(part.finished for part in parts),
        )
        return seal(sealing, files, request.out, request.key)


def choose(parts: Sequence[Part]) -> list[tuple[MethodPlan, Part]]:
    """Return every method with the bundle that ran it, in the order of the bundles.

    Raises ``BundleError`` for a method that two bundles ran, and for two methods of one name.
    """
    found: dict[str, tuple[MethodPlan, Part]] = {}
    for part in parts:
        for method in part.documents.plan.methods:
            known = found.get(method.method_id)
            if known is not None and _ran(known[1], method):
                if _ran(part, method):
                    message = f"method {method.name} ({method.method_id[:19]}) was run in two"
                    _refuse("merge.duplicate-method", f"{message} bundles", part.folder)
                continue
            found[method.method_id] = (method, part)
    names: dict[str, str] = {}
    for method, part in found.values():
        if names.setdefault(method.name, method.method_id) != method.method_id:
            message = f"two different methods are called {method.name}"
            _refuse("merge.duplicate-name", message, part.folder)
        if method.image is None or method.network is not None or method.recordings:
            message = f"method {method.name} was not run in an image on local data alone"
            _refuse("merge.not-merged", message, part.folder)
    return list(found.values())


def merged_plan(first: Plan, methods: Sequence[MethodPlan], request: MergeRequest) -> Plan:
    """Return the plan that a run of all these methods would have had."""
    plan = replace(
        first, run_id="", name=request.name or first.name, jobs=1, methods=tuple(methods), units=()
    )
    plan = replace(plan, units=planned_units(plan, request.protocol.document))
    return replace(plan, run_id=run_id_of(plan))


def merge_notes(parts: Sequence[Part]) -> list[str]:
    """What the results must say about where they come from."""
    names = [f"{part.documents.plan.name} (sha256:{part.manifest_sha256})" for part in parts]
    notes = [f"merged from {', '.join(names)}"]
    hosts = {canonical_bytes([part.host["cpu"], part.host["kernel"]]) for part in parts}
    if len(hosts) > 1:
        notes.append("timings come from several hosts and must not be compared; host.json is one")
    return notes


def run_yaml(plan: Plan) -> bytes:
    """Return a run manifest that says what the merged plan holds; JSON values are YAML."""
    lines = [
        "# Written by `sealbench merge` from the plans of the merged bundles.",
        "schema: sealbench/run/v1",
        f"name: {plan.name}",
        "protocol: protocol.json",
        f"protocol_id: {plan.protocol_id}",
        f"splits: {json.dumps(list(plan.splits))}",
        f"seed: {plan.seed}",
        "methods:",
    ]
    for method in plan.methods:
        digest = method.image.digest if method.image is not None else ""
        lines += [
            f"  - name: {method.name}",
            f"    image: {digest}",
            f"    command: {json.dumps(list(method.command))}",
            f"    config: {json.dumps(dict(method.config))}",
            f"    limits: {json.dumps(_limits(method))}",
        ]
        if method.module is not None:
            lines += [f"    module: {sealed_folder(method.module)}"]
    return ("\n".join(lines) + "\n").encode()


def _limits(method: MethodPlan) -> dict[str, str | float]:
    """A method's limits as a manifest writes them: counts are numbers, all else has a unit."""
    found: dict[str, str | float] = {}
    for field, value in asdict(method.limits).items():
        counted = field in ("pids", "output_files")
        text: str | float = value if counted else format_limit(field, value)
        found[LIMIT_NAMES[field]] = value / 1000 if field == "cpus_milli" else text
    return found


def _part(folder: Path, request: MergeRequest) -> Part:
    report = verify_bundle(
        VerifyRequest(
            bundle=folder,
            protocol_id=request.protocol.protocol_id,
            protocol=request.protocol,
            trust=request.trust,
            data_root=request.data_root,
            allow_unsigned=request.allow_unsigned,
        )
    )
    return part_of(folder, report)


def part_of(folder: Path, report: VerifyReport) -> Part:
    """Return a verified bundle; raise ``BundleError`` with its first fault otherwise."""
    documents, claims = report.documents, report.admission.claims
    if report.faults or documents is None or not report.recomputed.holds:
        why = str(report.faults[0]) if report.faults else report.recomputed.detail
        _refuse("merge.unverified", f"it does not verify: {why}", folder)
    if claims is None or report.admission.manifest_sha256 is None:
        _refuse("merge.unsigned", "nobody signed it", folder)
    return Part(
        folder=folder,
        manifest_sha256=report.admission.manifest_sha256,
        documents=documents,
        host=json.loads((folder / "host.json").read_bytes()),
        images=json.loads((folder / "images.json").read_bytes()),
        started=claims.started,
        finished=claims.finished,
    )


def _check_frame(first: Part, other: Part) -> None:
    for name in ("protocol_id", "splits", "seed", "repeats"):
        one, two = getattr(first.documents.plan, name), getattr(other.documents.plan, name)
        if one != two:
            message = f"its {name} is {two}, that of {first.folder} is {one}"
            _refuse("merge.other-frame", message, other.folder)
    if first.documents.plan.repeats != 1:
        _refuse("merge.repeats", "runs with repeats are not merged", first.folder)


def _ran(part: Part, method: MethodPlan) -> bool:
    return any(
        record.outcome not in NEVER_RAN
        for record in part.documents.outcomes
        if record.unit.method_id == method.method_id
    )


def _outcome(unit: Unit, part: Part) -> UnitOutcome:
    found = [record for record in part.documents.outcomes if record.unit == unit]
    if not found:
        _refuse("merge.no-outcome", f"it has no unit {unit.method} on {unit.dataset}", part.folder)
    return found[0]


def _files(unit: Unit, part: Part, temporary: Path) -> UnitFiles:
    names = unit_files(unit)
    own = temporary / unit.unit_id.rpartition(":")[2]
    own.mkdir()
    return UnitFiles(
        rows=part.folder / names["rows"],
        stdout=part.folder / names["stdout"],
        stderr=part.folder / names["stderr"],
        scores=own / "scores.csv",
        recording=own / "recording.jsonl",
    )


def _modules(chosen: Sequence[tuple[MethodPlan, Part]]) -> tuple[Module, ...]:
    found: dict[str, Module] = {}
    for method, part in chosen:
        if method.module is not None and method.module not in found:
            found[method.module] = load_sealed(method.module, partial(_file, part.folder))
    return tuple(found.values())


def _file(folder: Path, path: str) -> bytes:
    return (folder / path).read_bytes()


def _images(chosen: Sequence[tuple[MethodPlan, Part]]) -> dict[ImagePin, ImageInfo]:
    found: dict[ImagePin, ImageInfo] = {}
    for method, part in chosen:
        entry = next(e for e in part.images["images"] if method.name in e["methods"])
        if method.image is not None:
            os, _, architecture = entry["platform"].partition("/")
            found[method.image] = ImageInfo(
                image_id=entry["image_id"],
                repo_digests=(),
                architecture=architecture,
                os=os,
                size_bytes=entry["size_bytes"],
                labels={"sealbench.inputs": entry["inputs_sha256"] or ""},
            )
    return found


def _refuse(code: str, message: str, folder: Path) -> NoReturn:
    raise BundleError(
        code,
        message,
        fix="merge verified bundles of one protocol, splits and seed, each method in one of them",
        where=Where(file=str(folder)),
    )
