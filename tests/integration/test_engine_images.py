"""Images on a real engine: loaded, pulled by digest, proven."""

from __future__ import annotations

import base64
import io
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.engine.docker import DockerEngine
from runner.engine.images import manifest_digest_of, prove_image
from runner.errors import ImageError
from runner.model import ImagePin
from tests.containers import run, spec
from tests.registry import serve
from tests.tiny_image import TinyImage, build_tiny_image

pytestmark = pytest.mark.engine


def test_an_archive_with_a_name_gives_its_id(engine: DockerEngine) -> None:
    tag = f"sealbench-test-{secrets.token_hex(6)}:1"
    image = build_tiny_image(tag=tag, note=tag)
    with _removed_at_the_end(engine, image):
        assert engine.load_image(io.BytesIO(image.archive)) == (image.image_id,)
        assert engine.load_image(io.BytesIO(image.archive)) == (image.image_id,)


@pytest.mark.parametrize("archive", [b"", b"no archive at all", b"\0" * 1024])
def test_a_broken_archive_is_refused(engine: DockerEngine, archive: bytes) -> None:
    with pytest.raises(ImageError) as caught:
        engine.load_image(io.BytesIO(archive))
    assert caught.value.code == "image.load-failed"


def test_a_pull_by_digest_proves_both_digests_and_sends_no_credentials(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only_docker(engine)
    image = build_tiny_image(note=secrets.token_hex(6))
    with serve(image) as registry, _removed_at_the_end(engine, image):
        secret = base64.b64encode(b"user:secret").decode()
        auths = {registry.repository.partition("/")[0]: {"auth": secret}}
        (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        mine = DockerEngine(engine.host)
        info = mine.info()
        pin = ImagePin(
            name="tiny",
            image_id=image.image_id,
            manifest_digest=registry.manifest_digest,
            repository=registry.repository,
            platform=f"{info.os}/{info.architecture}",
        )
        found = prove_image(mine, pin, pin.platform)
        assert found.image_id == image.image_id
        assert manifest_digest_of(found) == registry.manifest_digest
        asked = len(registry.requests)
        assert asked > 0
        assert all(authorization is None for _, _, authorization in registry.requests)
        # By then it is there: nothing is asked for again.
        assert prove_image(mine, pin, pin.platform) == found
        assert len(registry.requests) == asked
        assert run(mine, spec(found.image_id, ("/bin/echo", "pulled"))).stdout == b"pulled\n"
        mine.close()


def test_a_digest_that_the_registry_lacks(engine: DockerEngine) -> None:
    _only_docker(engine)
    with serve(build_tiny_image()) as registry, pytest.raises(ImageError) as caught:
        engine.pull_image(registry.repository, "sha256:" + "0" * 64)
    assert caught.value.code == "image.pull-failed"


def test_a_registry_that_is_not_there(engine: DockerEngine) -> None:
    with pytest.raises(ImageError) as caught:
        engine.pull_image("127.0.0.1:9/tiny", "sha256:" + "0" * 64)
    assert caught.value.code == "image.pull-failed"


def test_another_platforms_image_is_refused(engine: DockerEngine) -> None:
    image = build_tiny_image(architecture="s390x", note="other platform")
    info = engine.info()
    platform = f"{info.os}/{info.architecture}"
    with _removed_at_the_end(engine, image):
        engine.load_image(io.BytesIO(image.archive))
        with pytest.raises(ImageError) as caught:
            prove_image(
                engine, ImagePin(name="t", image_id=image.image_id, platform=platform), platform
            )
    assert caught.value.code == "image.platform"


def _only_docker(engine: DockerEngine) -> None:
    if engine.info().name != "docker":
        pytest.skip("only Docker takes a loopback registry without TLS unasked")


@contextmanager
def _removed_at_the_end(engine: DockerEngine, image: TinyImage) -> Iterator[None]:
    try:
        yield
    finally:
        if engine.inspect_image(image.image_id) is not None:
            with engine._client("remove a test's image") as client:
                client.remove_image(image.image_id, force=True)
