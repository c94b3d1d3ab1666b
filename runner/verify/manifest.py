"""Does plan.json follow from run.yaml, in every member and for every method, both ways?

A manifest that says one thing beside a plan that does another would let a signer publish the one
and run the other: drop a method that failed, take another image or seed. What a command line may
set over the manifest stands in the plan's ``overrides``; any other difference is a fault. What only
an image declares is for ``declared`` to judge, and modules are for ``modules``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runner.bundle.admission import Fault
from runner.canonical import canonical_bytes
from runner.imagelock import image_differs
from runner.manifest import MethodSpec, RunManifest
from runner.model import MethodPlan, Plan
from runner.plan import baseline_of
from runner.protocol.load import Protocol
from runner.resolve import effective_limits


def manifest_faults(manifest: RunManifest, plan: Plan, protocol: Protocol) -> Iterator[Fault]:
    """Yield a fault for every member of the plan that run.yaml gives otherwise."""
    for problem in (*_frame(manifest, plan, protocol), *_methods(manifest, plan, protocol)):
        yield Fault(file="run.yaml", code="bundle.contradiction", message=problem)


def _frame(manifest: RunManifest, plan: Plan, protocol: Protocol) -> Iterator[str]:
    if manifest.name != plan.name:
        yield "its name is not the plan's"
    if manifest.protocol_id not in (None, plan.protocol_id):
        yield "its protocol_id is not the plan's"
    stated: dict[str, Any] = {
        "seed": protocol.document["seed"] if manifest.seed is None else manifest.seed,
        "repeats": manifest.repeats,
        "jobs": manifest.jobs,
        "splits": list(manifest.splits),
        "baseline": baseline_of(manifest, plan.methods),
        **{name: value for name, value in plan.overrides.items() if name != "methods"},
    }
    for name, value in stated.items():
        found = getattr(plan, name)
        found = list(found) if isinstance(found, tuple) else found
        if found != value:
            yield f"{name} is {found} in the plan, and {value} by it and the sealed overrides"


def _methods(manifest: RunManifest, plan: Plan, protocol: Protocol) -> Iterator[str]:
    specs = {spec.name: spec for spec in manifest.methods}
    chosen = plan.overrides.get("methods", list(specs))
    assert isinstance(chosen, list)  # noqa: S101 - by the schema of a plan
    planned = {method.name: method for method in plan.methods}
    for name in planned.keys() - specs.keys():
        yield f"method {name} of the plan is not in it"
    expected = [name for name in specs if name in chosen]
    for name in expected:
        if name not in planned:
            yield f"its method {name} is not in the plan"
    for name in planned.keys() & specs.keys() - set(expected):
        yield f"method {name} of the plan is not one that the command line chose"
    if [name for name in planned if name in expected] != [n for n in expected if n in planned]:
        yield "its methods stand in another order than the plan's"
    for name in expected:
        if name in planned:
            for what in _method(manifest, specs[name], planned[name], protocol):
                yield f"{what} of method {name} {_verb(what)} not the plan's"


def _verb(what: str) -> str:
    plural = {"the limits", "the hosts", "the secrets", "the recordings", "the models"}
    return "are" if what in plural else "is"


def _method(
    manifest: RunManifest, spec: MethodSpec, method: MethodPlan, protocol: Protocol
) -> Iterator[str]:
    """Name the members of one method that are other ones in the plan."""
    executed = spec.image is not None
    waived = tuple(sorted({*manifest.waive, *spec.waive})) if executed else ()
    limits = effective_limits(protocol.budget, manifest.limits, spec.limits)
    secrets = tuple(ref.name for ref in spec.secrets)
    for what, stated, found in (
        ("being executed", executed, method.image is not None),
        ("the limits", limits, method.limits),
        ("waive", waived, method.waive),
        ("expect", spec.expect, method.expect),
        ("the hosts", spec.network, method.network),
        ("the secrets", secrets, method.secrets),
        ("the recordings", spec.recordings is not None, bool(method.recordings)),
        ("the models", spec.models, method.models),
        ("requires", spec.requires, method.requires),
        ("the command", spec.command or method.command, method.command),
        ("cache", method.cache if spec.cache is None else spec.cache, method.cache),
    ):
        if stated != found:
            yield what
    if not _within(spec.config, method.config):
        yield "the config"
    if executed and method.image is not None and image_differs(spec.image or "", method.image):
        yield "the image"
    if spec.pin is not None and any(
        (file.sha256, file.size) != (spec.pin.sha256, spec.pin.size) for file in method.precomputed
    ):
        yield "the pin"


def _within(stated: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Is every stated setting there, as the same JSON value? 1 and true are equal to Python."""
    return all(
        key in found and canonical_bytes([found[key]]) == canonical_bytes([value])
        for key, value in stated.items()
    )
