"""Layers are kept by what they were made from, and nothing half made stays beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.imagebuild.layercache import LayerCache
from runner.imagebuild.layers import Layer

INPUTS = "sha256:" + "a" * 64


def _make(path: Path) -> Layer:
    path.write_bytes(b"layer")
    return Layer(name="base", diff_id=INPUTS, size=5, path=path, packages={})


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_build_left_goes_with_the_next(tmp_path: Path) -> None:
    cache = LayerCache(tmp_path, "linux/amd64")
    (tmp_path / f".base.amd64.{'b' * 32}.tar.99").write_bytes(b"half of an older one")
    (tmp_path / f".other.amd64.{'b' * 32}.tar.99").write_bytes(b"not of this layer")
    kept = cache.get("base", INPUTS, _make)
    assert kept.path.read_bytes() == b"layer"
    assert _names(tmp_path) == [
        f".other.amd64.{'b' * 32}.tar.99",
        f"base.amd64.{'a' * 32}.json",
        f"base.amd64.{'a' * 32}.tar",
    ]
    assert cache.get("base", INPUTS, lambda _: pytest.fail("it is made already")) == kept
