"""The images of this repository: recipes, locks and methods agree with each other."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from runner.imagebuild.build import IMAGES_FOLDER
from runner.imagebuild.inputs import image_inputs
from runner.imagebuild.locks import CONTENTS_LOCK, read_contents, read_deb_lock
from runner.imagebuild.recipe import load_recipe, recipe_names
from runner.imagebuild.wheels import MACHINES, parse_lock
from runner.imagelock import load_lock

LOCK = load_lock(IMAGES_FOLDER / "images.lock.json")
PLATFORM = "linux/amd64"


def test_every_image_has_a_recipe_and_a_lock_entry() -> None:
    assert set(LOCK.images) == set(recipe_names(IMAGES_FOLDER))
    assert {"base", "dense", "failures", "lexical"} <= set(LOCK.images)


@pytest.mark.parametrize("name", recipe_names(IMAGES_FOLDER))
def test_the_lock_is_of_the_files_that_are_here(name: str) -> None:
    recipe = load_recipe(IMAGES_FOLDER, name)
    entry = LOCK.images[name][PLATFORM]
    assert entry.inputs_sha256 == image_inputs(recipe, PLATFORM), (
        f"what {name} is made from has changed: run `sealbench images lock`"
    )
    declared = {n: (m.command, m.config, m.cache, m.tasks) for n, m in recipe.methods.items()}
    locked = LOCK.methods[name]
    assert declared == {n: (m.command, m.config, m.cache, m.tasks) for n, m in locked.items()}


@pytest.mark.parametrize("name", recipe_names(IMAGES_FOLDER))
def test_the_contents_lock_is_of_the_locked_layers(name: str) -> None:
    contents = read_contents(IMAGES_FOLDER / CONTENTS_LOCK, PLATFORM)
    for layer in LOCK.images[name][PLATFORM].layers:
        assert contents[layer.name][0] == layer.diff_id


def test_images_share_the_layers_of_their_base() -> None:
    base = LOCK.images["base"][PLATFORM].layers
    for name in ("dense", "lexical", "failures"):
        assert LOCK.images[name][PLATFORM].layers[: len(base)] == base


def test_every_declared_method_can_be_imported() -> None:
    for image in ("dense", "lexical", "failures"):
        for method in load_recipe(IMAGES_FOLDER, image).methods.values():
            python, flag, module = method.command
            assert (python, flag) == ("python3", "-m")
            assert importlib.import_module(module).__doc__


def test_base_takes_exactly_the_packages_that_it_lists() -> None:
    recipe = load_recipe(IMAGES_FOLDER, "base")
    assert recipe.debian is not None
    locked = read_deb_lock(recipe.folder / "packages.lock.json")[PLATFORM]
    assert set(locked) == set(recipe.debian.packages)
    for package in ("dpkg", "apt", "dash", "bash", "coreutils", "ca-certificates"):
        assert package not in locked


def test_wheels_are_locked_for_both_machines() -> None:
    recipe = load_recipe(IMAGES_FOLDER, "lexical")
    assert recipe.wheels is not None
    requirements = {r.name: r for r in parse_lock(recipe.wheels.requirements)}
    for name in ("numpy", "scipy", "scikit-learn"):
        assert len(requirements[name].hashes) == len(MACHINES)
    assert {"bm25s", "rank-bm25"} <= requirements.keys()


def test_pytorch_is_the_cpu_build_by_one_hash() -> None:
    recipe = load_recipe(IMAGES_FOLDER, "dense")
    assert recipe.wheels is not None
    requirements = {r.name: r for r in parse_lock(recipe.wheels.requirements)}
    assert requirements["torch"].version.endswith("+cpu")
    assert len(requirements["torch"].hashes) == 1
    # A CUDA build would bring gigabytes of these.
    assert not [name for name in requirements if name.startswith(("nvidia", "triton", "cuda"))]


def test_no_lock_names_a_host(tmp_path: Path) -> None:
    for path in IMAGES_FOLDER.rglob("*.lock*"):
        assert "://" not in path.read_text(), path
        if path.suffix == ".json":
            assert json.loads(path.read_text())["schema"].startswith("sealbench/")


def test_shipped_methods_state_how_they_search_and_what_their_times_cover() -> None:
    """All but floors, which search nothing, and methods whose author is somebody else."""
    recipes = {name: load_recipe(IMAGES_FOLDER, name) for name in recipe_names(IMAGES_FOLDER)}
    methods = {
        (image, name): method
        for image, recipe in recipes.items()
        for name, method in recipe.methods.items()
        if image != "failures"
    }
    for (image, name), method in methods.items():
        assert LOCK.methods[image][name].declares == method.declares
    silent = {key for key, method in methods.items() if not method.declares}
    assert silent == {
        ("code", "custom"),
        ("expertise", "constant"),
        ("expertise", "random"),
        ("llm", "llm"),
    }
    timed = {key: m for key, m in methods.items() if "retrieval" in m.tasks and key not in silent}
    untold = [key for key, m in timed.items() if not {"warm_up", "latency"} <= m.declares.keys()]
    assert untold == []
