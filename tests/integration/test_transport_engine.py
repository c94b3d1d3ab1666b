"""Images out of a real engine and into it again: archives, and a real registry on loopback."""

from __future__ import annotations

import hashlib
import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.engine.docker import DockerEngine
from runner.engine.images import manifest_digest_of, prove_image
from runner.errors import ImageError
from runner.model import ImagePin
from runner.obtain import Sources, obtain
from runner.transport.imagefile import open_image_file
from runner.transport.registry import Registry
from runner.transport.transfer import export_image, import_file, taken_from_engine
from tests.docker_registry import NoRegistryError, running_registry
from tests.tiny_image import TinyImage, build_tiny_image

pytestmark = pytest.mark.engine


def no_registry(error: NoRegistryError) -> None:
    """Its package starts a service, so nobody but CI is asked to install it."""
    if os.environ.get("SEALBENCH_REQUIRE_REGISTRY") == "1":
        pytest.fail(str(error))
    pytest.skip(str(error))


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    try:
        with running_registry(tmp_path) as address:
            yield address
    except NoRegistryError as error:
        no_registry(error)


@contextmanager
def loaded(engine: DockerEngine) -> Iterator[tuple[TinyImage, ImagePin]]:
    """A tiny image that nobody else has; gone from the engine afterwards."""
    image = build_tiny_image(note=secrets.token_hex(8))
    engine.load_image(io.BytesIO(image.archive))
    info = engine.info()
    pin = ImagePin(name="tiny", image_id=image.image_id, platform=f"{info.os}/{info.architecture}")
    try:
        yield image, pin
    finally:
        remove(engine, image.image_id)


def remove(engine: DockerEngine, image_id: str) -> None:
    if engine.inspect_image(image_id) is not None:
        with engine._client("remove a test's image") as client:
            client.remove_image(image_id, force=True)


def test_an_exported_image_comes_back_under_its_id_after_it_was_removed(
    engine: DockerEngine, tmp_path: Path
) -> None:
    with loaded(engine) as (image, pin):
        one = export_image(engine, pin, tmp_path / "one.oci.tar")
        two = export_image(engine, pin, tmp_path / "two.oci.tar")
        assert one.image_id == image.image_id
        assert digest(tmp_path / "one.oci.tar") == digest(tmp_path / "two.oci.tar")
        remove(engine, image.image_id)
        assert engine.inspect_image(image.image_id) is None
        (moved,) = import_file(engine, tmp_path / "one.oci.tar", frozenset({image.image_id}))
        assert (moved.image_id, moved.present) == (image.image_id, False)
        assert moved.manifest_digest == two.manifest_digest
        assert engine.inspect_image(image.image_id) is not None
        export_image(engine, pin, tmp_path / "three.oci.tar")
        assert digest(tmp_path / "three.oci.tar") == digest(tmp_path / "one.oci.tar")


def test_a_pushed_image_is_pulled_by_the_digest_that_was_known_before(
    engine: DockerEngine, tmp_path: Path, registry: str
) -> None:
    if engine.info().name != "docker":
        pytest.skip("only Docker takes a loopback registry without TLS unasked")
    with loaded(engine) as (image, pin):
        export_image(engine, pin, tmp_path / "one.oci.tar")
        with open_image_file(tmp_path / "one.oci.tar") as file:
            known = file.images[0].manifest_digest
        with taken_from_engine(engine, pin) as taken:
            assert Registry(f"{registry}/some/tiny").push(taken) == known
            assert Registry(f"{registry}/some/tiny").push(taken) == known  # again: nothing to do
        remove(engine, image.image_id)
        remote = ImagePin(
            name="tiny",
            image_id=image.image_id,
            manifest_digest=known,
            repository=f"{registry}/some/tiny",
            platform=pin.platform,
        )
        assert obtain(engine, [remote], Sources()) == {remote: "registry"}
        found = prove_image(engine, remote, pin.platform)
        assert (found.image_id, manifest_digest_of(found)) == (image.image_id, known)


def test_a_registry_without_the_digest_and_none_at_all(engine: DockerEngine, registry: str) -> None:
    for address in (registry, "127.0.0.1:9"):
        pin = ImagePin(
            name="gone",
            manifest_digest="sha256:" + "0" * 64,
            repository=f"{address}/gone",
            platform="/".join((engine.info().os, engine.info().architecture)),
        )
        with pytest.raises(ImageError) as caught:
            obtain(engine, [pin], Sources())
        assert caught.value.code == "image.nowhere"
        assert "registry:" in caught.value.message


def test_a_registry_that_wants_a_password(engine: DockerEngine, tmp_path: Path) -> None:
    # bcrypt of "secret", made once.
    users = tmp_path / "users"
    users.write_text("user:$2y$04$Jj1rzXoCKJk1GH1Lgl8uOONW2QAoIyi4edJZm/sYg6xC03NwJI0Au\n")
    try:
        with (
            running_registry(tmp_path, htpasswd=users) as address,
            loaded(engine) as (_, pin),
            taken_from_engine(engine, pin) as taken,
        ):
            with pytest.raises(ImageError) as caught:
                Registry(f"{address}/tiny").push(taken)
            assert "HTTP 401" in caught.value.message
            with pytest.raises(ImageError):
                Registry(f"{address}/tiny", "user:wrong").push(taken)
            made = Registry(f"{address}/tiny", "user:secret").push(taken)
            assert made == taken.manifest_digest
    except NoRegistryError as error:
        no_registry(error)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
