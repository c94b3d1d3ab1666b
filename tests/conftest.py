"""Fixtures that any test may ask for: a real engine, and a tiny image in it."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.engine.api import Engine
from runner.engine.docker import DockerEngine
from runner.errors import EngineError
from tests.shipped import User
from tests.tiny_image import NoBusyboxError, TinyImage, build_tiny_image

ENGINE_REQUIRED = os.environ.get("SEALBENCH_REQUIRE_ENGINE") == "1"


def _unavailable(reason: str) -> None:
    """Where the engine is promised, a missing one is a failure; elsewhere the test is skipped."""
    if ENGINE_REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    """The engine that DOCKER_HOST or the usual sockets lead to."""
    try:
        found = DockerEngine()
        found.info()
    except EngineError as error:
        _unavailable(f"no container engine: {error}")
        raise
    yield found
    found.close()


@pytest.fixture(scope="session")
def tiny(engine: Engine) -> TinyImage:
    """The tiny image, loaded. It stays in the engine: other test runs may be using it."""
    try:
        image = build_tiny_image()
    except NoBusyboxError as error:
        _unavailable(str(error))
        raise
    if engine.inspect_image(image.image_id) is None:
        assert engine.load_image(io.BytesIO(image.archive)) == (image.image_id,)
    return image


@pytest.fixture(scope="session")
def tiny_image(tiny: TinyImage) -> str:
    """The image id of the tiny image."""
    return tiny.image_id


@pytest.fixture(scope="session")
def user(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Somebody with a key and all images in the engine."""
    return User.made(tmp_path_factory.mktemp("keys"))


def _data_root(*folders: str) -> Path:
    """Return the data root that holds these folders; the texts are not in this repository.

    Where the data are promised, missing ones are a failure; elsewhere the test is skipped.
    """
    root = os.environ.get("SEALBENCH_DATA_ROOT")
    lacking = [name for name in folders if root is None or not (Path(root) / name).is_dir()]
    if root is None or lacking:
        reason = f"SEALBENCH_DATA_ROOT names no folder with {'/ and '.join(lacking)}/"
        if os.environ.get("SEALBENCH_REQUIRE_DATA") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(root).resolve()


@pytest.fixture(scope="session")
def reviewer_root() -> Path:
    """The data root that holds ``reviewer-gold/``."""
    return _data_root("reviewer-gold")


@pytest.fixture(scope="session")
def fulltext_root() -> Path:
    """The data root that holds ``reviewer-gold/`` and ``reviewer-gold-fulltext/``."""
    return _data_root("reviewer-gold", "reviewer-gold-fulltext")


@pytest.fixture(scope="session")
def scifact_root() -> Path:
    """The data root that holds ``scifact/``."""
    return _data_root("scifact")


@pytest.fixture(scope="session")
def irplag_root() -> Path:
    """The data root that holds ``irplag/``."""
    return _data_root("irplag")
