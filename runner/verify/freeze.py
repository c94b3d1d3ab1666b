"""Does a bundle that scores the held-out split keep to what was frozen before?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runner.bundle.admission import Fault, fault_of
from runner.bundle.manifest import Role
from runner.bundle.read import BundleView
from runner.config_freeze import FILE, ConfigFreeze, differences, read_freeze
from runner.errors import BundleError
from runner.keys import PublicKey
from runner.model import Plan
from runner.protocol.load import Protocol
from runner.protocol.splits import freeze_required


@dataclass(frozen=True, slots=True)
class FrozenRun:
    """What a freeze is held against."""

    plan: Plan
    protocol: Protocol
    tuned: bool


def freeze_faults(view: BundleView, run: FrozenRun, keys: Sequence[PublicKey]) -> Iterator[Fault]:
    """Yield what is wrong with the record, or that it is missing.

    A bundle that executes another one's plan again carries none: the freeze is the original's. With
    no keys at all (an unsigned bundle that was asked for) nobody's signature can be judged.
    """
    if view.manifest.get(FILE) is None:
        required = freeze_required(run.plan.splits, run.protocol.splits, tuned=run.tuned)
        if required and not view.manifest.by_role(Role.REPRODUCTION):
            message = "the held-out split was scored, and nothing says what was settled before"
            yield _fault("bundle.missing-file", message)
        return
    if not keys:
        return
    try:
        frozen, _ = read_freeze(view.read_verified(FILE), keys, file=FILE)
    except BundleError as error:
        yield fault_of(error, FILE)
        return
    for problem in differences(run.plan, frozen):
        yield _fault("bundle.config-differs", f"the plan is not what was frozen: {problem}")
    yield from _time_faults(view, frozen)


def frozen_by(view: BundleView, keys: Sequence[PublicKey]) -> str | None:
    """Return the id of the key that signed the record of a bundle whose freeze has no fault; None
    where there is no record, or nobody's signature was judged."""
    if view.manifest.get(FILE) is None or not keys:
        return None
    return read_freeze(view.read_verified(FILE), keys, file=FILE)[1].keyid


def _time_faults(view: BundleView, frozen: ConfigFreeze) -> Iterator[Fault]:
    claims = view.admission.claims
    # Both are RFC 3339 in UTC and claimed by their signers: compared, not believed.
    if claims is not None and frozen.frozen_on[:19] > claims.started[:19]:
        message = f"frozen on {frozen.frozen_on}, after the run had started ({claims.started})"
        yield _fault("bundle.frozen-late", message)


def _fault(code: str, message: str) -> Fault:
    return Fault(file=FILE, code=code, message=message)
