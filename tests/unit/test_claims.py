"""What a bundle says that it shows, and that it does not: from the facts of the run alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runner import schemas
from runner.canonical import Json
from runner.claims import Facts, claims_document
from runner.config_freeze import ConfigFreeze, freeze_plan
from runner.host import host_document
from runner.model import (
    Evidence,
    ImportedFile,
    MethodPlan,
    ModelPin,
    NetworkPolicy,
    Outcome,
    Plan,
    UnitOutcome,
)
from runner.plan import build_plan
from runner.protocol.load import load_protocol
from tests.sealed import PROTOCOL, ROOT
from tests.unit.units import PIN, PLAN

SCIFACT = load_protocol(PROTOCOL.with_name("scifact-retrieval-v1.protocol.json"))
HOST: dict[str, Any] = host_document(None, load_start=(0.5, 0.4, 0.3), load_end=None)
METHOD = PLAN.methods[0]
EXACT: dict[str, Json] = {"mode": "vector_only", "backend": "matrix product", "exact": True}


def facts(*methods: MethodPlan, freeze: ConfigFreeze | None = None, **changes: Any) -> Facts:
    """Facts of a run of these methods over SciFact in which all units ended alike."""
    outcome = changes.pop("outcome", Outcome.OK)
    host = {**HOST, "runner": {**HOST["runner"], **changes.pop("runner", {})}}
    units = tuple(
        replace(
            PLAN.units[0], unit_id=f"sha256:{number:064x}", method=method.name, dataset="scifact"
        )
        for number, method in enumerate(methods)
    )
    plan = replace(PLAN, methods=methods, units=units, **changes)
    outcomes = [
        UnitOutcome(
            unit=unit, outcome=outcome, reason="x", evidence=Evidence(load_start=1.5),
            started=None, image=PIN, limits=METHOD.limits,
        )
        for unit in units
    ]  # fmt: skip
    return Facts(plan=plan, protocol=SCIFACT, outcomes=outcomes, host=host, freeze=freeze)


def claims(*methods: MethodPlan, **changes: Any) -> dict[str, Any]:
    document = claims_document(facts(*methods, **changes))
    assert list(schemas.iter_faults("claims", document)) == []
    return document


def test_a_method_is_bound_with_all_that_it_declares() -> None:
    config = {"batch_size": 32, "depth": 100}
    method = replace(
        METHOD, config=config, declares={**EXACT, "dimensions": 384, "normalised": True}
    )
    (found,) = claims(method)["methods"]
    assert (found["mode"], found["exactness"]) == ("vector_only", "exact")
    assert found["config"] == config
    assert found["vectors"] == {
        "model": "in the image", "dimensions": 384, "normalised": True,
    }  # fmt: skip
    (index,) = found["index"]
    assert index["documents"] == 5183
    (timing,) = claims(method)["timing"]["methods"]
    assert (timing["threads"], timing["batch_size"], timing["load_start"]) == (1, 32, [1.5])


def test_the_index_is_another_for_another_method_or_corpus() -> None:
    first = claims(METHOD)["methods"][0]["index"][0]["identity"]
    assert claims(replace(METHOD, name="renamed"))["methods"][0]["index"][0]["identity"] == first
    other = replace(METHOD, method_id="sha256:" + "9" * 64)
    assert claims(other)["methods"][0]["index"][0]["identity"] != first


def test_a_mounted_model_brings_dimensions_of_its_own() -> None:
    pin = ModelPin(name="m", revision="a" * 40, digest="sha256:" + "b" * 64)
    method = replace(METHOD, models=(pin,), declares={**EXACT, "dimensions": 384})
    (found,) = claims(method)["methods"]
    assert found["vectors"]["dimensions"] is None
    assert found["models"][0]["revision"] == "a" * 40


@pytest.mark.parametrize(
    ("exact", "word"), [(True, "exact"), (False, "approximate"), (None, "not declared")]
)
def test_exactness_is_never_assumed(exact: bool | None, word: str) -> None:
    declares = {} if exact is None else {**EXACT, "exact": exact}
    assert claims(replace(METHOD, declares=declares))["methods"][0]["exactness"] == word


def test_every_capability_that_nobody_shows_is_unavailable_with_its_reason() -> None:
    found = {item["capability"]: item for item in claims(METHOD)["capabilities"]}
    assert found.keys() == {"sparse", "graph", "matryoshka", "late_interaction"}
    assert all(item["because"].startswith("unavailable, because") for item in found.values())
    declares = {**EXACT, "mode": "late_interaction", "matryoshka": True}
    found = {
        item["capability"]: item
        for item in claims(replace(METHOD, declares=declares))["capabilities"]
    }
    for name in ("late_interaction", "matryoshka"):
        assert (found[name]["methods"], found[name]["because"]) == (["method"], None)
    assert found["sparse"]["because"]


def frozen(*methods: MethodPlan) -> ConfigFreeze:
    plan = replace(PLAN, methods=methods, splits=("calibration",))
    return freeze_plan(plan, "2026-01-31T12:00:00Z", None)


#: changes to the facts -> (words that must be said, words that must not)
BOUNDARIES: list[tuple[dict[str, Any], str, str]] = [
    ({"splits": ("all",)}, "no tuning surface", "configuration freeze"),
    ({"splits": ("all", "heldout")}, "has no configuration freeze", "settled and signed"),
    ({"splits": ("calibration",)}, "that split is for tuning", "configuration freeze"),
    ({"splits": ("calibration", "heldout")}, "in one run", "settled and signed"),
    ({"splits": ("heldout",), "freeze": frozen(METHOD)}, "settled and signed", "has no config"),
    ({"runner": {"dirty": True}}, "changes that are in no commit", "did not run from a repository"),
    ({"runner": {"dirty": None}}, "did not run from a repository", "in no commit"),
    ({"runner": {"dirty": False}}, "within this host only", "in no commit"),
    ({"repeats": 1}, "every method ran once", "sentence that is not there"),
    ({"repeats": 2}, "0 of 1 unit ended ok", "every method ran once"),
    ({"outcome": Outcome.TIMEOUT}, "ended as timeout: their scores are null", "1 of 1 unit"),
    ({"outcome": Outcome.OK}, "1 of 1 unit ended ok", "ended as"),
]


@pytest.mark.parametrize(("changes", "said", "unsaid"), BOUNDARIES)
def test_the_boundary_follows_from_the_facts(
    changes: dict[str, Any], said: str, unsaid: str
) -> None:
    if "repeats" in changes and changes["repeats"] == 2:
        changes = {**changes, "outcome": Outcome.CRASHED}
    found = claims(METHOD, **changes)["boundary"]
    text = "\n".join([*found["shows"], *found["does_not_show"]])
    assert said in text
    assert unsaid not in text


def test_what_methods_are_and_may_is_said() -> None:
    file = ImportedFile(dataset="scifact", sha256="sha256:" + "c" * 64, size=1)
    theirs = replace(METHOD, name="theirs", image=None, command=(), precomputed=(file,))
    online = replace(METHOD, name="online", network=NetworkPolicy(allow=("llm.example.org:443",)))
    loose = replace(METHOD, name="loose", declares={**EXACT, "exact": False})
    local = replace(METHOD, name="local", image=replace(PIN, published=False))
    found = claims(theirs, online, loose, local)["boundary"]
    shows, not_shown = "\n".join(found["shows"]), "\n".join(found["does_not_show"])
    assert "without network: loose, local" in shows
    assert "online was executed here and could reach llm.example.org:443" in shows
    assert "approximate search: loose" in shows
    assert "not executed here: theirs" in not_shown
    assert "the images of: local" in not_shown
    assert "declare nothing of it: online, local" in not_shown


def test_a_hybrid_is_exact_as_far_as_its_lists_go() -> None:
    declares: dict[str, Json] = {
        **EXACT, "mode": "hybrid", "fused_depth": 100, "settings": {"fused_depth": "depth"},
    }  # fmt: skip
    hybrid = replace(METHOD, name="both", config={"depth": 50}, declares=declares)
    document = claims(hybrid, replace(METHOD, declares=EXACT))
    found, other = document["methods"]
    assert (found["exactness"], found["fused_depth"]) == ("exact to a depth", 50)
    assert (other["exactness"], "fused_depth" in other) == ("exact", False)
    shows = "\n".join(document["boundary"]["shows"])
    assert "both searches each part exactly and fuses the first 50 documents of each" in shows
    assert f"no approximate index: {METHOD.name}" in shows


def test_a_packaged_model_is_named_with_digest_and_the_lack_of_a_revision() -> None:
    from runner.imagelock import load_locks

    declared = load_locks(local=None).published.methods["dense"]["vector_only"]
    document = claims(replace(METHOD, config=declared.config, declares=declared.declares))
    vectors = document["methods"][0]["vectors"]
    assert vectors["packaged"]["digest"].startswith("sha256:")
    assert (vectors["packaged"]["revision"], bool(vectors["packaged"]["because"])) == (None, True)
    (timing,) = document["timing"]["methods"]
    assert timing["warm_up"] == 1
    assert "query_encoding" in timing["latency"]
    (silent,) = claims(METHOD)["timing"]["methods"]
    assert (silent["warm_up"], silent["latency"]) == (None, None)


def test_the_executable_is_bound_by_its_files() -> None:
    found = claims(METHOD)["executable"]
    assert found["files_digest"] == HOST["runner"]["files_digest"]
    away = {"files_digest": None, "source_commit": None, "dirty": None}
    assert claims(METHOD, runner=away)["executable"]["files_digest"] is None


def test_the_shipped_methods_declare_how_they_search() -> None:
    from runner.imagelock import load_locks
    from runner.manifest import load_run_manifest

    manifest = load_run_manifest(ROOT / "manifests" / "scifact-lexical.yaml")
    plan: Plan = build_plan(manifest, SCIFACT.document, load_locks(local=None), "linux/amd64")
    modes = {method.name: method.declares["mode"] for method in plan.methods}
    assert set(modes.values()) <= {"lexical", "fts_only"}
    assert all(method.declares["exact"] is True for method in plan.methods)
