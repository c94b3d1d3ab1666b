"""Partial bundles of one protocol -> one bundle: methods side by side, every figure made anew.

Runs that were cut short, or shared out over machines, are merged if they agree in protocol, splits,
seed and repeats. Every bundle is verified first, with the labels; rows, logs and outcome records
are taken over unchanged, scores, ranks and comparisons are recomputed. A method stands in one
bundle only; where a bundle never came to run it, the other one's counts. The merged bundle is
signed by whoever merges, says which bundles it was made of, carries the configuration freeze that
they share, and gets its name only once it verifies itself.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from runner.bundle import durable
from runner.bundle.paths import FOLDER, SIGNATURES
from runner.bundle.write import SealedBundle, check_free
from runner.config_freeze import FILE as FREEZE
from runner.engine.api import ImageInfo
from runner.errors import BundleError, Where
from runner.ids import planned_units
from runner.keys import SigningKey
from runner.manifest import RunManifest, parse_run_manifest
from runner.merge_host import machines_of, merged_host
from runner.merge_manifest import run_yaml
from runner.model import ImagePin, MethodPlan, Outcome, Plan, Unit, UnitOutcome
from runner.modules import Module, load_sealed
from runner.plan_document import run_id_of
from runner.protocol.bind import bind
from runner.protocol.load import Protocol
from runner.scoring import import_notes, outcome_notes, results_document, score_parts, score_run
from runner.seal import Sealing, seal
from runner.tasks.api import Dataset, UnitScores
from runner.trust import Trust, explicit
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One verified bundle. ``host`` and ``images`` are its documents, ``freeze`` the bytes of its
    configuration freeze, ``signer`` the id of the key that signed it."""

    folder: Path
    manifest_sha256: str
    signer: str
    documents: Documents
    manifest: RunManifest
    freeze: bytes | None
    host: Mapping[str, Any]
    images: Mapping[str, Any]
    started: str
    finished: str


def merge(request: MergeRequest) -> SealedBundle:
    """Verify, merge, seal and verify what was sealed. Raises ``BundleError`` for bundles that do
    not verify or do not fit together, and for a merged one that does not verify: nothing of it is
    left then. ``DataError`` and ``StorageError`` as a run does."""
    if len(request.bundles) < 2:
        _refuse("merge.nothing", "a merge needs at least two bundles", request.bundles[0])
    check_free(request.out)
    parts = [_part(folder, request) for folder in request.bundles]
    for part in parts[1:]:
        _check_frame(parts[0], part)
    chosen = choose(parts)
    plan = merged_plan([part.documents.plan for part in parts], [m for m, _ in chosen], request)
    owners = {method.name: part for method, part in chosen}
    host = merged_host([(part.signer, part.host) for part in parts])
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
        notes = (*import_notes(plan), *outcome_notes(outcomes), *merge_notes(parts, host))
        sealing = Sealing(
            plan=plan,
            protocol=request.protocol,
            manifest_raw=_manifest(plan, parts, owners),
            outcomes=outcomes,
            results=results_document(plan, request.protocol, scored, notes),
            host=host,
            images=_images(chosen),
            modules=_modules(chosen),
            started=min(part.started for part in parts),
            finished=max(part.finished for part in parts),
            attached={} if parts[0].freeze is None else {FREEZE: parts[0].freeze},
        )
        return _seal_verified(sealing, files, request)


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


def merged_plan(
    plans: Sequence[Plan], methods: Sequence[MethodPlan], request: MergeRequest
) -> Plan:
    """Return the plan that a run of all these methods would have had."""
    names = {method.name for method in methods}
    plan = replace(
        plans[0],
        run_id="",
        name=request.name or plans[0].name,
        jobs=max(plan.jobs for plan in plans),
        methods=tuple(methods),
        units=(),
        overrides={},  # run.yaml is written anew and says it all
        baseline=next((one.baseline for one in plans if one.baseline in names), None),
    )
    plan = replace(plan, units=planned_units(plan, request.protocol.document))
    return replace(plan, run_id=run_id_of(plan))


