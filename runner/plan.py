"""A manifest against a protocol -> every unit to run, every default filled in, every id fixed.

Nothing is started or looked up, and read are only files that are part of a method's identity
(precomputed results, recordings, modules), to hash them.
The same inputs give the same ``run_id``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.canonical import Json
from runner.errors import ManifestError, ProtocolError, SealbenchError, UsageError
from runner.ids import Frame, frame_of, planned_units, unit_seed, units_of
from runner.imagelock import Locks
from runner.manifest import RunManifest
from runner.model import Limits, MethodPlan, Plan
from runner.plan_document import plan_document, plan_from_document, run_id_of
from runner.resolve import Errors, Surroundings, refuse_over_budget, resolve_method
from runner.schema_faults import suggest

__all__ = [
    "Overrides",
    "build_plan",
    "plan_document",
    "plan_from_document",
    "planned_units",
    "try_plan",
    "unit_seed",
]

MAX_UNITS = 10_000  # a unit makes up to four files, and a bundle holds at most 100,000
MAX_REPEATS, MAX_JOBS, MAX_SEED = 100, 64, 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What a command line sets over the manifest; None leaves the manifest's word."""

    seed: int | None = None
    repeats: int | None = None
    jobs: int | None = None
    splits: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None  # display names; only these run, in manifest order


def build_plan(
    manifest: RunManifest,
    protocol: Mapping[str, Any],
    locks: Locks,
    platform: str,
    overrides: Overrides | None = None,
) -> Plan:
    """Return the plan of a manifest against a portable protocol document.

    Raises the first of the errors that ``try_plan`` finds.
    """
    plan, errors = try_plan(manifest, protocol, locks, platform, overrides)
    if plan is None:
        raise errors[0]
    return plan


def try_plan(
    manifest: RunManifest,
    protocol: Mapping[str, Any],
    locks: Locks,
    platform: str,
    overrides: Overrides | None = None,
) -> tuple[Plan | None, tuple[SealbenchError, ...]]:
    """Return the plan, or None and every reason why there is none.

    The reasons are ``ManifestError``, ``ProtocolError`` (the run does not fit the protocol),
    ``ImageError`` and, for overrides, ``UsageError``.
    """
    overrides = overrides or Overrides()
    errors = Errors(places=manifest.places)
    frame = _frame(manifest, protocol, overrides, errors)
    budget = Limits(**protocol["budget"])
    refuse_over_budget(manifest.limits, budget, errors, ("limits",))
    around = Surroundings(
        locks=locks,
        platform=platform,
        budget=budget,
        datasets=tuple(dataset["name"] for dataset in protocol["datasets"]),
        tasks=tuple(dataset["task"] for dataset in protocol["datasets"]),
    )
    chosen = _chosen(manifest, overrides, errors)
    found = [(index, resolve_method(manifest, index, around, errors)) for index in chosen]
    methods = [(index, method) for index, method in found if method is not None]
    _refuse_twins([(manifest.methods[index].entry, made) for index, made in methods], errors)
    count = len(chosen) * len(frame.datasets) * frame.repeats
    if count > MAX_UNITS:
        message = f"{count} units: methods x datasets x repeats exceed {MAX_UNITS}"
        fix = "split the manifest, or lower repeats"
        errors.add(ManifestError, "manifest.too-many-units", message, fix, ("repeats",))
    if errors.found:
        return None, tuple(errors.found)
    jobs = overrides.jobs or manifest.jobs
    return _plan(manifest, protocol, frame, tuple(method for _, method in methods), jobs), ()


def _plan(
    manifest: RunManifest,
    protocol: Mapping[str, Any],
    frame: Frame,
    methods: tuple[MethodPlan, ...],
    jobs: int,
) -> Plan:
    values: dict[str, Any] = {
        "name": manifest.name,
        "benchmark_id": protocol["benchmark"]["id"],
        "protocol_id": frame.protocol_id,
        "splits": frame.splits,
        "seed": frame.seed,
        "repeats": frame.repeats,
        "jobs": jobs,
        "methods": methods,
        "units": units_of(methods, frame),
        "baseline": baseline_of(manifest, methods),
    }
    plan = Plan(run_id="", **values)
    plan = replace(plan, overrides=_overridden(manifest, protocol, plan))
    return replace(plan, run_id=run_id_of(plan))


