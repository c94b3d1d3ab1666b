"""The method author's guide: its example is a real image recipe and a real method."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runner.imagebuild.build import IMAGES_FOLDER
from runner.imagebuild.recipe import load_recipe
from runner.manifest import parse_run_manifest
from runner.schemas import is_valid
from tests.unit.image_samples import BASE_RECIPE
from tests.unit.test_sdk import SDK_FOLDER, write_inputs

GUIDE = (IMAGES_FOLDER.parent / "docs" / "method-author.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "overlap" / "overlap").mkdir(parents=True)
    (folder / "base").mkdir()
    (folder / "base" / "image.toml").write_text(BASE_RECIPE)
    (folder / "overlap" / "image.toml").write_text("\n".join(blocks("toml")))
    (folder / "overlap" / "overlap" / "__init__.py").touch()
    (folder / "overlap" / "overlap" / "method.py").write_text(blocks("python")[0])
    return folder


def test_the_recipe_is_one(images: Path) -> None:
    recipe = load_recipe(images, "overlap")
    assert recipe.own_layers() == ("overlap-packages", "overlap-methods")
    assert recipe.methods["overlap"].config == {"weight": 1.0}


def test_the_method_answers(images: Path, tmp_path: Path) -> None:
    write_inputs(tmp_path / "in", config={"weight": 2.0})
    (tmp_path / "out").mkdir()
    command = load_recipe(images, "overlap").methods["overlap"].command
    subprocess.run(
        [sys.executable, *command[1:]],
        env={
            "PYTHONPATH": f"{SDK_FOLDER}:{images / 'overlap'}",
            "inputDataset": str(tmp_path / "in"),
            "outputDir": str(tmp_path / "out"),
        },
        timeout=30,
        check=True,
    )
    rows = [json.loads(line) for line in (tmp_path / "out/rows.jsonl").read_text().splitlines()]
    assert [row["query_id"] for row in rows] == ["q0", "q1", "q2"]
    assert all(is_valid("row-retrieval", row) for row in rows)


def test_the_row_that_is_shown_is_valid() -> None:
    shown = [json.loads(row) for row in blocks("json")]
    kinds = {"query_id": "row-retrieval", "reviewer_id": "row-expertise", "pair_id": "row-pair"}
    assert shown
    for row in shown:
        assert is_valid(kinds[next(iter(row))], row)


def test_the_manifest_that_is_shown_is_one() -> None:
    path = IMAGES_FOLDER.parent / "mine.yaml"
    manifest = parse_run_manifest(blocks("yaml")[0].encode(), path)
    assert [(m.name, m.image, m.method) for m in manifest.methods] == [
        ("overlap", "overlap", None),
        ("overlap-heavy", "overlap", "overlap"),
    ]
    assert manifest.protocol.is_file()
    assert manifest.data_root is not None
    assert (manifest.data_root / "quickstart-mini").is_dir()


def test_the_module_that_is_shown_is_the_example_and_its_manifest_names_it() -> None:
    example = IMAGES_FOLDER.parent / "examples" / "module"
    shown = blocks("python")[1]
    assert (example / "token_jaccard.py").read_text().endswith(shown)
    manifest = parse_run_manifest(blocks("yaml")[1].encode(), example / "mine.yaml")
    (method,) = manifest.methods
    assert (method.image, method.method) == ("code", "custom")
    assert method.module == example / "token_jaccard.py"
    assert manifest.protocol.is_file()
