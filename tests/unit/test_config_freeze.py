"""The held-out split is for a configuration that was settled, and signed, before."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.bundle import dsse
from runner.check import check_manifest
from runner.commands import configuring
from runner.config_freeze import (
    FILE,
    Calibration,
    config_hash,
    differences,
    freeze_plan,
    read_freeze,
    refuse_unfrozen,
    sign_freeze,
)
from runner.errors import BundleError, ProtocolError
from runner.keys import SigningKey, generate
from runner.manifest import load_freeze_manifest
from runner.model import Plan
from runner.plan import Overrides
from runner.protocol.freeze import freeze
from runner.protocol.splits import freeze_required
from runner.trust import explicit
from tests.sealed import DATA_ROOT, KEY, ROOT, Sandbox, sandbox
from tests.unit.units import PLAN

STAMP = "2026-01-31T12:00:00.000Z"
BASIS = Calibration(run_id="sha256:" + "7" * 64, manifest_sha256="sha256:" + "8" * 64)
EVERY = ("all", "calibration", "heldout")


def calibrated(plan: Plan = PLAN) -> Plan:
    return replace(plan, splits=("calibration",))


@pytest.mark.parametrize(
    ("splits", "there", "tuned", "required"),
    [
        (("heldout",), EVERY, False, True),
        (("heldout",), EVERY, True, True),
        (("heldout",), ("all",), True, False),
        (("all", "heldout"), EVERY, False, False),
        (("calibration", "heldout"), EVERY, False, False),
        (("calibration", "heldout"), EVERY, True, True),
        (("calibration",), EVERY, True, False),
        (("all",), EVERY, True, False),
    ],
)
def test_when_a_freeze_is_required(
    splits: tuple[str, ...], there: tuple[str, ...], tuned: bool, required: bool
) -> None:
    assert freeze_required(splits, there, tuned=tuned) is required


def test_a_record_comes_back_as_it_was_signed() -> None:
    frozen = freeze_plan(calibrated(), STAMP, BASIS)
    envelope = sign_freeze(frozen, KEY)
    assert read_freeze(envelope, [KEY.public], file=FILE) == (frozen, KEY.public)
    assert sign_freeze(frozen, KEY) == envelope


def test_names_are_no_part_of_a_configuration_and_limits_and_seed_are() -> None:
    (method,) = PLAN.methods
    first = config_hash([method], 7)
    assert config_hash([replace(method, name="renamed")], 7) == first
    assert config_hash([method], 8) != first
    limits = replace(method.limits, wall_ms=1)
    assert config_hash([replace(method, limits=limits)], 7) != first


def test_a_run_that_saw_more_than_calibration_is_no_basis() -> None:
    for splits in (("all",), ("calibration", "heldout")):
        with pytest.raises(ProtocolError, match="shows more than the calibration split"):
            freeze_plan(replace(PLAN, splits=splits), STAMP, BASIS)


def test_every_difference_is_named() -> None:
    (method,) = PLAN.methods
    frozen = freeze_plan(calibrated(), STAMP, None)
    other = "sha256:" + "9" * 64
    assert list(differences(PLAN, frozen)) == []
    for change, words in (
        ({"seed": 8}, "the seed is 8"),
        ({"protocol_id": other}, "under protocol"),
        ({"methods": (replace(method, method_id=other),)}, "another image, command or config"),
        ({"methods": (replace(method, method_id=other, name="new"),)}, "new was not frozen"),
        ({"methods": (replace(method, limits=replace(method.limits, pids=3)),)}, "limits of"),
    ):
        changed = replace(PLAN, **change)
        (found,) = differences(changed, frozen)
        assert words in found
        with pytest.raises(ProtocolError, match="not the configuration that was frozen"):
            refuse_unfrozen(changed, frozen, required=False)


@pytest.mark.parametrize("name", ["seed", "frozen_on", "calibration", "subject", "extra"])
def test_a_record_that_was_edited_is_refused_even_when_it_is_signed_anew(name: str) -> None:
    envelope = sign_freeze(freeze_plan(calibrated(), STAMP, BASIS), KEY)
    document = json.loads(dsse.verify(envelope, [KEY.public], file=FILE).payload)
    predicate = document["predicate"]
    if name == "subject":
        document["subject"][0]["digest"]["sha256"] = "0" * 64
    else:
        changed: dict[str, Any] = {"seed": 8, "frozen_on": "2026-02-31T12:00:00Z"}
        predicate[name] = changed.get(name, {})
    payload = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    with pytest.raises(BundleError):
        read_freeze(dsse.sign(payload, KEY), [KEY.public], file=FILE)


def test_a_strangers_record_is_refused(other_key: SigningKey) -> None:
    envelope = sign_freeze(freeze_plan(calibrated(), STAMP, BASIS), other_key)
    with pytest.raises(BundleError, match="no key that is trusted"):
        read_freeze(envelope, [KEY.public], file=FILE)


@pytest.fixture
def other_key() -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([3]) * 32))


@pytest.fixture(scope="module")
def halved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The quickstart's protocol with 10 of its 25 queries for calibration."""
    text = (ROOT / "manifests" / "benchmarks" / "quickstart-v1.yaml").read_text(encoding="utf-8")
    text += "splits: {algorithm: sha256-id-order, calibration: 10}\n"
    file = tmp_path_factory.mktemp("halved") / "halved.yaml"
    file.write_text(text.replace("quickstart-v1", "halved-v1"), encoding="utf-8")
    document, _ = freeze(load_freeze_manifest(file), DATA_ROOT)
    return document


