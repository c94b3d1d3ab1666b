"""Which image meets a pin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.engine.api import ImageInfo
from runner.engine.docker import is_pinned
from runner.engine.fake import FakeEngine, fake_image
from runner.engine.images import manifest_digest_of, meets, prove_images
from runner.errors import ImageError
from runner.model import ImagePin

A, B, C = ("sha256:" + letter * 64 for letter in "abc")
REPO = "registry.invalid/lexical"
AMD = "linux/amd64"


def image(image_id: str = A, *digests: str, platform: str = AMD) -> ImageInfo:
    return replace(fake_image(image_id, platform), repo_digests=tuple(digests))


def pin(**fields: str | None) -> ImagePin:
    return ImagePin(**{"name": "lexical", **fields})  # type: ignore[arg-type]  # names vary by row


@pytest.mark.parametrize(
    ("found", "pinned", "met"),
    [
        (image(A), pin(image_id=A), True),
        (image(A), pin(image_id=B), False),
        (image(A, f"{REPO}@{B}"), pin(manifest_digest=B), True),
        (image(A, f"{REPO}@{C}"), pin(manifest_digest=B), False),
        (image(A, f"{REPO}@{B}"), pin(image_id=A, manifest_digest=B), True),
        (image(A), pin(image_id=A, manifest_digest=B), True),  # built here, never pushed
        (image(C, f"{REPO}@{B}"), pin(image_id=A, manifest_digest=B), False),  # contradicted
        (image(B), pin(image_id=A, manifest_digest=B), True),  # containerd's store: id = manifest
        (image(C, f"{REPO}@{C}", f"{REPO}@{B}"), pin(image_id=A, manifest_digest=B), True),
        (image(A), pin(), False),
    ],
)
def test_meets(found: ImageInfo, pinned: ImagePin, met: bool) -> None:
    assert meets(found, pinned) is met


@pytest.mark.parametrize(
    ("images", "pinned"),
    [
        ([image(A)], pin(image_id=A)),
        ([image(A, f"{REPO}@{B}")], pin(manifest_digest=B, repository=REPO)),
        ([image(B)], pin(image_id=A, manifest_digest=B)),
        ([image(A, platform="linux/amd64")], pin(image_id=A, platform="linux/amd64/v2")),
    ],
)
def test_present(images: list[ImageInfo], pinned: ImagePin) -> None:
    assert prove_images(FakeEngine(images=images), [pinned, pinned], AMD) == {pinned: images[0]}


def test_an_absent_image_is_pulled_by_digest() -> None:
    there = image(A, f"{REPO}@{B}")
    pinned = pin(manifest_digest=B, repository=REPO)
    assert prove_images(FakeEngine(images=[], pullable=[there]), [pinned], AMD) == {pinned: there}


@pytest.mark.parametrize(
    ("images", "pullable", "pinned", "code"),
    [
        ([], [], pin(), "image.not-pinned"),
        ([], [], pin(image_id=A), "image.absent"),
        ([], [], pin(manifest_digest=B), "image.absent"),  # nowhere to pull it from
        ([], [], pin(image_id=A, repository=REPO), "image.absent"),  # nothing to pull it by
        ([], [], pin(manifest_digest=B, repository=REPO), "image.pull-failed"),
        ([], [], pin(image_id=A, platform="linux/arm64"), "image.platform"),
        ([image(A, platform="linux/arm64")], [], pin(image_id=A), "image.platform"),
        (
            [],
            [image(C, f"{REPO}@{B}")],
            pin(image_id=A, manifest_digest=B, repository=REPO),
            "image.differs",
        ),
    ],
)
def test_refused(
    images: list[ImageInfo], pullable: list[ImageInfo], pinned: ImagePin, code: str
) -> None:
    with pytest.raises(ImageError) as caught:
        prove_images(FakeEngine(images=images, pullable=pullable), [pinned], AMD)
    assert caught.value.code == code
    assert caught.value.fix


def test_the_registrys_digest() -> None:
    assert manifest_digest_of(image(A)) is None
    assert manifest_digest_of(image(A, f"{REPO}@{B}", f"mirror.invalid/x@{B}")) == B
    assert manifest_digest_of(image(A, f"{REPO}@{B}", f"{REPO}@{C}")) is None


@pytest.mark.parametrize(
    ("reference", "pinned"),
    [
        (f"lexical@{A}", True),
        (f"{REPO}@{A}", True),
        (f"localhost:5000/lexical@{A}", True),
        (f"lexical:latest@{A}", False),
        (f"localhost:5000/lexical:1@{A}", False),
        ("lexical:latest", False),
        (A, False),
        (f"lexical@{A[:-1]}", False),
        (f"a@b@{A}", False),
    ],
)
def test_pinned_references(reference: str, pinned: bool) -> None:
    assert is_pinned(reference) is pinned
