"""plan.json <-> ``Plan``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from runner.canonical import digest_of
from runner.egress.targets import entry_problem, parse_target
from runner.errors import BundleError, Where
from runner.ids import id_of, unit_seed
from runner.model import (
    ImagePin,
    ImportedFile,
    Limits,
    MethodPlan,
    ModelPin,
    NetworkPolicy,
    Outcome,
    Plan,
    Unit,
)
from runner.schemas import validate

PLAN_SCHEMA = "sealbench/plan/v1"


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return plan.json as a document of plain JSON values; its canonical bytes are the file."""
    baseline = {} if plan.baseline is None else {"baseline": plan.baseline}
    return {
        "schema": PLAN_SCHEMA,
        "run_id": plan.run_id,
        "name": plan.name,
        "benchmark_id": plan.benchmark_id,
        "protocol_id": plan.protocol_id,
        "splits": list(plan.splits),
        "seed": plan.seed,
        "repeats": plan.repeats,
        "jobs": plan.jobs,
        **baseline,  # absent elsewhere, so that plans without one keep their ids
        "methods": [_method_document(method) for method in plan.methods],
        "units": [
            {
                "unit_id": unit.unit_id,
                "method": unit.method,
                "method_id": unit.method_id,
                "dataset": unit.dataset,
                "repeat": unit.repeat,
                "seed": unit.seed,
            }
            for unit in plan.units
        ],
        # Absent elsewhere, so that plans that say what their manifests say keep their ids.
        **({"overrides": dict(plan.overrides)} if plan.overrides else {}),
    }


def _method_document(method: MethodPlan) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": method.name,
        "method_id": method.method_id,
        "image": None if method.image is None else asdict(method.image),
        "command": list(method.command),
        "config": dict(method.config),
        "limits": asdict(method.limits),
        "cache": method.cache,
        "waive": list(method.waive),
        "expect": method.expect.value,
    }
    if method.precomputed:  # absent elsewhere, so that plans without any keep their ids
        document["precomputed"] = [asdict(file) for file in method.precomputed]
    if method.network is not None:
        allow, most = list(method.network.allow), method.network.max_bytes
        document["network"] = {"allow": allow, "max_bytes": most}
    if method.secrets:
        document["secrets"] = list(method.secrets)
    if method.recordings:
        document["recordings"] = [asdict(file) for file in method.recordings]
    if method.models:
        document["models"] = [asdict(pin) for pin in method.models]
    if method.module is not None:
        document["module"] = method.module
    if method.requires:
        document["requires"] = list(method.requires)
    if method.declares:
        document["declares"] = dict(method.declares)
    return document


def run_id_of(plan: Plan) -> str:
    """Return the digest of a plan without its own run_id."""
    document = plan_document(plan)
    del document["run_id"]
    return digest_of(document)


def plan_from_document(document: Mapping[str, Any], file: str = "plan.json") -> Plan:
    """Return the plan of a plan.json document.

    Raises ``BundleError`` when it does not fit its schema or contradicts itself. That its unit ids
    are those of a protocol is for ``planned_units`` to tell.
    """
    validate("plan", document, where_file=file, error_class=BundleError)
    plain = {key: value for key, value in document.items() if key != "schema"}
    plain["splits"] = tuple(document["splits"])
    plain["methods"] = tuple(_method(entry) for entry in document["methods"])
    plain["units"] = tuple(Unit(**entry) for entry in document["units"])
    plan = Plan(**plain)
    for problem in _contradictions(plan):
        raise BundleError(
            "bundle.bad-plan",
            problem,
            fix="get the bundle again from its source: a sealed plan is never edited",
            where=Where(file=file),
        )
    return plan


def _method(entry: Mapping[str, Any]) -> MethodPlan:
    return MethodPlan(
        name=entry["name"],
        method_id=entry["method_id"],
        image=entry["image"] and ImagePin(**entry["image"]),
        command=tuple(entry["command"]),
        config=entry["config"],
        limits=Limits(**entry["limits"]),
        cache=entry["cache"],
        waive=tuple(entry["waive"]),
        expect=Outcome(entry["expect"]),
        precomputed=tuple(ImportedFile(**file) for file in entry.get("precomputed", ())),
        network=_network(entry.get("network")),
        secrets=tuple(entry.get("secrets", ())),
        recordings=tuple(ImportedFile(**file) for file in entry.get("recordings", ())),
        models=tuple(ModelPin(**pin) for pin in entry.get("models", ())),
        requires=tuple(entry.get("requires", ())),
        declares=entry.get("declares", {}),
        module=entry.get("module"),
    )


def _network(entry: Mapping[str, Any] | None) -> NetworkPolicy | None:
    if entry is None:
        return None
    return NetworkPolicy(allow=tuple(entry["allow"]), max_bytes=entry["max_bytes"])


def _contradictions(plan: Plan) -> Iterator[str]:
    if plan.run_id != (found := run_id_of(plan)):
        yield f"run_id is {plan.run_id}, and the content gives {found}"
    names = [method.name for method in plan.methods]
    if len({*names}) < len(names):
        yield "two methods have one name"
    if plan.baseline not in (None, *names):
        yield f"its baseline {plan.baseline} is no method of it"
    for method in plan.methods:
        yield from _method_contradictions(plan, method)
    ids = {method.name: method.method_id for method in plan.methods}
    datasets = list(dict.fromkeys(unit.dataset for unit in plan.units))
    expected = [
        (repeat, name, ids[name], dataset, unit_seed(plan.seed, repeat))
        for repeat in range(plan.repeats)
        for name in names
        for dataset in datasets
    ]
    if expected != [(u.repeat, u.method, u.method_id, u.dataset, u.seed) for u in plan.units]:
        yield "the units are not repeats x methods x datasets, each once and in order"
    if len({unit.unit_id for unit in plan.units}) < len(plan.units):
        yield "two units have one unit_id"


def _method_contradictions(plan: Plan, method: MethodPlan) -> Iterator[str]:
    datasets = sorted({unit.dataset for unit in plan.units})
    if method.image is not None:
        if not method.image.digest:
            yield f"method {method.name} has an image without a digest"
        if method.precomputed or not method.command:
            yield f"method {method.name} has an image, yet does not say what it runs"
        if method.recordings and sorted(f.dataset for f in method.recordings) != datasets:
            yield f"method {method.name} has not one recording for each dataset"
        yield from _network_contradictions(method)
    elif any((method.command, method.config, method.cache, method.network, method.secrets,
              method.module)):  # fmt: skip
        yield f"method {method.name} has no image, and nothing can run without one"
    elif sorted(file.dataset for file in method.precomputed) != datasets:
        yield f"method {method.name} has not one file for each dataset"
    if method.method_id != (found := id_of(method)):
        yield f"method {method.name} is {method.method_id}, and its content gives {found}"


def _network_contradictions(method: MethodPlan) -> Iterator[str]:
    allow = () if method.network is None else method.network.allow
    for text in allow:
        try:
            target = parse_target(text, default_port=None)
            problem = entry_problem(target) or ("" if str(target) == text else "not canonical")
        except ValueError as error:
            problem = str(error)
        if problem:
            yield f"method {method.name} may reach {text!r}: {problem}"
    if list(allow) != sorted(set(allow)) or list(method.secrets) != sorted(set(method.secrets)):
        yield f"method {method.name} has hosts or secrets twice or out of order"