@pytest.fixture
def made(tmp_path: Path, halved: dict[str, Any]) -> Sandbox:
    """One method under that protocol."""
    found = sandbox(tmp_path / "made", "overlap")
    found.use_protocol(halved)
    return found


def run_split(made: Sandbox, out: str, *splits: str, **options: Any) -> Any:
    return made.run(out=made.folder / out, overrides=Overrides(splits=splits), **options)


def freeze_of(made: Sandbox, out: str, key: SigningKey = KEY) -> Path:
    """Freeze on the bundle in ``out`` and return the record's file."""
    frozen, _ = configuring.of_bundle(made.folder / out / "bundle", KEY.public, STAMP)
    target = made.folder / "freeze.json"
    target.write_bytes(sign_freeze(frozen, key))
    return target


def test_calibrate_freeze_hold_out_and_verify(made: Sandbox) -> None:
    with pytest.raises(ProtocolError) as caught:
        run_split(made, "early", "heldout")
    assert caught.value.code == "protocol.no-config-freeze"
    assert not (made.folder / "early").exists()
    run_split(made, "calibration", "calibration")
    record = freeze_of(made, "calibration")
    result = run_split(made, "out", "heldout", config_freeze=record)
    assert {row["split"] for row in result.results["aggregate"]} == {"heldout"}
    assert (made.out / "bundle" / FILE).read_bytes() == record.read_bytes()
    assert made.verify().faults == ()
    assert made.verify(labels=False).faults == ()


def test_check_says_so_before_anything_runs(made: Sandbox) -> None:
    def codes(*splits: str) -> list[str]:
        report = check_manifest(made.manifest, overrides=Overrides(splits=splits))
        return [finding.code for finding in report.findings]

    assert "protocol.no-config-freeze" in codes("heldout")
    assert "protocol.no-config-freeze" not in codes("calibration", "heldout")


def test_another_configuration_than_the_frozen_one_is_refused(made: Sandbox) -> None:
    run_split(made, "calibration", "calibration")
    record = freeze_of(made, "calibration")
    text = made.manifest.read_text()
    made.manifest.write_text(text + "    config: {depth: 3}\n")
    with pytest.raises(ProtocolError, match="another image, command or config") as caught:
        run_split(made, "out", "heldout", config_freeze=record)
    assert caught.value.code == "protocol.config-differs"
    made.manifest.write_text(text)
    run_split(made, "out", "heldout", config_freeze=record)


def test_the_manifest_names_the_record_and_says_that_it_was_tuned(made: Sandbox) -> None:
    text = made.manifest.read_text() + "tuned: true\nconfig_freeze: freeze.json\n"
    made.manifest.write_text(text)
    run_split(made, "calibration", "calibration")  # needs none, and has none yet
    assert not (made.folder / "calibration" / "bundle" / FILE).exists()
    with pytest.raises(ProtocolError, match="cannot read the configuration freeze"):
        run_split(made, "out", "all", "heldout")
    freeze_of(made, "calibration")
    run_split(made, "out", "all", "heldout")
    assert made.verify().faults == ()


def test_the_record_must_be_signed_by_who_runs(made: Sandbox, other_key: SigningKey) -> None:
    run_split(made, "calibration", "calibration")
    record = freeze_of(made, "calibration", key=other_key)
    with pytest.raises(BundleError, match="no key that is trusted"):
        run_split(made, "out", "heldout", config_freeze=record)


def test_a_verifier_misses_the_record_and_sees_one_that_came_late(
    made: Sandbox, tmp_path: Path, halved: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_split(made, "calibration", "calibration")
    plan = run_split(made, "again", "calibration").resolved.plan
    late = replace(freeze_plan(plan, "2999-01-01T00:00:00Z", BASIS))
    record = tmp_path / "late.json"
    record.write_bytes(sign_freeze(late, KEY))
    run_split(made, "out", "heldout", config_freeze=record)
    assert [fault.code for fault in made.verify().faults] == ["bundle.frozen-late"]
    monkeypatch.setattr("runner.run.freeze_required", lambda *_, **__: False)
    bare = sandbox(tmp_path / "bare", "overlap")
    bare.use_protocol(halved)
    run_split(bare, "out", "heldout")
    assert [(f.file, f.code) for f in bare.verify().faults] == [(FILE, "bundle.missing-file")]


def test_the_command_writes_and_shows_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEALBENCH_KEYS", str(tmp_path / "keys"))
    generate()
    made = sandbox(tmp_path / "m", "overlap")
    arguments = Namespace(source=made.manifest, out=None, key=None, json=True)
    assert configuring.freeze(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(tmp_path / "m" / "sandbox.config-freeze.json")
    assert told["calibration_run"] is None
    file = Path(told.pop("file"))
    assert configuring.show(Namespace(file=file, key=None, json=True)) == 0
    assert json.loads(capsys.readouterr().out) == told
    assert explicit([KEY.public])