def baseline_of(manifest: RunManifest, methods: Iterable[MethodPlan]) -> str | None:
    """Return the manifest's baseline, or None where it has none that is planned."""
    return manifest.baseline if manifest.baseline in {one.name for one in methods} else None


def _overridden(manifest: RunManifest, protocol: Mapping[str, Any], plan: Plan) -> dict[str, Json]:
    """Return what a plan says otherwise than its manifest: only a command line makes that."""
    by_manifest: dict[str, Json] = {
        "seed": protocol["seed"] if manifest.seed is None else manifest.seed,
        "repeats": manifest.repeats,
        "jobs": manifest.jobs,
        "splits": list(manifest.splits),
        "methods": [method.name for method in manifest.methods],
    }
    by_plan: dict[str, Json] = {
        "seed": plan.seed,
        "repeats": plan.repeats,
        "jobs": plan.jobs,
        "splits": list(plan.splits),
        "methods": [method.name for method in plan.methods],
    }
    return {name: value for name, value in by_plan.items() if value != by_manifest[name]}


def _frame(
    manifest: RunManifest, protocol: Mapping[str, Any], overrides: Overrides, errors: Errors
) -> Frame:
    for name, most in (("repeats", MAX_REPEATS), ("jobs", MAX_JOBS), ("seed", MAX_SEED)):
        value, least = getattr(overrides, name), 0 if name == "seed" else 1
        if value is not None and not least <= value <= most:
            message = f"--{name} {value} is out of bounds"
            fix = f"give {least} to {most}"
            errors.found.append(UsageError("usage.out-of-bounds", message, fix=fix))
    splits = _splits(manifest, protocol, overrides, errors)
    seed = next(s for s in (overrides.seed, manifest.seed, protocol["seed"]) if s is not None)
    frame = frame_of(protocol, splits, seed, overrides.repeats or manifest.repeats)
    if manifest.protocol_id not in (None, frame.protocol_id):
        message = f"the manifest wants {manifest.protocol_id}, the file is {frame.protocol_id}"
        fix = "get the protocol of that id, or correct protocol_id"
        errors.add(ProtocolError, "protocol.wrong-id", message, fix, ("protocol_id",))
    return frame


def _splits(
    manifest: RunManifest, protocol: Mapping[str, Any], overrides: Overrides, errors: Errors
) -> tuple[str, ...]:
    wanted = overrides.splits or manifest.splits
    every = [entry["splits"] for entry in protocol["datasets"]]
    known = [name for name in every[0] if all(name in splits for splits in every)]
    for index, name in enumerate(wanted):
        if name not in known:
            message = f"the protocol has no split {name!r}{suggest(name, known)}"
            fix = f"use one of: {', '.join(known)}"
            path = ("splits", index) if overrides.splits is None else ("splits",)
            errors.add(ProtocolError, "protocol.unknown-split", message, fix, path)
    return tuple(dict.fromkeys(wanted))


def _chosen(manifest: RunManifest, overrides: Overrides, errors: Errors) -> list[int]:
    names = [method.name for method in manifest.methods]
    if overrides.methods is None:
        return list(range(len(names)))
    for name in overrides.methods:
        if name not in names:
            message = f"the manifest has no method {name!r}{suggest(name, names)}"
            fix = f"use one of: {', '.join(names)}"
            errors.found.append(UsageError("usage.unknown-method", message, fix=fix))
    return [index for index, name in enumerate(names) if name in overrides.methods]


def _refuse_twins(methods: Iterable[tuple[int, MethodPlan]], errors: Errors) -> None:
    first: dict[str, MethodPlan] = {}
    for index, method in methods:
        twin = first.setdefault(method.method_id, method)
        if twin.name != method.name:  # the same name twice is told elsewhere
            message = f"{twin.name!r} and {method.name!r} are one method under two names"
            fix = "remove one, or give them different commands or config; limits are no difference"
            if method.image is None:
                fix = "remove one: their files have the same content"
            path = ("methods", index, "name")
            errors.add(ManifestError, "manifest.same-method", message, fix, path)
