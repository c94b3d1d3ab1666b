"""Which images there are: in the locks, and in the engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.engine.api import Engine
from runner.imagebuild.build import IMAGES_FOLDER, Places, in_engine
from runner.imagelock import load_locks


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedImage:
    """One image of a lock on one platform. ``present`` is None when no engine was asked."""

    name: str
    platform: str
    image_id: str
    manifest_digest: str | None
    published: bool
    present: bool | None
    size_bytes: int
    methods: tuple[str, ...]


def list_images(
    *, engine: Engine | None, cache_dir: Path, images_dir: Path = IMAGES_FOLDER
) -> tuple[ListedImage, ...]:
    """Return the published images and those that came out different here, sorted by name."""
    places = Places(images=images_dir, cache=cache_dir)
    locks = load_locks(places.published_lock, places.local_lock)
    return tuple(
        ListedImage(
            name=name,
            platform=platform,
            image_id=entry.image_id,
            manifest_digest=entry.manifest_digest,
            published=published,
            present=None
            if engine is None
            else in_engine(engine, entry.image_id, entry.manifest_digest) is not None,
            size_bytes=sum(layer.size for layer in entry.layers),
            methods=tuple(sorted(lock.methods.get(name, {}))),
        )
        for lock, published in ((locks.published, True), (locks.local, False))
        for name, platforms in sorted(lock.images.items())
        for platform, entry in sorted(platforms.items())
    )
