"""The configuration freeze: a signed note of what was chosen before the held-out split was seen.

It is an in-toto Statement v1 in a DSSE envelope whose subject is the configuration: every method's
identity and limits, and the seed. Display names are no part of it. A run may execute some of the
frozen methods, and no other, with the limits and the seed that were frozen. What it shows is that
the signer had settled this by then; not that nobody had looked at the held-out labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runner.bundle import dsse
from runner.bundle.documents import parse_canonical, parse_utc
from runner.bundle.statement import STATEMENT_TYPE
from runner.canonical import canonical_bytes, digest_of
from runner.errors import BundleError, ProtocolError, Where
from runner.files import read_regular
from runner.keys import PublicKey, SigningKey
from runner.model import Limits, MethodPlan, Plan
from runner.protocol.splits import CALIBRATION

PREDICATE_TYPE = "https://sealbench.invalid/config-freeze/v1"
CONFIG_SCHEMA = "sealbench/config/v1"
KIND = "config-freeze"
#: Where a bundle has it.
FILE = "config-freeze.dsse.json"
MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenMethod:
    """One method that was settled; ``name`` is for people."""

    name: str
    method_id: str
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The sealed run that the choice rests on; ``manifest_sha256`` is ``sha256:<hex>``."""

    run_id: str
    manifest_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFreeze:
    """A configuration and when it was settled; ``calibration`` None: on no sealed run."""

    benchmark_id: str
    protocol_id: str
    seed: int
    methods: tuple[FrozenMethod, ...]
    frozen_on: str
    calibration: Calibration | None

    @property
    def config_hash(self) -> str:
        """The digest of what was settled: identities, limits and seed, whatever the names."""
        return config_hash(self.methods, self.seed)


def config_hash(methods: Iterable[FrozenMethod | MethodPlan], seed: int) -> str:
    """Return ``sha256:<hex>`` over method ids with their limits, in order of id, and the seed."""
    settled = [{"method_id": m.method_id, "limits": asdict(m.limits)} for m in methods]
    ordered = sorted(settled, key=lambda item: str(item["method_id"]))
    return digest_of({"schema": CONFIG_SCHEMA, "seed": seed, "methods": ordered})


def freeze_plan(plan: Plan, frozen_on: str, calibration: Calibration | None) -> ConfigFreeze:
    """Return the freeze of a plan's configuration.

    Raises ``ProtocolError`` where the plan is of a calibration run that scored more than that.
    """
    if calibration is not None and set(plan.splits) != {CALIBRATION}:
        raise ProtocolError(
            "protocol.not-calibration",
            f"the run scored {', '.join(plan.splits)}: it shows more than the calibration split",
            fix="freeze on a run with --split calibration alone",
        )
    return ConfigFreeze(
        benchmark_id=plan.benchmark_id,
        protocol_id=plan.protocol_id,
        seed=plan.seed,
        methods=tuple(
            FrozenMethod(name=method.name, method_id=method.method_id, limits=method.limits)
            for method in plan.methods
        ),
        frozen_on=frozen_on,
        calibration=calibration,
    )


def sign_freeze(frozen: ConfigFreeze, key: SigningKey) -> bytes:
    """Return the envelope of a freeze; ``BundleError`` where it does not fit its schema."""
    payload = _payload(frozen)
    parse_canonical(payload, kind=KIND, file=FILE)
    return dsse.sign(payload, key)


def read_freeze(
    envelope: bytes, keys: Iterable[PublicKey], *, file: str
) -> tuple[ConfigFreeze, PublicKey]:
    """Return a freeze and the key that signed it; ``BundleError`` unless one of ``keys`` did."""
    verified = dsse.verify(envelope, keys, file=file)
    document = parse_canonical(verified.payload, kind=KIND, file=file)
    frozen = _frozen(document["predicate"])
    if _payload(frozen) != verified.payload or parse_utc(frozen.frozen_on) is None:
        raise BundleError(
            "config-freeze.form",
            "its subject is not the configuration that it lists, or its time is none",
            fix="freeze the configuration again: `sealbench config freeze`",
            where=Where(file=file),
        )
    return frozen, verified.signer


def unverified_freeze(envelope: bytes, *, file: str) -> ConfigFreeze:
    """Return what an envelope holds, whoever signed it: for readers who judge that elsewhere."""
    payload = dsse.unverified_payload(envelope, file=file)
    return _frozen(parse_canonical(payload, kind=KIND, file=file)["predicate"])


def read_freeze_file(path: Path) -> bytes:
    """Return the bytes of a freeze record; ``ProtocolError`` where there is none."""
    try:
        return read_regular(path, MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ProtocolError(
            "protocol.no-config-freeze",
            f"cannot read the configuration freeze: {reason}",
            fix="make one with `sealbench config freeze`, and name its file",
            where=Where(file=str(path)),
        ) from error


def differences(plan: Plan, frozen: ConfigFreeze) -> Iterator[str]:
    """Say in which ways a plan is not what was frozen. Pure."""
    if frozen.protocol_id != plan.protocol_id:
        yield f"it was frozen under protocol {frozen.protocol_id}"
        return
    if frozen.seed != plan.seed:
        yield f"the seed is {plan.seed}, and {frozen.seed} was frozen"
    settled = {method.method_id: method for method in frozen.methods}
    names = {method.name: method for method in frozen.methods}
    for method in plan.methods:
        same = settled.get(method.method_id)
        if same is None and method.name in names:
            yield f"{method.name} has another image, command or config than was frozen"
        elif same is None:
            yield f"{method.name} was not frozen"
        elif same.limits != method.limits:
            yield f"the limits of {method.name} are not those that were frozen"


def refuse_unfrozen(plan: Plan, frozen: ConfigFreeze | None, *, required: bool) -> None:
    """Raise ``ProtocolError`` where a plan needs a freeze and has none, or is not what it says."""
    if frozen is None:
        if required:
            raise ProtocolError(
                "protocol.no-config-freeze",
                "the held-out split is for a configuration that was frozen before, and none is",
                fix="run with --split calibration, then `sealbench config freeze RUN`, then give "
                "--config-freeze FILE (manifest: config_freeze)",
            )
        return
    for problem in differences(plan, frozen):
        raise ProtocolError(
            "protocol.config-differs",
            f"not the configuration that was frozen on {frozen.frozen_on}: {problem}",
            fix="run the frozen configuration; or tune on calibration again and freeze anew, which "
            "the record's time will show",
        )


def _payload(frozen: ConfigFreeze) -> bytes:
    digest = frozen.config_hash.removeprefix("sha256:")
    predicate: dict[str, object] = {
        "benchmark_id": frozen.benchmark_id,
        "protocol_id": frozen.protocol_id,
        "seed": frozen.seed,
        "methods": [asdict(method) for method in frozen.methods],
        "frozen_on": frozen.frozen_on,
    }
    if frozen.calibration is not None:
        predicate["calibration"] = asdict(frozen.calibration)
    return canonical_bytes(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": "configuration", "digest": {"sha256": digest}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": predicate,
        }
    )


def _frozen(predicate: Mapping[str, Any]) -> ConfigFreeze:
    calibration = predicate.get("calibration")
    return ConfigFreeze(
        benchmark_id=predicate["benchmark_id"],
        protocol_id=predicate["protocol_id"],
        seed=predicate["seed"],
        methods=tuple(
            FrozenMethod(
                name=item["name"], method_id=item["method_id"], limits=Limits(**item["limits"])
            )
            for item in predicate["methods"]
        ),
        frozen_on=predicate["frozen_on"],
        calibration=None if calibration is None else Calibration(**calibration),
    )
