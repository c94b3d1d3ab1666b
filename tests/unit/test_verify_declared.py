"""A signer cannot call a setting, a command or a way of searching other than the image does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runner.imagelock import Locks, load_locks
from runner.manifest import RunManifest, load_run_manifest
from runner.model import MethodPlan, Plan
from runner.plan import build_plan
from runner.protocol.load import load_protocol
from runner.verify.declared import declared_faults
from tests.sealed import ROOT

LOCKS = load_locks(local=None)


@pytest.fixture(scope="module")
def manifest() -> RunManifest:
    return load_run_manifest(ROOT / "manifests" / "scifact-lexical.yaml")


@pytest.fixture(scope="module")
def plan(manifest: RunManifest) -> Plan:
    return build_plan(manifest, load_protocol(manifest.protocol).document, LOCKS, "linux/amd64")


def changed(plan: Plan, **changes: Any) -> Plan:
    first: MethodPlan = replace(plan.methods[0], **changes)
    return replace(plan, methods=(first, *plan.methods[1:]))


def test_what_a_run_resolves_to_is_what_its_images_declare(
    manifest: RunManifest, plan: Plan
) -> None:
    assert list(declared_faults(manifest, plan, LOCKS)) == []


def test_every_member_is_held_against_lock_and_manifest(manifest: RunManifest, plan: Plan) -> None:
    method = plan.methods[0]
    declares = {**method.declares, "exact": False}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"config": {**method.config, "k1": 1.2}}, "k1 is 1.2"),
        ({"config": {**method.config, "epsilon": None}}, "epsilon is None"),
        ({"config": {**method.config, "more": 1}}, "setting 'more'"),
        ({"config": {}}, "b is None"),
        ({"command": ("python3", "-c", "pass")}, "its command"),
        ({"cache": True}, "a cache"),
        ({"declares": declares}, "mode, backend or exactness"),
    ]
    for changes, words in cases:
        faults = list(declared_faults(manifest, changed(plan, **changes), LOCKS))
        assert any(words in fault.message for fault in faults), words
        assert {fault.file for fault in faults} == {"plan.json"}


def test_an_image_that_the_lock_does_not_have_is_not_judged(
    manifest: RunManifest, plan: Plan
) -> None:
    other = replace(plan.methods[0].pin, image_id="sha256:" + "9" * 64)
    assert list(declared_faults(manifest, changed(plan, image=other, config={}), LOCKS)) == []
    assert list(declared_faults(manifest, changed(plan, config={}), Locks())) == []
