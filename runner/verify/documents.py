"""The documents of a bundle, read strictly and held against each other.

A valid signature only says who sealed the files. What is checked here is that the files tell one
story: the plan follows from protocol and run manifest, every planned unit has one outcome, each
outcome follows from its evidence, and no file belongs to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from runner.bundle.admission import Fault, fault_of
from runner.bundle.documents import parse_canonical
from runner.bundle.manifest import Role
from runner.bundle.read import BundleView
from runner.bundle.statement import plan_claims
from runner.claims import FILE as CLAIMS
from runner.errors import BundleError, SealbenchError, Where
from runner.ids import planned_units
from runner.imagelock import load_locks
from runner.keys import PublicKey
from runner.manifest import parse_run_manifest
from runner.model import MethodPlan, Outcome, Plan, Unit, UnitOutcome
from runner.outcome import classify
from runner.plan_document import plan_from_document
from runner.protocol.load import Protocol, parse_protocol
from runner.records import outcome_from_record, outcome_line
from runner.rows.faults import RowRefused
from runner.schemas import validate
from runner.strict_json import strict_loads
from runner.verify.claims import claims_faults
from runner.verify.declared import declared_faults
from runner.verify.freeze import FrozenRun, freeze_faults, frozen_by
from runner.verify.manifest import manifest_faults
from runner.verify.modules import module_faults
from runner.verify.times import Timed, is_merged, time_faults
from runner.workspace import stem

T = TypeVar("T")
_FIX = "get the bundle again from its author"
#: outcomes.jsonl of the largest plan that is allowed, each record with its 100 faults.
MAX_OUTCOMES_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The parsed documents of a bundle; ``cores`` (logical) of the host that it was made on.

    Only of a bundle without a fault: ``claims`` is its claims.json, and ``frozen_by`` the id of the
    key whose signature on the configuration freeze was verified.
    """

    protocol: Protocol
    plan: Plan
    outcomes: tuple[UnitOutcome, ...]
    results: Mapping[str, Any]
    cores: int | None = None
    claims: Mapping[str, Any] | None = None
    frozen_by: str | None = None


def read_documents(
    view: BundleView, protocol_id: str, faults: list[Fault], keys: Sequence[PublicKey] = ()
) -> Documents | None:
    """Parse and compare all documents; append every fault; None when scores cannot be judged.

    ``keys`` are those whose signature on a configuration freeze counts.
    """
    protocol = _try(faults, "protocol.json", lambda: _protocol(view, protocol_id))
    plan = _try(faults, "plan.json", lambda: _plan(view))
    results = _try(faults, "results.json", lambda: _canonical(view, "results.json", "results"))
    images = _try(faults, "images.json", lambda: _canonical(view, "images.json", "images"))
    host = _try(faults, "host.json", lambda: _canonical(view, "host.json", "host"))
    if protocol is None or plan is None:
        return None
    faults += _plan_faults(view, plan, protocol)
    manifest = _try(
        faults,
        "run.yaml",
        lambda: parse_run_manifest(view.read_verified("run.yaml"), Path("run.yaml")),
    )
    if manifest is not None:
        faults += manifest_faults(manifest, plan, protocol)
        faults += declared_faults(manifest, plan, load_locks(local=None))
        faults += freeze_faults(view, FrozenRun(plan, protocol, tuned=manifest.tuned), keys)
    faults += module_faults(view, manifest, plan)
    if images is not None:
        faults += _image_faults(images, plan)
    outcomes = _try(faults, "outcomes.jsonl", lambda: tuple(_outcomes(view, plan)))
    if outcomes is None:
        return None
    faults += _outcome_faults(outcomes, plan)
    cores = None if host is None else host["cpu"]["logical"]
    claims, merged = view.admission.claims, is_merged(results)
    faults += time_faults(outcomes, Timed(plan=plan, claims=claims, cores=cores, merged=merged))
    faults += _file_faults(view, outcomes)
    if host is not None:
        faults += claims_faults(view, plan, protocol, outcomes, host)
    if results is None or tuple(record.unit for record in outcomes) != plan.units:
        return None
    found = Documents(protocol=protocol, plan=plan, outcomes=outcomes, results=results, cores=cores)
    if faults:
        return found
    frozen = frozen_by(view, keys)
    return replace(found, claims=_canonical(view, CLAIMS, "claims"), frozen_by=frozen)


