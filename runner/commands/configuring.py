"""``config freeze`` and ``config show``: what was settled before the held-out split was scored."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from runner import keys
from runner.bundle import durable
from runner.bundle.documents import parse_canonical
from runner.bundle.read import open_bundle
from runner.check import load_plan
from runner.clock import SystemClock
from runner.commands.output import emit
from runner.commands.running import signing_key
from runner.config_freeze import (
    Calibration,
    ConfigFreeze,
    freeze_plan,
    read_freeze,
    read_freeze_file,
    sign_freeze,
)
from runner.errors import EXIT_OK
from runner.keys import PublicKey
from runner.plan_document import plan_from_document
from runner.trust import explicit
from runner.verify.bundle import locate

SUFFIX = ".config-freeze.json"


def freeze(arguments: Namespace) -> int:
    """Sign the configuration of a calibration run (a bundle) or of a run manifest."""
    key, source = signing_key(arguments.key), arguments.source
    stamp = SystemClock().utc_stamp()
    if source.is_dir():
        frozen, name = of_bundle(locate(source), key.public, stamp)
        beside = source
    else:
        plan = load_plan(source)
        frozen, name, beside = freeze_plan(plan, stamp, None), plan.name, source.parent
    target = arguments.out or beside / f"{name}{SUFFIX}"
    durable.put_file(target, sign_freeze(frozen, key), replace=True)
    emit(arguments, {"file": str(target), **_document(frozen, key.public)}, _text(frozen, target))
    return EXIT_OK


def show(arguments: Namespace) -> int:
    """Show a freeze record after its signature was verified."""
    if arguments.key is not None:
        signers: tuple[PublicKey, ...] = (keys.load_public(arguments.key),)
    else:
        signers = keys.own_keys(None)
    envelope = read_freeze_file(arguments.file)
    frozen, signer = read_freeze(envelope, signers, file=str(arguments.file))
    emit(arguments, _document(frozen, signer), _text(frozen, arguments.file))
    return EXIT_OK


def of_bundle(bundle: Path, key: PublicKey, stamp: str) -> tuple[ConfigFreeze, str]:
    """The freeze of one's own calibration run, and the run's name."""
    with open_bundle(bundle, protocol_id=None, trust=explicit([key])) as view:
        data = view.read_verified("plan.json")
        plan = plan_from_document(parse_canonical(data, kind="plan", file="plan.json"))
        basis = Calibration(
            run_id=plan.run_id, manifest_sha256=f"sha256:{view.admission.manifest_sha256}"
        )
    return freeze_plan(plan, stamp, basis), plan.name


def _document(frozen: ConfigFreeze, signer: PublicKey) -> dict[str, object]:
    return {
        "config_hash": frozen.config_hash,
        "protocol_id": frozen.protocol_id,
        "frozen_on": frozen.frozen_on,
        "keyid": signer.keyid,
        "calibration_run": frozen.calibration and frozen.calibration.run_id,
        "methods": [{"name": m.name, "method_id": m.method_id} for m in frozen.methods],
    }


def _text(frozen: ConfigFreeze, file: Path) -> str:
    basis = frozen.calibration
    rests = f"calibration run {basis.run_id}" if basis else "no sealed calibration run"
    lines = [f"config hash {frozen.config_hash}", f"frozen on   {frozen.frozen_on}, on {rests}"]
    lines += [f"  {method.name}: {method.method_id}" for method in frozen.methods]
    lines.append(f"file        {file}")
    return "\n".join(lines) + "\n"
