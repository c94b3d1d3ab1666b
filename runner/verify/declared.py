"""Is every effective setting of a method the one that image and manifest give?

The verifier's own lock says what a published image declares. Where a bundle's image is the one in
that lock, command, cache, each setting and the declared way of searching must follow from lock and
run.yaml; a signer who changed one of them in the plan is found out. An image that no lock ever knew
declares nothing: then run.yaml alone gives them. An image of another lock than this verifier's is
not judged: it may be older or newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from runner.bundle.admission import Fault
from runner.imagelock import Locks, MethodDeclaration, is_undeclared
from runner.manifest import MethodSpec, RunManifest
from runner.model import MethodPlan, Plan

Declared = Mapping[str, MethodDeclaration]
_NOTHING = MethodDeclaration(command=(), config={}, cache=False, tasks=())


def declared_faults(manifest: RunManifest, plan: Plan, locks: Locks) -> Iterator[Fault]:
    """Yield a fault for every member of the plan that neither the lock nor the manifest gives."""
    specs = {spec.name: spec for spec in manifest.methods}
    for method in plan.methods:
        spec = specs.get(method.name)
        declared = None if spec is None else _declarations(method, spec, locks)
        if spec is None or declared is None:
            continue
        for problem in _differences(method, spec, declared):
            message = f"method {method.name}: {problem}"
            yield Fault(file="plan.json", code="bundle.undeclared", message=message)


def _declarations(method: MethodPlan, spec: MethodSpec, locks: Locks) -> Declared | None:
    """Return what a method's image declares; None where this verifier cannot know."""
    pin = method.image
    if pin is None or spec.image is None:
        return None
    entry = locks.published.images.get(pin.name, {}).get(pin.platform)
    if entry is not None and entry.image_id == pin.image_id:
        return locks.published.methods.get(pin.name, {})
    return {} if is_undeclared(spec.image, pin) else None


def _differences(method: MethodPlan, spec: MethodSpec, methods: Declared) -> Iterator[str]:
    declared = methods.get(spec.method or spec.name, _NOTHING)
    config = {**declared.config, **spec.config}
    for key in sorted(config.keys() | method.config.keys()):
        if key not in config:
            yield f"it has a setting {key!r} that its image does not declare"
        elif key not in method.config or method.config[key] != config[key]:
            found = method.config.get(key)
            yield f"{key} is {found!r}, and image and manifest give {config[key]!r}"
    if method.command != (spec.command or declared.command):
        yield "its command is not the one that its image declares"
    if method.cache != (declared.cache if spec.cache is None else spec.cache):
        yield "it has a cache, or none, against its image and the manifest"
    takes = declared.module and spec.command is None
    if (method.module is not None) != takes:
        yield "it has a module, or none, against what its image takes"
    said = dict(declared.declares) if spec.command is None else {}
    if method.declares and dict(method.declares) != said:
        yield "it says of its mode, backend or exactness what its image does not declare"
