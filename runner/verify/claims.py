"""Do claims.json and the receipt say what the other documents of a bundle give?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.bundle.admission import Fault, fault_of
from runner.bundle.documents import parse_canonical
from runner.bundle.paths import CRATE
from runner.bundle.read import BundleView
from runner.bundle.rocrate import crate, run_info
from runner.canonical import canonical_bytes
from runner.claims import FILE, Facts, claims_document
from runner.config_freeze import FILE as FREEZE
from runner.config_freeze import unverified_freeze
from runner.errors import BundleError
from runner.model import Plan, UnitOutcome
from runner.protocol.load import Protocol


def claims_faults(
    view: BundleView,
    plan: Plan,
    protocol: Protocol,
    outcomes: Sequence[UnitOutcome],
    host: Mapping[str, Any],
) -> Iterator[Fault]:
    """Make the claims again and yield every member that is another one."""
    try:
        stored = parse_canonical(view.read_verified(FILE), kind="claims", file=FILE)
        freeze = None
        if view.manifest.get(FREEZE) is not None:
            freeze = unverified_freeze(view.read_verified(FREEZE), file=FREEZE)
    except BundleError as error:
        yield fault_of(error, FILE)
        return
    facts = Facts(plan=plan, protocol=protocol, outcomes=outcomes, host=host, freeze=freeze)
    again = claims_document(facts)
    for name in sorted(stored.keys() | again.keys()):
        if canonical_bytes([stored.get(name)]) != canonical_bytes([again.get(name)]):
            message = f"its {name} are not what the other documents give"
            yield Fault(file=FILE, code="bundle.claims-differ", message=message)
    yield from _source_faults(view, host)
    yield from _crate_faults(view, plan, protocol)


def _crate_faults(view: BundleView, plan: Plan, protocol: Protocol) -> Iterator[Fault]:
    """Others read the crate instead of our documents: it must say the same."""
    claims = view.admission.claims
    if claims is None:
        return  # it tells the times of the receipt, and there is none
    files = [entry for entry in view.manifest.files if entry.path != CRATE]
    info = run_info(plan, protocol.title, protocol.version)
    try:
        same = view.read_verified(CRATE) == canonical_bytes(crate(files, claims, info, signed=True))
    except BundleError as error:
        yield fault_of(error, CRATE)
        return
    if not same:
        message = "it is not what manifest, plan and receipt give"
        yield Fault(file=CRATE, code="bundle.contradiction", message=message)


def _source_faults(view: BundleView, host: Mapping[str, Any]) -> Iterator[Fault]:
    claims, runner, engine = view.admission.claims, host["runner"], host["engine"]
    if claims is None:
        return
    named = None if engine is None else f"{engine['name']} {engine['version']}"
    for what, bound, found in (
        ("source commit", claims.source_commit, runner["source_commit"]),
        ("dirty state", claims.source_dirty, runner["dirty"]),
        ("runner version", claims.runner_version, runner["version"]),
        ("engine", claims.engine_version, named),
    ):
        if bound != found:
            message = f"its {what} is not the one that the receipt binds"
            yield Fault(file="host.json", code="bundle.contradiction", message=message)