def merge_notes(parts: Sequence[Part], host: Mapping[str, Any]) -> list[str]:
    """What the results must say about where they come from."""
    names = [f"{part.documents.plan.name} (sha256:{part.manifest_sha256})" for part in parts]
    notes = [f"merged from {', '.join(names)}"]
    count = machines_of(host)
    if count > 1:
        notes.append(f"timings come from {count} hosts and must not be compared")
    return notes


def _manifest(plan: Plan, parts: Sequence[Part], owners: Mapping[str, Part]) -> bytes:
    specs = {
        spec.name: spec
        for name, part in owners.items()
        for spec in part.manifest.methods
        if spec.name == name
    }
    tuned = any(part.manifest.tuned for part in parts)
    return run_yaml(plan, specs, tuned=tuned, frozen=parts[0].freeze is not None)


def _seal_verified(
    sealing: Sealing, files: Mapping[str, UnitFiles], request: MergeRequest
) -> SealedBundle:
    """Seal beside the final place, verify as anybody would, and only then move it there."""
    out, new = request.out, not request.out.exists()
    durable.make_directory(out)
    with durable.storage_errors(out):
        staging = Path(tempfile.mkdtemp(prefix=".partial-merge-", dir=out))
    try:
        bundle = seal(sealing, files, staging, request.key)
        _check_merged(bundle.path, request)
        for name in (FOLDER, SIGNATURES):
            if (staging / name).exists():
                durable.rename_new(staging / name, out / name)
        durable.fsync_directory(out)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        if new:
            with suppress(OSError):
                out.rmdir()
        raise
    shutil.rmtree(staging, ignore_errors=True)
    return replace(bundle, path=out / FOLDER)


def _check_merged(bundle: Path, request: MergeRequest) -> None:
    report = verify_bundle(
        VerifyRequest(
            bundle=bundle,
            protocol_id=request.protocol.protocol_id,
            protocol=request.protocol,
            trust=_with_own(request),
            data_root=request.data_root,
            allow_unsigned=request.key is None,
        )
    )
    why = _lack(report)
    if why is not None:
        message = f"the merged bundle would not verify, and nothing was written: {why}"
        _refuse("merge.result", message, request.bundles[0])


def _lack(report: VerifyReport) -> str | None:
    """Why a bundle is not recomputed without a fault; None where it is."""
    if report.faults:
        return str(report.faults[0])
    return None if report.recomputed.holds else report.recomputed.detail


def _with_own(request: MergeRequest) -> Trust | None:
    """Whose signatures count on the merged bundle: those that counted, and who merges, whatever
    the trust file lets that key sign."""
    if request.key is None:
        return request.trust
    own = explicit([request.key.public])
    known = () if request.trust is None else request.trust.keys
    others = (key for key in known if key.public.raw != request.key.public.raw)
    return Trust(keys=(*own.keys, *others))


def _part(folder: Path, request: MergeRequest) -> Part:
    report = verify_bundle(
        VerifyRequest(
            bundle=folder,
            protocol_id=request.protocol.protocol_id,
            protocol=request.protocol,
            trust=request.trust,
            data_root=request.data_root,
        )
    )
    return part_of(folder, report)


def part_of(folder: Path, report: VerifyReport) -> Part:
    """Return a verified bundle; raise ``BundleError`` with its first fault otherwise."""
    documents, claims = report.documents, report.admission.claims
    why = _lack(report)
    if why is not None or documents is None:
        _refuse("merge.unverified", f"it does not verify: {why}", folder)
    signer, sha256 = report.admission.signer, report.admission.manifest_sha256
    if claims is None or signer is None or sha256 is None:
        _refuse("merge.unsigned", "nobody signed it", folder)
    frozen = folder / FREEZE
    return Part(
        folder=folder,
        manifest_sha256=sha256,
        signer=signer.keyid,
        documents=documents,
        manifest=parse_run_manifest((folder / "run.yaml").read_bytes(), Path("run.yaml")),
        freeze=frozen.read_bytes() if frozen.exists() else None,
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
    if other.freeze != first.freeze:
        message = "its configuration freeze is another one than that of"
        if None in (first.freeze, other.freeze):
            message = "one has a configuration freeze and one has none: it and"
        _refuse("merge.other-freeze", f"{message} {first.folder}", other.folder)


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
