"""The expertise image on a real engine: every method of it, on figures worked out by hand."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from runner.engine.docker import DockerEngine
from runner.imagebuild import build
from runner.imagebuild.build import IMAGES_FOLDER
from tests.reviewer_runs import bench_of, means, outcomes, rated

METHODS = ("tpms", "tfidf", "bm25", "constant", "random")
pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def bundle(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All methods over both versions of a made-up benchmark."""
    build(["expertise"], engine=engine, cache_dir=IMAGES_FOLDER.parent / ".cache")
    bench = bench_of(tmp_path_factory.mktemp("expertise"))
    return bench.run(*(f"  - {{name: {name}, image: expertise}}" for name in METHODS))


def test_every_method_of_the_image_runs(bundle: Path) -> None:
    assert outcomes(bundle) == {name: {"ok"} for name in METHODS}


def test_losses_are_those_worked_out_by_hand(bundle: Path) -> None:
    losses = means(bundle, "wkt_loss")
    assert {name: losses[name] for name in METHODS if name != "random"} == {
        "tpms": 0.25,  # 0 and 4/8
        "tfidf": 0.25,
        "bm25": 0.25,
        "constant": 0.5,
    }
    assert losses["random"] * 16 == pytest.approx(round(losses["random"] * 16), abs=1e-9)
    easy = means(bundle, "easy_accuracy")
    assert (easy["tpms"], easy["constant"]) == (0.75, 0.0)  # A and B, then B alone


def test_tpms_puts_each_reviewers_own_subject_first(bundle: Path) -> None:
    pairs = defaultdict(list)
    for reviewer, rating, score in rated(bundle, "tpms", "toy-1"):
        pairs[reviewer].append((rating, score))
    assert len(pairs) == 3
    for lower, higher in map(sorted, pairs.values()):
        assert lower[1] == 0.0  # not a word in common
        assert 0.3 < higher[1] <= 1.0
