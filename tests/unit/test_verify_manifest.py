"""A signer cannot publish one run.yaml and run another: every member is compared, both ways."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.imagelock import load_locks
from runner.manifest import RunManifest, load_run_manifest, parse_run_manifest
from runner.model import ImagePin, MethodPlan, ModelPin, NetworkPolicy, Outcome, Plan
from runner.plan import Overrides, build_plan
from runner.plan_document import plan_document, plan_from_document
from runner.protocol.load import Protocol, load_protocol
from runner.verify.manifest import manifest_faults
from tests.sealed import IMAGE, ROOT, Sandbox, sandbox, sealed_again

OTHER = "sha256:" + "cd" * 32
REVISION = "1" * 40
EXTRA = "seed: 7\nrepeats: 1\njobs: 1\nwaive: [pids]\n"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    box = sandbox(tmp_path_factory.mktemp("sealed"), "overlap", "backwards", extra=EXTRA)
    box.run()
    assert box.verify().faults == ()
    return box


def swap(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


def add(line: str) -> Callable[[str], str]:
    return lambda text: text + f"    {line}\n"


def without_last(text: str) -> str:
    return text[: text.index("  - name: backwards")]


MODEL = f"{{name: m, revision: '{REVISION}', digest: '{OTHER}'}}"
FORGED: dict[str, tuple[Callable[[str], str], str]] = {
    "a method that the plan lacks": (
        lambda text: text + f"  - name: failed\n    image: {IMAGE}\n    command: [failed]\n",
        "its method failed is not in the plan",
    ),
    "a method less": (without_last, "method backwards of the plan is not in it"),
    "another image": (swap(IMAGE, OTHER), "the image of method overlap"),
    "another seed": (swap("seed: 7", "seed: 8"), "seed is 7 in the plan"),
    "other repeats": (swap("repeats: 1", "repeats: 2"), "repeats is 1 in the plan"),
    "other jobs": (swap("jobs: 1", "jobs: 2"), "jobs is 1 in the plan"),
    "other splits": (swap("[all]", "[calibration]"), "splits is ['all'] in the plan"),
    "a baseline": (swap("methods:", "baseline: overlap\nmethods:"), "baseline is None in the plan"),
    "another command": (swap("[overlap]", "[overlap, -q]"), "the command of method overlap"),
    "other settings": (add("config: {k: 1}"), "the config of method backwards"),
    "a cache": (add("cache: true"), "cache of method backwards"),
    "an expectation": (add("expect: crashed"), "expect of method backwards"),
    "a waiver": (add("waive: [cpus]"), "waive of method backwards"),
    "no waiver": (swap("[pids]", "[]"), "waive of method overlap"),
    "a model": (add(f"models: [{MODEL}]"), "the models of method backwards"),
    "weights": (
        add(f"models: [{MODEL}]\n    requires: [weights]"),
        "requires of method backwards",
    ),
    "a host": (add("network: {allow: [a.example]}"), "the hosts of method backwards"),
    "a secret": (add("secrets: {KEY: {env: KEY}}"), "the secrets of method backwards"),
    "recordings": (add("recordings: r.jsonl"), "the recordings of method backwards"),
    "a module": (add("module: mine.py"), "method backwards has a module in one and none"),
    "a limit": (swap("memory: 256MiB", "memory: 255MiB"), "the limits of method overlap"),
    "a limit less": (swap("memory: 256MiB, ", ""), "the limits of method overlap"),
    "a precomputed method": (
        swap(f"    image: {IMAGE}\n    command: [backwards]", "    precomputed: r.jsonl"),
        "being executed of method backwards",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_another_run_yaml_is_refused_whoever_signs_it(
    sealed: Sandbox, tmp_path: Path, name: str
) -> None:
    shutil.copytree(sealed.folder, tmp_path / "copy")
    copy, (change, words) = replace(sealed, folder=tmp_path / "copy"), FORGED[name]
    file = copy.out / "bundle" / "run.yaml"
    file.write_text(change(file.read_text()))
    sealed_again(copy.out / "bundle")
    faults = copy.verify(labels=False).faults
    assert [f.file for f in faults if words in f.message] == ["run.yaml"], faults
    assert {fault.code for fault in faults} <= {"bundle.contradiction", "bundle.undeclared"}


@pytest.fixture(scope="module")
def manifest() -> RunManifest:
    return load_run_manifest(ROOT / "manifests" / "scifact-lexical.yaml")


@pytest.fixture(scope="module")
def protocol(manifest: RunManifest) -> Protocol:
    return load_protocol(manifest.protocol)


def planned(manifest: RunManifest, protocol: Protocol, **overrides: Any) -> Plan:
    chosen, locks = Overrides(**overrides), load_locks(local=None)
    return build_plan(manifest, protocol.document, locks, "linux/amd64", chosen)


def messages(manifest: RunManifest, plan: Plan, protocol: Protocol) -> list[str]:
    return [fault.message for fault in manifest_faults(manifest, plan, protocol)]


@pytest.mark.parametrize("path", sorted((ROOT / "manifests").glob("*.yaml")), ids=lambda p: p.stem)
def test_what_shipped_manifests_resolve_to_follows_from_them(path: Path) -> None:
    if path.read_text().find("schema: sealbench/run/") < 0:
        return
    manifest = load_run_manifest(path)
    if any(spec.precomputed is not None and spec.pin is None for spec in manifest.methods):
        return  # its files are not here
    protocol = load_protocol(manifest.protocol)
    sealed = parse_run_manifest(manifest.raw, Path("run.yaml"))
    assert messages(sealed, planned(manifest, protocol), protocol) == []


@pytest.mark.parametrize(
    "given",
    [
        {"seed": 3},
        {"repeats": 2},
        {"jobs": 2},
        {"splits": ("calibration",)},
        {"methods": ("tfidf",)},
        {"seed": 3, "repeats": 2, "methods": ("tfidf", "bm25s")},
    ],
)
def test_what_a_command_line_sets_is_sealed_and_nothing_else_may_differ(
    manifest: RunManifest, protocol: Protocol, given: dict[str, Any]
) -> None:
    plan = planned(manifest, protocol, **given)
    document = plan_document(plan)
    assert sorted(document["overrides"]) == sorted(given)
    assert plan_from_document(document) == plan
    assert messages(manifest, plan, protocol) == []
    for name in given:
        left = {key: value for key, value in plan.overrides.items() if key != name}
        assert messages(manifest, replace(plan, overrides=left), protocol) != []


def test_an_ordinary_run_has_no_overrides_and_its_old_id(
    manifest: RunManifest, protocol: Protocol
) -> None:
    plain = planned(manifest, protocol)
    said = {"repeats": manifest.repeats, "jobs": manifest.jobs, "splits": manifest.splits}
    assert "overrides" not in plan_document(plain)
    assert planned(manifest, protocol, **said) == plain
    assert planned(manifest, protocol, repeats=2).run_id != plain.run_id


def method(**changes: Any) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        first: MethodPlan = replace(plan.methods[0], **changes)
        return replace(plan, methods=(first, *plan.methods[1:]))

    return change


PIN = ImagePin(name="lexical", image_id=OTHER)
PLANS: list[tuple[Callable[[Plan], Plan], str]] = [
    (lambda plan: replace(plan, methods=plan.methods[1:]), "is not in the plan"),
    (lambda plan: replace(plan, methods=plan.methods[::-1]), "another order"),
    (lambda plan: replace(plan, name="other"), "its name"),
    (method(image=replace(PIN, name="other")), "the image"),
    (method(expect=Outcome.CRASHED), "expect"),
    (method(waive=("pids",)), "waive"),
    (method(requires=("weights",)), "requires"),
    (method(models=(ModelPin(name="m", revision=REVISION, digest=OTHER),)), "the models"),
    (method(secrets=("KEY",)), "the secrets"),
    (method(network=NetworkPolicy(allow=("a.example:443",))), "the hosts"),
]


@pytest.mark.parametrize(("change", "words"), PLANS, ids=[words for _, words in PLANS])
def test_another_plan_is_refused(
    manifest: RunManifest, protocol: Protocol, change: Callable[[Plan], Plan], words: str
) -> None:
    found = messages(manifest, change(planned(manifest, protocol)), protocol)
    assert any(words in message for message in found), found


def test_settings_are_compared_as_json(manifest: RunManifest, protocol: Protocol) -> None:
    plan = planned(manifest, protocol)
    spec = replace(manifest.methods[0], config={**plan.methods[0].config, "flag": 1})
    stated = replace(manifest, methods=(spec, *manifest.methods[1:]))
    for value, same in ((1, True), (True, False)):
        config = {**plan.methods[0].config, "flag": value}
        assert (messages(stated, method(config=config)(plan), protocol) == []) is same


def test_a_run_with_overrides_says_so_and_verifies(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "backwards")
    box.run(overrides=Overrides(repeats=2, methods=("overlap",)))
    assert box.verify().faults == ()
    claims = json.loads((box.out / "bundle" / "claims.json").read_bytes())
    words = "set on the command line, otherwise than in run.yaml: methods overlap; repeats 2"
    assert words in claims["boundary"]["shows"]
