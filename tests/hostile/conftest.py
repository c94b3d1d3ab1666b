"""Fixtures of the hostile tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.engine.api import Engine
from tests.hostile.arena import Arena


@pytest.fixture
def arena(engine: Engine, tiny_image: str, tmp_path: Path) -> Iterator[Arena]:
    """A place to run hostile scripts in."""
    place = Arena(engine, tiny_image, tmp_path)
    yield place
    place.clear()
