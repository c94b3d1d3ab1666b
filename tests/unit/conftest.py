"""Fixtures of the unit tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def scifact_root() -> Path:
    """The data root that holds ``scifact/``; the texts are not in this repository."""
    root = os.environ.get("SEALBENCH_DATA_ROOT")
    if root is None:
        reason = "SEALBENCH_DATA_ROOT names no folder with scifact/"
        if os.environ.get("SEALBENCH_REQUIRE_DATA") == "1":
            pytest.fail(f"SEALBENCH_REQUIRE_DATA=1 and {reason}")
        pytest.skip(reason)
    return Path(root)
