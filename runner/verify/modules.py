"""Does a bundle hold exactly the modules that its plan names, each with its digest?"""

from __future__ import annotations

from collections.abc import Iterator

from runner.bundle.admission import Fault, fault_of
from runner.bundle.manifest import Role
from runner.bundle.read import BundleView
from runner.errors import BundleError
from runner.manifest import RunManifest
from runner.model import Plan
from runner.modules import load_sealed, sealed_folder


def module_faults(view: BundleView, manifest: RunManifest | None, plan: Plan) -> Iterator[Fault]:
    """Yield what is wrong with the modules, or with what run.yaml says of them.

    ``manifest`` is None where run.yaml could not be read.
    """
    stated = {spec.name: spec.module is not None for spec in manifest.methods} if manifest else {}
    for method in plan.methods:
        if stated.get(method.name, method.module is not None) != (method.module is not None):
            message = f"method {method.name} has a module in one and none in the other"
            yield Fault(file="run.yaml", code="bundle.contradiction", message=message)
    allowed: set[str] = set()
    broken: list[str] = []  # what lies there is refused already
    for digest in sorted({method.module for method in plan.methods if method.module is not None}):
        try:
            module = load_sealed(digest, view.read_verified)
        except BundleError as error:
            yield fault_of(error, sealed_folder(digest))
            broken.append(f"{sealed_folder(digest)}/")
        else:
            allowed |= {path for path, _ in module.sealed()}
    for entry in view.manifest.by_role(Role.MODULE):
        if entry.path not in allowed and not entry.path.startswith(tuple(broken)):
            message = "it belongs to no module that the plan names"
            yield Fault(file=entry.path, code="bundle.stray-file", message=message)
