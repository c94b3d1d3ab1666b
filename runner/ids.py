"""The identities of methods and units, and the seed of each unit. Pure.

A unit's seed is the run's seed for repeat 0, so that a single run uses the published seed itself.
For repeat r >= 1 it is the first four bytes, big-endian, of the SHA-256 of the ASCII text
``sealbench/seed/v1:<seed>:<r>``. All methods and datasets of one repeat share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from runner.canonical import Json, digest_of
from runner.model import ImagePin, ImportedFile, MethodPlan, ModelPin, NetworkPolicy, Plan, Unit

METHOD_ID_SCHEMA = "sealbench/method-id/v1"
PRECOMPUTED_ID_SCHEMA = "sealbench/precomputed-id/v1"
UNIT_ID_SCHEMA = "sealbench/unit-id/v1"


def method_id(
    pin: ImagePin,
    command: Sequence[str],
    config: Mapping[str, Json],
    *,
    cache: bool,
    given: Mapping[str, Json] = MappingProxyType({}),
) -> str:
    """Return the identity of a method: what runs, and with which settings. Names are not in it.

    ``given`` is what it gets beside inputs, such as hosts to reach; a method that gets nothing
    has the identity that it would have if there were no such things.
    """
    return digest_of(
        {
            "schema": METHOD_ID_SCHEMA,
            "image": pin.digest,
            "command": list(command),
            "config": dict(config),
            "cache": cache,
            **given,
        }
    )


def given_to(
    network: NetworkPolicy | None,
    recordings: Iterable[ImportedFile] = (),
    models: Iterable[ModelPin] = (),
    module: str | None = None,
) -> dict[str, Json]:
    """Return the part of a method's identity that is neither image nor settings.

    Secrets are none: whose key pays for an answer does not change it.
    """
    found: dict[str, Json] = {}
    if network is not None:
        found["network"] = {"allow": list(network.allow), "max_bytes": network.max_bytes}
    files: dict[str, Json] = {file.dataset: file.sha256 for file in recordings}
    if files:
        found["recordings"] = files
    pins: dict[str, Json] = {
        pin.name: {"revision": pin.revision, "digest": pin.digest} for pin in models
    }
    found |= {"models": pins} if pins else {}
    return found | ({"module": module} if module is not None else {})


def precomputed_id(files: Iterable[ImportedFile]) -> str:
    """Return the identity of a precomputed method: the content of its files, and no more."""
    digests = {file.dataset: file.sha256 for file in files}
    return digest_of({"schema": PRECOMPUTED_ID_SCHEMA, "files": digests})


def id_of(method: MethodPlan) -> str:
    """Return the identity that follows from what a method is."""
    if method.image is None:
        return precomputed_id(method.precomputed)
    given = given_to(method.network, method.recordings, method.models, method.module)
    return method_id(method.image, method.command, method.config, cache=method.cache, given=given)


def cache_id(method: MethodPlan) -> str:
    """Return the identity of an executed method's cache: the method's without command and settings.

    What a cache holds is keyed by content, and the commands of one image are one author's code: a
    text that one of them embedded is not embedded again by another. A method that reaches other
    hosts or gets other files has a cache of its own.
    """
    if method.image is None:
        raise ValueError(f"{method.name} is not executed")
    given = given_to(method.network, method.recordings, method.models, method.module)
    return method_id(method.image, (), {}, cache=True, given=given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What all units of a run have in common."""

    protocol_id: str
    datasets: tuple[tuple[str, str], ...]  # (name, fingerprint), in the protocol's order
    splits: tuple[str, ...]
    seed: int
    repeats: int
    rules_version: int


def unit_seed(seed: int, repeat: int) -> int:
    """Return the seed of one repeat, 0 to 2**32 - 1; the module's text says how."""
    if repeat == 0:
        return seed
    digest = hashlib.sha256(f"sealbench/seed/v1:{seed}:{repeat}".encode("ascii")).digest()
    return int.from_bytes(digest[:4], "big")


def units_of(methods: Sequence[MethodPlan], frame: Frame) -> tuple[Unit, ...]:
    """Return all units in the order in which they run: repeats, then methods, then datasets."""
    return tuple(
        _unit(method, dataset, fingerprint, repeat, frame)
        for repeat in range(frame.repeats)
        for method in methods
        for dataset, fingerprint in frame.datasets
    )


def _unit(method: MethodPlan, dataset: str, fingerprint: str, repeat: int, frame: Frame) -> Unit:
    seed = unit_seed(frame.seed, repeat)
    identity: dict[str, object] = {
        "schema": UNIT_ID_SCHEMA,
        "method_id": method.method_id,
        "protocol_id": frame.protocol_id,
        "dataset": dataset,
        "fingerprint": fingerprint,
        "splits": list(frame.splits),
        "repeat": repeat,
        "seed": seed,
        "limits": asdict(method.limits),
        "rules_version": frame.rules_version,
    }
    return Unit(
        unit_id=digest_of(identity),
        method=method.name,
        method_id=method.method_id,
        dataset=dataset,
        repeat=repeat,
        seed=seed,
    )


def planned_units(plan: Plan, protocol: Mapping[str, Any]) -> tuple[Unit, ...]:
    """Return the units that a plan must have under a protocol, in order: what a verifier compares
    with ``plan.units``."""
    return units_of(plan.methods, frame_of(protocol, plan.splits, plan.seed, plan.repeats))


def frame_of(
    protocol: Mapping[str, Any], splits: tuple[str, ...], seed: int, repeats: int
) -> Frame:
    """Return what a portable protocol document and the run's settings give to every unit."""
    return Frame(
        protocol_id=digest_of(protocol),
        datasets=tuple((entry["name"], entry["fingerprint"]) for entry in protocol["datasets"]),
        splits=splits,
        seed=seed,
        repeats=repeats,
        rules_version=protocol["rules"]["version"],
    )
