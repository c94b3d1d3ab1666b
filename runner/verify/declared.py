"""Is every effective setting of a published method the one that image and manifest give?

The verifier's own lock says what a published image declares. Where a bundle's image is the one in
that lock, command, cache, each setting and the declared way of searching must follow from lock and
run.yaml; a signer who changed one of them in the plan is found out. An image that this verifier's
lock does not have is not judged: it may be older or newer, or somebody's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from runner.bundle.admission import Fault
from runner.imagelock import Locks, MethodDeclaration
from runner.manifest import MethodSpec, RunManifest
from runner.model import MethodPlan, Plan


def declared_faults(manifest: RunManifest, plan: Plan, locks: Locks) -> Iterator[Fault]:
    """Yield a fault for every member of the plan that neither the lock nor the manifest gives."""
    specs = {spec.name: spec for spec in manifest.methods}
    for method in plan.methods:
        spec = specs.get(method.name)
        declared = None if spec is None else _declaration(method, spec, locks)
        if spec is None or declared is None:
            continue
        for problem in _differences(method, spec, declared):
            message = f"method {method.name}: {problem}"
            yield Fault(file="plan.json", code="bundle.undeclared", message=message)


def _declaration(method: MethodPlan, spec: MethodSpec, locks: Locks) -> MethodDeclaration | None:
    pin = method.image
    if pin is None or spec.command is not None:
        return None
    entry = locks.published.images.get(pin.name, {}).get(pin.platform)
    if entry is None or entry.image_id != pin.image_id:
        return None
    return locks.published.methods.get(pin.name, {}).get(spec.method or spec.name)


def _differences(
    method: MethodPlan, spec: MethodSpec, declared: MethodDeclaration
) -> Iterator[str]:
    config = {**declared.config, **spec.config}
    for key in sorted(config.keys() | method.config.keys()):
        if key not in config:
            yield f"it has a setting {key!r} that its image does not declare"
        elif key not in method.config or method.config[key] != config[key]:
            found = method.config.get(key)
            yield f"{key} is {found!r}, and image and manifest give {config[key]!r}"
    if method.command != declared.command:
        yield "its command is not the one that its image declares"
    if method.cache != (declared.cache if spec.cache is None else spec.cache):
        yield "it has a cache, or none, against its image and the manifest"
    if (method.module is not None) != declared.module:
        yield "it has a module, or none, against what its image takes"
    if method.declares and dict(method.declares) != dict(declared.declares):
        yield "it says of its mode, backend or exactness what its image does not declare"
