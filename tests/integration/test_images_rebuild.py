"""Real images, built again from nothing: the digests are those of the first build and of the lock.

The packages come from this checkout's cache, where an earlier build left them by their digests, or
from Debian's archive and the package index. No engine is needed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.imagebuild import BuildReport, build
from runner.imagebuild.build import IMAGES_FOLDER, entry_of, host_image_platform

pytestmark = pytest.mark.slow

CACHE = IMAGES_FOLDER.parent / ".cache"
NAMES = ["base", "failures", "lexical"]


def cold_cache(folder: Path, *shared: str) -> Path:
    """A cache with no layer in it that shares only downloads with the checkout's."""
    folder.mkdir()
    for name in shared:
        (CACHE / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(CACHE / name)
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    """All images, assembled from the checkout's downloads."""
    cache = cold_cache(tmp_path_factory.mktemp("first") / "cache", "debs", "wheels")
    return build(NAMES, engine=None, cache_dir=cache)


def test_a_second_assembly_has_the_same_digests(first: BuildReport, tmp_path: Path) -> None:
    cache = cold_cache(tmp_path / "cache", "debs", "wheels")
    second = build(NAMES, engine=None, cache_dir=cache)
    assert [image.pin for image in first.images] == [image.pin for image in second.images]


def test_the_digests_are_the_locked_ones_or_the_report_says_why(first: BuildReport) -> None:
    for image in first.images:
        entry = entry_of(IMAGES_FOLDER / "images.lock.json", image.name, host_image_platform())
        assert entry is not None
        if image.pin.published:
            assert image.pin.image_id == entry.image_id
        else:
            assert image.pin.image_id != entry.image_id
            assert image.differences


def test_fresh_downloads_give_the_same_images(first: BuildReport, tmp_path: Path) -> None:
    fresh = build(NAMES, engine=None, cache_dir=cold_cache(tmp_path / "cache"))
    for one, two in zip(first.images, fresh.images, strict=True):
        if one.pin != two.pin:
            # Debian's archive moved after the checkout's cache was filled; nothing else may differ.
            assert {difference.layer for difference in two.differences} == {"base"}


def test_the_dense_image_comes_out_as_locked(tmp_path: Path) -> None:
    """A gigabyte: once from nothing but its downloads, beside the build that the lock is of."""
    (built,) = build(
        ["dense"], engine=None, cache_dir=cold_cache(tmp_path / "cache", "debs", "wheels")
    ).images
    base = {difference.layer for difference in built.differences}
    assert built.pin.published or base == {"base"}
