"""A run's baseline: named in the manifest, sealed in the plan, compared with every other method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.comparisons import MAX_ALL_PAIRS, pairs_of
from runner.errors import BundleError
from runner.manifest import lint_run_manifest
from runner.merge import MergeRequest, merged_plan
from runner.plan import Overrides, build_plan
from runner.plan_document import plan_document, plan_from_document, run_id_of
from runner.plan_text import render_plan
from runner.verify.comparisons import comparison_faults
from runner.verify.manifest import manifest_faults
from tests.sealed import KEY, TRUST, protocol, sandbox
from tests.unit.manifest_samples import AMD64, PROTOCOL, RUN, locks, run_manifest
from tests.unit.test_results import plan as plan_of
from tests.unit.test_results import results, scored

MANY = [f"m{number:02d}" for number in range(MAX_ALL_PAIRS + 2)]
NAMED = RUN.replace("seed: 7\n", "seed: 7\nbaseline: mine\n")


def faults_of(folder: Path, text: str) -> list[tuple[str, str]]:
    (folder / "run.yaml").write_text(text, encoding="utf-8")
    _, faults = lint_run_manifest(folder / "run.yaml")
    return [(fault.code, fault.message) for fault in faults]


def test_a_baseline_is_a_method_by_its_whole_name(tmp_path: Path) -> None:
    assert faults_of(tmp_path, NAMED) == []
    ((code, message),) = faults_of(tmp_path, NAMED.replace("baseline: mine", "baseline: min"))
    assert code == "manifest.baseline"
    assert "did you mean 'mine'" in message
    matrix = RUN.replace("config: {k1: 1.2}", "matrix: {k1: [1.2, 2.0]}")
    named = matrix.replace("seed: 7\n", "seed: 7\nbaseline: okapi.2.0\n")
    assert faults_of(tmp_path, named) == []
    ((code, _),) = faults_of(tmp_path, named.replace("okapi.2.0", "okapi"))
    assert code == "manifest.baseline"


def test_it_is_sealed_with_the_plan_and_changes_nothing_where_there_is_none(tmp_path: Path) -> None:
    without = build_plan(run_manifest(tmp_path), PROTOCOL, locks(), AMD64)
    assert "baseline" not in plan_document(without)
    assert "baseline" not in render_plan(without)
    manifest = replace(run_manifest(tmp_path), baseline="mine")
    plan = build_plan(manifest, PROTOCOL, locks(), AMD64)
    document = plan_document(plan)
    assert document["baseline"] == "mine"
    assert plan.run_id != without.run_id
    assert plan.units == without.units  # a run that was cut short is resumed all the same
    assert plan_from_document(document) == plan
    assert "baseline     mine" in render_plan(plan)
    alone = build_plan(manifest, PROTOCOL, locks(), AMD64, Overrides(methods=("okapi",)))
    assert alone.baseline is None  # it does not run
    stranger = replace(plan, baseline="nobody")
    with pytest.raises(BundleError, match="its baseline nobody is no method of it"):
        plan_from_document(plan_document(replace(stranger, run_id=run_id_of(stranger))))


@pytest.mark.parametrize("baseline", [None, "m00", "m03", "nobody"])
def test_of_many_methods_best_and_baseline_are_compared_with_each(baseline: str | None) -> None:
    pairs = pairs_of(MANY, "m00", baseline)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    assert {other for one, other in pairs if one == "m00"} == {*MANY[1:]}
    set_against = {name for pair in pairs if "m03" in pair for name in pair} - {"m03"}
    assert set_against == ({*MANY} - {"m03"} if baseline == "m03" else {"m00"})


def test_of_few_methods_every_two_are_compared_as_ever() -> None:
    few = MANY[:4]
    assert pairs_of(few, "m00", "m03") == pairs_of(few, "m00")
    assert len(pairs_of(few, "m00")) == 6


def test_results_have_the_comparisons_and_the_verifier_misses_each() -> None:
    made = replace(plan_of(*MANY), baseline="m05")
    units = [scored(name, [place / 30, 0.5, 0.1, 0.2]) for place, name in enumerate(MANY)]
    document: dict[str, Any] = results(made, units)
    compared = document["comparisons"]
    assert sum("m05" in (row["method"], row["other"]) for row in compared) == len(MANY) - 1
    assert len(compared) == 2 * len(MANY) - 3
    assert list(comparison_faults(document, "m05")) == []
    (fault,) = comparison_faults(document, None)
    assert fault.code == "bundle.recomputed-differs"
    document["comparisons"] = [row for row in compared if row["method"] != "m05"]
    assert len(list(comparison_faults(document, "m05"))) == 1


def test_a_manifest_with_another_baseline_than_the_plans_is_refused(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "backwards", extra="baseline: overlap")
    result = box.run()
    assert box.verify().faults == ()
    plan = result.resolved.plan
    assert plan.baseline == "overlap"
    manifest = replace(result.resolved.manifest, baseline="backwards")
    (fault,) = manifest_faults(manifest, plan, protocol())
    assert "baseline" in fault.message


def test_a_merged_plan_keeps_the_first_baseline_that_is_among_its_methods(tmp_path: Path) -> None:
    under = protocol()
    plan = build_plan(run_manifest(tmp_path), PROTOCOL, locks(), AMD64)
    first, second = (replace(plan, methods=(one,), baseline=one.name) for one in plan.methods)
    request = MergeRequest(
        bundles=(), protocol=under, data_root=tmp_path, trust=TRUST, key=KEY, out=tmp_path
    )
    assert merged_plan([first, second], plan.methods, request).baseline == first.baseline
    assert merged_plan([first, second], second.methods, request).baseline == second.baseline
    assert merged_plan([first], second.methods, request).baseline is None