def _try(faults: list[Fault], file: str, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except BundleError as error:
        faults.append(fault_of(error, file))
    except SealbenchError as error:
        faults.append(Fault(file=file, code=error.code, message=error.message))
    return None


def _canonical(view: BundleView, file: str, kind: str) -> dict[str, Any]:
    return parse_canonical(view.read_verified(file), kind=kind, file=file)


def _protocol(view: BundleView, protocol_id: str) -> Protocol:
    protocol = parse_protocol(view.read_verified("protocol.json"), Path("protocol.json"))
    if protocol.roots or protocol.protocol_id != protocol_id:
        raise BundleError(
            "bundle.other-protocol",
            f"it is protocol {protocol.protocol_id}, expected {protocol_id}",
            fix=_FIX,
            where=Where(file="protocol.json"),
        )
    return protocol


def _plan(view: BundleView) -> Plan:
    return plan_from_document(_canonical(view, "plan.json", "plan"))


def _plan_faults(view: BundleView, plan: Plan, protocol: Protocol) -> Iterator[Fault]:
    def fault(message: str, file: str = "plan.json") -> Fault:
        return Fault(file=file, code="bundle.contradiction", message=message)

    if plan.protocol_id != protocol.protocol_id or plan.benchmark_id != protocol.benchmark_id:
        yield fault("it is a plan under another protocol")
        return
    if not set(plan.splits) <= set(protocol.splits):
        yield fault("it names a split that the protocol does not have")
        return
    if plan.units != planned_units(plan, protocol.document):
        yield fault("its units are not those that protocol, methods and repeats give")
    for method in plan.methods:
        for name in ("wall_ms", "memory_bytes", "cpus_milli", "pids", "output_bytes"):
            if getattr(method.limits, name) > getattr(protocol.budget, name):
                yield fault(f"method {method.name} has {name} above the protocol's budget")
    if plan.run_id != view.manifest.run_id:
        yield fault("its run_id is not that of manifest.json")
    claims = view.admission.claims
    if claims is None:
        return
    for name, value in plan_claims(plan).items():
        found = getattr(claims, name)
        if _sorted(found) != _sorted(value):
            yield fault(f"its {name} is not what the receipt binds")
    fingerprints = {entry.name: entry.fingerprint for entry in protocol.datasets}
    if dict(claims.datasets) != fingerprints:
        yield fault("its datasets are not those that the receipt binds", "protocol.json")


def _sorted(value: object) -> object:
    """Claims about images come back in the receipt's own order."""
    return sorted(value, key=repr) if isinstance(value, tuple) else value


def _image_faults(images: Mapping[str, Any], plan: Plan) -> Iterator[Fault]:
    listed = {name: entry for entry in images["images"] for name in entry["methods"]}
    for method in plan.methods:
        if method.image is None:
            continue
        pin, entry = method.image, listed.pop(method.name, None)
        same = entry is not None and (
            entry["platform"] == pin.platform
            and entry["published"] == pin.published
            and pin.image_id in (None, entry["image_id"])
            and pin.manifest_digest in (None, entry["manifest_digest"])
        )
        if not same:
            message = f"the image of method {method.name} is not the one that the plan pins"
            yield Fault(file="images.json", code="bundle.contradiction", message=message)
    for name in listed:
        message = f"method {name} is not one that the plan executes"
        yield Fault(file="images.json", code="bundle.contradiction", message=message)


def _outcomes(view: BundleView, plan: Plan) -> Iterator[UnitOutcome]:
    units = {unit.unit_id: unit for unit in plan.units}
    data = view.read_verified("outcomes.jsonl", limit=MAX_OUTCOMES_BYTES)
    for number, line in enumerate(data.splitlines(keepends=True), start=1):
        where = Where(file="outcomes.jsonl", line=number)
        try:
            record = strict_loads(line)
        except RowRefused as error:
            raise BundleError(
                "bundle.not-json", f"not a JSON object: {error}", fix=_FIX, where=where
            ) from error
        validate("outcome", record, where_file=f"outcomes.jsonl:{number}", error_class=BundleError)
        outcome = outcome_from_record(cast(Mapping[str, Any], record), units, where)
        if outcome_line(outcome) != line:
            raise BundleError(
                "bundle.not-canonical", "not the canonical bytes of its content", fix=_FIX,
                where=where,
            )  # fmt: skip
        yield outcome


def _outcome_faults(outcomes: tuple[UnitOutcome, ...], plan: Plan) -> Iterator[Fault]:
    def fault(number: int | None, message: str) -> Fault:
        code = "bundle.bad-outcome"
        return Fault(file="outcomes.jsonl", code=code, message=message, line=number)

    if tuple(record.unit for record in outcomes) != plan.units:
        yield fault(None, "it has not exactly one record for every planned unit, in plan order")
    methods = {method.name: method for method in plan.methods}
    for number, record in enumerate(outcomes, start=1):
        method = methods[record.unit.method]
        if record.limits != method.limits:
            yield fault(number, "its limits are not the plan's")
        if not _same_source(record, method):
            yield fault(number, "its image or imported file is not the plan's")
        if not _same_network(record, method):
            yield fault(number, "the hosts that it could reach are not the plan's")
        if (record.outcome, record.reason) != classify(record.evidence, record.limits):
            yield fault(number, f"its evidence does not give the outcome {record.outcome.value}")


def _same_source(record: UnitOutcome, method: MethodPlan) -> bool:
    """Did the unit run the planned image, or was the planned file imported?"""
    pin, imported = method.image, record.evidence.imported
    if pin is None or record.image is None:
        file = method.imported(record.unit.dataset)
        planned = pin is None and record.image is None and file is not None
        return planned and imported in (None, file and file.sha256)
    same = record.image.digest == pin.digest or pin.image_id is None
    return same and imported is None


def _same_network(record: UnitOutcome, method: MethodPlan) -> bool:
    """Could the unit reach the planned hosts, and no other?"""
    use, policy = record.evidence.network, method.network
    if use is None:
        return policy is None or not record.evidence.started
    return policy is not None and sorted(use.hosts) == list(policy.allow)


def unit_files(unit: Unit) -> dict[str, str]:
    """The names below which a unit's files stand: rows (a folder), scores, stdout, stderr."""
    name = stem(unit)
    return {
        "rows": f"rows/{unit.method}/{name}/",
        "scores": f"scores/{unit.method}/{name}.csv",
        "per_query": f"per-query/{unit.method}/{name}.csv",
        "stdout": f"logs/{unit.method}/{name}.stdout.log",
        "stderr": f"logs/{unit.method}/{name}.stderr.log",
        "recording": f"artifacts/{unit.method}/{name}.jsonl",
    }


def _file_faults(view: BundleView, outcomes: tuple[UnitOutcome, ...]) -> Iterator[Fault]:
    """Every file of a unit belongs to one that has it, and what a unit must have is there."""
    allowed: set[str] = set()
    for record in outcomes:
        files = unit_files(record.unit)
        allowed |= {files["stdout"], files["stderr"]}
        parts = row_parts(view, record.unit)
        allowed |= set(parts)
        if record.evidence.network is not None:
            allowed.add(files["recording"])
        if record.outcome is Outcome.OK:
            allowed |= {files["scores"], files["per_query"]}
            for path in (files["scores"], *([] if parts else [f"{files['rows']}part-00000.jsonl"])):
                if view.manifest.get(path) is None:
                    message = "an ok unit has this file"
                    yield Fault(file=path, code="bundle.missing-file", message=message)
    for role in (Role.ROWS, Role.SCORES, Role.PER_QUERY, Role.LOG, Role.ARTIFACT):
        for entry in view.manifest.by_role(role):
            if entry.path not in allowed:
                message = "it belongs to no planned unit that has such a file"
                yield Fault(file=entry.path, code="bundle.stray-file", message=message)


def row_parts(view: BundleView, unit: Unit) -> list[str]:
    """The row files of a unit, in order."""
    prefix = unit_files(unit)["rows"]
    found: list[str] = []
    while view.manifest.get(path := f"{prefix}part-{len(found):05d}.jsonl") is not None:
        found.append(path)
    return found
