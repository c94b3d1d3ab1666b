"""Is every pinned image there, under its own digest, for the right platform?

A pin is met by the image id (the config digest; on the containerd image store, the manifest
digest) or by a manifest digest that the engine's store knows for it. Names and tags meet nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from runner.engine.api import Engine, ImageInfo
from runner.errors import ImageError
from runner.model import ImagePin

_BUILD = "build it with `sealbench images build`"


def prove_images(
    engine: Engine, pins: Iterable[ImagePin], platform: str
) -> dict[ImagePin, ImageInfo]:
    """Return what the engine has for each pin; containers are made from ``ImageInfo.image_id``.

    An image that the engine lacks is pulled if its pin names a repository and a manifest digest,
    and never by a tag. ``platform`` is what the run wants, ``os/architecture``. Raises
    ``ImageError`` for the first pin that is not met.
    """
    return {pin: prove_image(engine, pin, platform) for pin in dict.fromkeys(pins)}


def prove_image(engine: Engine, pin: ImagePin, platform: str) -> ImageInfo:
    """``prove_images`` for one pin."""
    if not pin.digest:
        raise ImageError(
            "image.not-pinned",
            f"image {pin.name} has no digest",
            fix="pin it as name@sha256:<manifest digest> or sha256:<image id>",
        )
    if _platform(pin.platform) != _platform(platform):
        raise ImageError(
            "image.platform",
            f"image {pin.name} is pinned for {pin.platform}, and this run is on {platform}",
            fix=f"pin a build for {platform} (`sealbench images build` makes one here)",
        )
    found = find_image(engine, pin)
    if found is None and pin.repository and pin.manifest_digest:
        found = engine.pull_image(pin.repository, pin.manifest_digest)
    if found is None:
        raise ImageError(
            "image.absent",
            f"the engine has no image {pin.name} ({pin.digest})",
            fix=_BUILD if not pin.repository else f"{_BUILD}, or pull {pin.repository} by digest",
        )
    if not meets(found, pin):
        raise ImageError(
            "image.differs",
            f"image {pin.name} is pinned as {pin.digest}, and the engine has {found.image_id}",
            fix=f"{_BUILD}, or pin the digest that you mean",
        )
    if _platform(found.platform) != _platform(platform):
        raise ImageError(
            "image.platform",
            f"image {pin.name} is for {found.platform}, and this run is on {platform}",
            fix=f"pin the digest of the build for {platform}, not another platform's",
        )
    return found


def find_image(engine: Engine, pin: ImagePin) -> ImageInfo | None:
    """Look a pin up by each digest that it has, without pulling."""
    references = [pin.image_id]
    if pin.manifest_digest:
        if pin.repository:
            references.append(f"{pin.repository}@{pin.manifest_digest}")
        references.append(pin.manifest_digest)  # the id on the containerd image store
    for reference in references:
        if reference and (found := engine.inspect_image(reference)) is not None:
            return found
    return None


def meets(image: ImageInfo, pin: ImagePin) -> bool:
    """Pure: is this image the pinned one? With both digests pinned, none may contradict."""
    digests = {digest.rpartition("@")[2] for digest in image.repo_digests}
    if image.image_id in (pin.image_id, pin.manifest_digest):
        return True
    # The engine names the image by a digest that is not pinned. A pinned config digest would then
    # be contradicted, unless the store's ids are manifest digests.
    by_manifest = pin.manifest_digest is not None and pin.manifest_digest in digests
    return by_manifest and (pin.image_id is None or image.image_id in digests)


def manifest_digest_of(image: ImageInfo) -> str | None:
    """The registry's digest of an image, when the engine knows exactly one."""
    digests = {digest.rpartition("@")[2] for digest in image.repo_digests}
    return digests.pop() if len(digests) == 1 else None


def _platform(text: str) -> tuple[str, ...]:
    """``os/architecture``, without the variant: arm64 and arm64/v8 are one."""
    return tuple(text.split("/")[:2])
