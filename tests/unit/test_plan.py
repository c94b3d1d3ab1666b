"""The plan: what a manifest resolves to, which ids follow, what is refused."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.canonical import Json, canonical_bytes, digest_of
from runner.errors import BundleError, SealbenchError
from runner.imagelock import Locks
from runner.manifest import RunManifest
from runner.model import Limits, Outcome, Plan
from runner.plan import (
    MAX_SEED,
    Overrides,
    build_plan,
    plan_document,
    plan_from_document,
    planned_units,
    try_plan,
    unit_seed,
)
from runner.resolve import same_type
from runner.schemas import is_valid
from tests.unit.manifest_samples import (
    AMD64,
    PROTOCOL,
    digest,
    locks,
    protocol_with,
    run_manifest,
)

OKAPI = "name: okapi\n    image: lexical\n    config: {k1: 1.2}"


@pytest.fixture
def manifest(tmp_path: Path) -> RunManifest:
    return run_manifest(tmp_path)


@pytest.fixture
def plan(manifest: RunManifest) -> Plan:
    return build_plan(manifest, PROTOCOL, locks(), AMD64)


def errors_of(
    manifest: RunManifest,
    protocol: dict[str, Any] = PROTOCOL,
    overrides: Overrides | None = None,
) -> list[SealbenchError]:
    plan, errors = try_plan(manifest, protocol, locks(), AMD64, overrides)
    assert (plan is None) == bool(errors)
    assert all(error.fix for error in errors)
    return list(errors)


def test_every_default_is_filled_in(plan: Plan) -> None:
    assert (plan.name, plan.benchmark_id, plan.seed) == ("toy-lexical", "toy-v1", 7)
    assert plan.protocol_id == digest_of(PROTOCOL)
    assert (plan.splits, plan.repeats, plan.jobs) == (("all", "heldout"), 2, 1)
    okapi, mine = plan.methods
    assert okapi.pin.image_id == digest("a")
    assert okapi.command == ("python3", "-m", "methods.okapi")
    assert okapi.config == {"k1": 1.2, "b": 0.75, "stem": False, "tokens": "words", "top": 10}
    assert (okapi.cache, okapi.waive, okapi.expect) == (False, (), Outcome.OK)
    assert okapi.limits == Limits(
        wall_ms=600_000,
        grace_ms=2_000,  # the protocol's, which is less than the default
        memory_bytes=1 << 30,
        cpus_milli=1_000,
        pids=128,  # the default, which is less than the protocol's
        output_bytes=1 << 20,
        output_files=10,
        log_bytes=1 << 20,
        tmp_bytes=256 << 20,
        shm_bytes=64 << 20,
    )
    assert mine.pin.manifest_digest == digest("e")
    assert (mine.command, mine.config) == (("python3", "-m", "ranker"), {"depth": 3})
    assert (mine.limits.memory_bytes, mine.limits.pids) == (512 << 20, 64)
    assert (mine.waive, mine.expect, mine.cache) == (("swap",), Outcome.TIMEOUT, False)


def test_units_stand_in_the_order_in_which_they_run(plan: Plan) -> None:
    assert [(unit.repeat, unit.method, unit.dataset) for unit in plan.units] == [
        (0, "okapi", "toy"),
        (0, "okapi", "other"),
        (0, "mine", "toy"),
        (0, "mine", "other"),
        (1, "okapi", "toy"),
        (1, "okapi", "other"),
        (1, "mine", "toy"),
        (1, "mine", "other"),
    ]
    assert len({unit.unit_id for unit in plan.units}) == 8
    assert {unit.seed for unit in plan.units if unit.repeat == 0} == {7}
    assert {unit.seed for unit in plan.units if unit.repeat == 1} == {unit_seed(7, 1)}
    assert planned_units(plan, PROTOCOL) == plan.units


def test_ids_are_the_digests_that_the_documents_say(plan: Plan) -> None:
    okapi, unit = plan.methods[0], plan.units[5]
    assert okapi.method_id == digest_of(
        {
            "schema": "sealbench/method-id/v1",
            "image": digest("a"),
            "command": ["python3", "-m", "methods.okapi"],
            "config": {"k1": 1.2, "b": 0.75, "stem": False, "tokens": "words", "top": 10},
            "cache": False,
        }
    )
    assert unit.unit_id == digest_of(
        {
            "schema": "sealbench/unit-id/v1",
            "method_id": okapi.method_id,
            "protocol_id": digest_of(PROTOCOL),
            "dataset": "other",
            "fingerprint": digest("5"),
            "splits": ["all", "heldout"],
            "repeat": 1,
            "seed": unit_seed(7, 1),
            "limits": {
                "wall_ms": 600_000,
                "grace_ms": 2_000,
                "memory_bytes": 1 << 30,
                "cpus_milli": 1_000,
                "pids": 128,
                "output_bytes": 1 << 20,
                "output_files": 10,
                "log_bytes": 1 << 20,
                "tmp_bytes": 256 << 20,
                "shm_bytes": 64 << 20,
            },
            "rules_version": 1,
        }
    )
    document = plan_document(plan)
    run_id = document.pop("run_id")
    assert run_id == "sha256:" + hashlib.sha256(canonical_bytes(document)).hexdigest()


@pytest.mark.parametrize(
    ("old", "new", "method_changes"),
    [
        ("name: okapi", "name: other-name\n    method: okapi", False),
        ("k1: 1.2", "k1: 1.3", True),
        ("k1: 1.2", "k1: 1.2, b: 0.75", False),
        ("    config: {k1: 1.2}", "    config: {k1: 1.2}\n    cache: true", True),
        ("    config: {k1: 1.2}", "    config: {k1: 1.2}\n    command: [other]", True),
        ("wall: 10m", "wall: 11m", False),
        ("seed: 7", "seed: 8", False),
    ],
)
def test_what_is_in_an_identity(
    tmp_path: Path, plan: Plan, old: str, new: str, method_changes: bool
) -> None:
    changed = build_plan(run_manifest(tmp_path, (old, new)), PROTOCOL, locks(), AMD64)
    assert (changed.methods[0].method_id != plan.methods[0].method_id) == method_changes
    # The name and what is default anyhow make no new unit to run; all else does.
    same_unit = changed.units[0].unit_id == plan.units[0].unit_id
    assert same_unit == (old in {"name: okapi", "k1: 1.2"} and not method_changes)


def test_the_seed_is_the_manifests_else_the_protocols(tmp_path: Path) -> None:
    without = run_manifest(tmp_path, ("seed: 7\n", ""))
    assert build_plan(without, PROTOCOL, locks(), AMD64).seed == 3
    zero = run_manifest(tmp_path, ("seed: 7", "seed: 0"))
    assert build_plan(zero, PROTOCOL, locks(), AMD64).seed == 0


def test_seeds_of_repeats_are_these() -> None:
    assert unit_seed(7, 0) == 7
    assert unit_seed(7, 1) == int(hashlib.sha256(b"sealbench/seed/v1:7:1").hexdigest()[:8], 16)
    assert len({unit_seed(7, repeat) for repeat in range(100)}) == 100


@given(st.integers(0, MAX_SEED), st.integers(0, 99))
def test_seeds_are_bounded(seed: int, repeat: int) -> None:
    assert 0 <= unit_seed(seed, repeat) <= MAX_SEED


def test_a_declared_method_by_another_name_and_a_command_of_ones_own(tmp_path: Path) -> None:
    manifest = run_manifest(
        tmp_path,
        ("name: okapi", "name: tuned\n    method: okapi\n    command: [python3, mine.py]"),
    )
    method = build_plan(manifest, PROTOCOL, locks(), AMD64).methods[0]
    assert (method.name, method.command) == ("tuned", ("python3", "mine.py"))
    assert method.config["b"] == 0.75


@pytest.mark.parametrize(
    ("edit", "code", "line", "words"),
    [
        (("k1: 1.2", "kk1: 1.2"), "manifest.unknown-config", 11, "did you mean 'k1'"),
        (("k1: 1.2", "b: high"), "manifest.config-type", 11, "give a number"),
        (("k1: 1.2", "b: true"), "manifest.config-type", 11, "give a number"),
        (("k1: 1.2", "b: null"), "manifest.config-type", 11, "give a number"),
        (("k1: 1.2", "stem: 1"), "manifest.config-type", 11, "give true or false"),
        (("k1: 1.2", "tokens: 5"), "manifest.config-type", 11, "give a text"),
        (("k1: 1.2", "top: 2.5"), "manifest.config-type", 11, "give a whole number"),
        (("name: okapi", "name: okap"), "manifest.no-command", 9, "did you mean 'okapi'"),
        (("name: okapi", "name: x\n    method: okap"), "manifest.unknown-method", 10, "'okapi'"),
        ((OKAPI, "name: judge\n    image: lexical"), "manifest.wrong-task", 9, "not for retrieval"),
        (("image: lexical", "image: lexcal"), "image.unknown", 10, "did you mean 'lexical'"),
        (("image: lexical", "image: lexical:v1"), "image.tag", 10, "pin by digest"),
        (("    command: [python3, -m, ranker]\n", ""), "manifest.no-command", 12, "command"),
        (("wall: 10m", "wall: 2h"), "protocol.over-budget", 7, "wall 2h is above"),
        (("512MiB", "4GiB"), "protocol.over-budget", 16, "memory 4GiB is above"),
        (("pids: 64", "pids: 500"), "protocol.over-budget", 16, "256"),
        (("cpus: 1", "cpus: 2.5"), "protocol.over-budget", 7, "cpus 2.5 is above"),
        (("heldout", "test"), "protocol.unknown-split", 4, "all, calibration, heldout"),
        (("seed: 7", f"protocol_id: {digest('9')}"), "protocol.wrong-id", 5, digest("9")),
    ],
)
def test_refusals_point_into_the_manifest(
    tmp_path: Path, edit: tuple[str, str], code: str, line: int, words: str
) -> None:
    (error,) = errors_of(run_manifest(tmp_path, edit))
    assert error.code == code
    assert error.where is not None
    assert error.where.line == line
    assert words in f"{error.message} {error.fix}"


def test_a_budget_above_the_protocols_names_both_figures(tmp_path: Path) -> None:
    (error,) = errors_of(run_manifest(tmp_path, ("512MiB", "4GiB")))
    assert error.message == "memory 4GiB is above the protocol's budget, 2GiB"
    assert error.exit_code == 5


def test_the_whole_budget_may_be_asked_for(tmp_path: Path) -> None:
    manifest = run_manifest(tmp_path, ("wall: 10m, memory: 1GiB, cpus: 1", "wall: 1h, cpus: 2"))
    assert errors_of(manifest) == []


def test_all_errors_are_told_at_once(tmp_path: Path) -> None:
    manifest = run_manifest(
        tmp_path, ("wall: 10m", "wall: 2h"), ("k1: 1.2", "kk: 1, b: x"), ("mine", "other")
    )
    assert [error.code for error in errors_of(manifest)] == [
        "protocol.over-budget",
        "manifest.unknown-config",
        "manifest.config-type",
    ]
    with pytest.raises(SealbenchError) as caught:
        build_plan(manifest, PROTOCOL, locks(), AMD64)
    assert caught.value.code == "protocol.over-budget"


def test_one_method_under_two_names_is_refused_naming_both(tmp_path: Path) -> None:
    twin = "  - {name: twin, image: lexical, method: okapi, config: {k1: 1.2}, limits: {pids: 9}}\n"
    (error,) = errors_of(run_manifest(tmp_path, ("  - name: mine", f"{twin}  - name: mine")))
    assert error.code == "manifest.same-method"
    assert "'okapi' and 'twin'" in error.message
    assert error.where is not None
    assert error.where.line == 12


def test_a_split_that_one_dataset_lacks_is_unknown(manifest: RunManifest) -> None:
    protocol = protocol_with()
    protocol["datasets"][1]["splits"] = {"all": {}}
    (error,) = errors_of(manifest, protocol)
    assert error.code == "protocol.unknown-split"
    assert "'heldout'" in error.message


def test_more_units_than_a_bundle_holds_are_refused(tmp_path: Path) -> None:
    protocol = protocol_with()
    protocol["datasets"] *= 30
    manifest = run_manifest(tmp_path, ("repeats: 2", "repeats: 100"))
    (error,) = errors_of(manifest, protocol)
    assert error.code == "manifest.too-many-units"
    assert "12000 units" in error.message


def test_overrides_win(manifest: RunManifest) -> None:
    overrides = Overrides(seed=0, repeats=1, jobs=3, splits=("calibration",), methods=("mine",))
    plan = build_plan(manifest, PROTOCOL, locks(), AMD64, overrides)
    assert (plan.seed, plan.repeats, plan.jobs, plan.splits) == (0, 1, 3, ("calibration",))
    assert [unit.method for unit in plan.units] == ["mine", "mine"]


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        (Overrides(repeats=0), "usage.out-of-bounds"),
        (Overrides(repeats=101), "usage.out-of-bounds"),
        (Overrides(jobs=0), "usage.out-of-bounds"),
        (Overrides(jobs=-1), "usage.out-of-bounds"),
        (Overrides(jobs=65), "usage.out-of-bounds"),
        (Overrides(seed=-1), "usage.out-of-bounds"),
        (Overrides(seed=2**32), "usage.out-of-bounds"),
        (Overrides(methods=("okap",)), "usage.unknown-method"),
        (Overrides(splits=("test",)), "protocol.unknown-split"),
    ],
)
def test_refused_overrides(manifest: RunManifest, overrides: Overrides, code: str) -> None:
    assert code in [error.code for error in errors_of(manifest, PROTOCOL, overrides)]


@pytest.mark.parametrize(
    ("default", "value", "same"),
    [
        (1.5, 2, True),
        (1.5, 2.5, True),
        (1.5, True, False),
        (1.5, "2", False),
        (1, 2, True),
        (1, 2.5, False),
        (1, False, False),
        (True, False, True),
        (True, 0, False),
        ("a", "b", True),
        ("a", None, False),
        (None, "b", True),
        (None, [1], True),
        ([], [1, "x"], True),
        ([], {}, False),
        ({}, {"a": 1}, True),
    ],
)
def test_types_of_settings(default: Json, value: Json, same: bool) -> None:
    assert same_type(default, value) == same


# --- plan.json ------------------------------------------------------------------------------------


def test_a_plan_round_trips_through_its_canonical_bytes(plan: Plan) -> None:
    raw = canonical_bytes(plan_document(plan))
    again = plan_from_document(json.loads(raw))
    assert again == plan
    assert canonical_bytes(plan_document(again)) == raw
    assert is_valid("plan", json.loads(raw), reference=True)


def test_equal_inputs_give_equal_plans_wherever_the_manifest_lies(
    tmp_path: Path, plan: Plan
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    assert build_plan(run_manifest(folder), PROTOCOL, locks(), AMD64) == plan
    assert str(tmp_path) not in json.dumps(plan_document(plan))


def tampered(plan: Plan, *path: str | int, value: object, rehash: bool = False) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(canonical_bytes(plan_document(plan)))
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    if rehash:
        del document["run_id"]
        document["run_id"] = digest_of(document)
    return document


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("seed",), 8, "run_id"),
        (("run_id",), digest("9"), "run_id"),
        (("methods", 0, "config", "k1"), 9, "run_id"),
        (("units", 0, "unit_id"), digest("9"), "run_id"),
        (("run_id",), "x", "schema.pattern"),
        (("extra",), 1, "schema.unknown-key"),
    ],
)
def test_an_edited_plan_is_refused(
    plan: Plan, path: tuple[str | int, ...], value: object, words: str
) -> None:
    with pytest.raises(BundleError, match=words):
        plan_from_document(tampered(plan, *path, value=value))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("methods", 0, "config", "k1"), 9, "method_id|its content gives"),
        (("methods", 0, "name"), "mine", "two methods have one name"),
        (("methods", 0, "image", "image_id"), None, "its content gives"),
        (("units", 0, "dataset"), "other", "each once and in order"),
        (("units", 0, "seed"), 8, "each once and in order"),
        (("units", 0, "method_id"), digest("9"), "each once and in order"),
        (("repeats",), 3, "each once and in order"),
        (("units", 0, "unit_id"), digest("9"), ""),
    ],
)
def test_a_contradictory_plan_is_refused_even_with_a_run_id_to_match(
    plan: Plan, path: tuple[str | int, ...], value: object, words: str
) -> None:
    document = tampered(plan, *path, value=value, rehash=True)
    if words:
        with pytest.raises(BundleError, match=words):
            plan_from_document(document)
    else:  # only the protocol tells which unit ids are right
        assert plan_from_document(document).units != planned_units(plan, PROTOCOL)


def test_two_units_of_one_id_are_refused(plan: Plan) -> None:
    same = plan.units[1].unit_id
    document = tampered(plan, "units", 0, "unit_id", value=same, rehash=True)
    with pytest.raises(BundleError, match="one unit_id"):
        plan_from_document(document)


def test_an_image_without_digest_is_refused(plan: Plan) -> None:
    image = asdict(replace(plan.methods[0].pin, image_id=None, manifest_digest=None))
    document = tampered(plan, "methods", 0, "image", value=image, rehash=True)
    with pytest.raises(BundleError, match="image without a digest"):
        plan_from_document(document)


def test_without_a_lock_only_digests_resolve(manifest: RunManifest) -> None:
    _, errors = try_plan(manifest, PROTOCOL, Locks(), AMD64)
    assert [error.code for error in errors] == ["image.unknown"]
