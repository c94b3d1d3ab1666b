"""Build images, give them to the engine, and say whether they are the published ones."""

from __future__ import annotations

import fcntl
import json
import platform as host_platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from runner.engine.api import Engine, ImageInfo
from runner.errors import ImageError
from runner.imagebuild.assemble import Assembler
from runner.imagebuild.inputs import image_inputs, requirements_digest
from runner.imagebuild.locks import (
    CONTENTS_LOCK,
    IMAGES_LOCK,
    Difference,
    differences,
    image_entry,
    layer_differences,
    read_contents,
    write_image,
)
from runner.imagebuild.oci import Image, make_image, open_archive
from runner.imagebuild.recipe import Recipe, load_recipe
from runner.imagelock import ImageLock, LockEntry, load_lock
from runner.model import ImagePin

IMAGES_FOLDER = Path(__file__).resolve().parent.parent.parent / "images"
MACHINES = {"x86_64": "linux/amd64", "amd64": "linux/amd64", "aarch64": "linux/arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildEvent:
    """One step of a build: ``fetch``, ``assemble``, ``load``, ``present`` or ``built``."""

    image: str
    step: str
    detail: str
    elapsed_s: float


ProgressCallback = Callable[[BuildEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """One image after a build.

    ``status``: ``present`` (the engine had it), ``loaded`` (built and given to the engine) or
    ``built`` (no engine was given). ``size_bytes`` is the sum of its uncompressed layers.
    ``differences`` say why ``pin.published`` is False, unless the lock has no such image
    (``locked`` is False).
    """

    name: str
    pin: ImagePin
    status: str
    size_bytes: int
    differences: tuple[Difference, ...] = ()
    locked: bool = True

    def warnings(self) -> list[str]:
        """Return a line for each reason why this is not the published image."""
        if self.pin.published:
            return []
        if not self.locked:
            return [f"{self.name} is not locked yet: `sealbench images lock {self.name}`"]
        head = f"{self.name} is not the published image"
        if not self.differences:
            return [f"{head}: its layers are the same, its image.toml says something else"]
        return [f"{head}: {difference}" for difference in self.differences]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """What a build came to, in the order asked."""

    images: tuple[BuiltImage, ...]
    seconds: float

    def warnings(self) -> list[str]:
        """Return a line for each reason why an image is not the published one."""
        return [line for image in self.images for line in image.warnings()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The files of a build: the repository's ``images`` folder and the cache."""

    images: Path
    cache: Path

    @property
    def published_lock(self) -> Path:
        return self.images / IMAGES_LOCK

    @property
    def local_lock(self) -> Path:
        return self.cache / "images" / "images.local.json"

    @property
    def contents(self) -> Path:
        return self.images / CONTENTS_LOCK


def host_image_platform() -> str:
    """Return the platform whose images this machine can make and run."""
    machine = host_platform.machine().lower()
    if machine not in MACHINES:
        raise ImageError(
            "image.platform",
            f"there are no images for {machine}",
            fix="use an x86_64 or aarch64 machine, or images of your own by digest",
        )
    return MACHINES[machine]


def build(  # noqa: PLR0913 - the options of a command, all keyword-only
    names: Sequence[str],
    *,
    engine: Engine | None,
    cache_dir: Path,
    mirror: str | None = None,
    images_dir: Path = IMAGES_FOLDER,
    progress: ProgressCallback | None = None,
) -> BuildReport:
    """Make sure that the engine has each image; without an engine, that it is in the cache.

    An image whose inputs are those of the lock and that the engine has is left alone (one inspect).
    What comes out other than locked is kept in the local lock and is not ``published``.
    Raises ``ImageError`` (unknown image, packages not to be had, load refused) and ``EngineError``.
    """
    started = time.monotonic()
    places = Places(images=images_dir, cache=cache_dir)
    platform = host_image_platform()
    recipes = [load_recipe(images_dir, name) for name in dict.fromkeys(names)]
    done = []
    for recipe in recipes:

        def tell(step: str, detail: str, name: str = recipe.name) -> None:
            if progress is not None:
                progress(
                    BuildEvent(
                        image=name,
                        step=step,
                        detail=detail,
                        elapsed_s=time.monotonic() - started,
                    )
                )

        present = _present(recipe, platform, places, engine)
        if present is not None:
            tell("present", str(present.pin.image_id))
            done.append(present)
            continue
        with only_one(cache_dir):
            assembler = Assembler(
                cache_dir=cache_dir, platform=platform, mirror=mirror, progress=tell
            )
            image = finish(recipe, platform, assembler)
            done.append(_deliver(recipe, image, places, engine, tell))
    return BuildReport(images=tuple(done), seconds=time.monotonic() - started)


def finish(recipe: Recipe, platform: str, assembler: Assembler) -> Image:
    """Assemble one image; its labels say what it was made from and what it can do."""
    labels = {
        "sealbench.image": recipe.name,
        "sealbench.inputs": image_inputs(recipe, platform),
        "sealbench.methods": json.dumps(
            {name: method.for_lock() for name, method in sorted(recipe.methods.items())},
            sort_keys=True,
            separators=(",", ":"),
        ),
        "org.opencontainers.image.title": f"sealbench {recipe.name}",
        "org.opencontainers.image.description": recipe.description,
    }
    lock = requirements_digest(recipe)
    if lock is not None:
        labels["sealbench.lock"] = lock
    return make_image(assembler.layers(recipe), platform=platform, labels=labels)


def _present(
    recipe: Recipe, platform: str, places: Places, engine: Engine | None
) -> BuiltImage | None:
    """Return the image if the engine has it and nothing that it is made from has changed."""
    if engine is None:
        return None
    inputs = image_inputs(recipe, platform)
    locked = entry_of(places.published_lock, recipe.name, platform)
    local = entry_of(places.local_lock, recipe.name, platform)
    for entry, published in ((locked, True), (local, False)):
        if entry is None or entry.inputs_sha256 != inputs:
            continue
        if in_engine(engine, entry.image_id, entry.manifest_digest) is None:
            continue
        if published:
            write_image(places.local_lock, recipe, platform, None)
        return BuiltImage(
            name=recipe.name,
            pin=_pin(recipe.name, entry.image_id, entry.manifest_digest, platform, published),
            status="present",
            size_bytes=sum(layer.size for layer in entry.layers),
            differences=layer_differences(entry, locked) if locked and not published else (),
            locked=locked is not None,
        )
    return None


def _deliver(
    recipe: Recipe,
    image: Image,
    places: Places,
    engine: Engine | None,
    tell: Callable[[str, str], None],
) -> BuiltImage:
    entry = entry_of(places.published_lock, recipe.name, image.platform)
    published = entry is not None and entry.image_id == image.image_id
    status = "built"
    if engine is not None:
        status = "present"
        if in_engine(engine, image.image_id, image.manifest_digest) is None:
            tell("load", f"{image.size / 1e6:.0f} MB")
            _load(engine, image, recipe.name)
            status = "loaded"
    inputs = image_inputs(recipe, image.platform)
    local = None if published else image_entry(image, inputs)
    write_image(places.local_lock, recipe, image.platform, local)
    found: tuple[Difference, ...] = ()
    if not published and entry is not None:
        found = differences(image.layers, read_contents(places.contents, image.platform))
    tell("built", image.image_id)
    return BuiltImage(
        name=recipe.name,
        pin=_pin(recipe.name, image.image_id, image.manifest_digest, image.platform, published),
        status=status,
        size_bytes=image.size,
        differences=found,
        locked=entry is not None,
    )


def _load(engine: Engine, image: Image, name: str) -> None:
    with open_archive(image) as archive:
        brought = engine.load_image(cast(BinaryIO, archive))
    if in_engine(engine, image.image_id, image.manifest_digest) is None:
        raise ImageError(
            "image.load-mismatch",
            f"the engine loaded {name} as {', '.join(brought) or 'nothing'},"
            f" not as {image.image_id}",
            fix="delete .cache/images/layers and build again; if that does not help, the engine"
            " changes images when it loads them and cannot be used",
        )


def in_engine(engine: Engine, image_id: str, manifest_digest: str | None) -> ImageInfo | None:
    """Ask by config digest, then by manifest digest: a containerd image store knows the latter."""
    found = engine.inspect_image(image_id)
    if found is None and manifest_digest is not None:
        found = engine.inspect_image(manifest_digest)
    return found


def entry_of(lock_path: Path, name: str, platform: str) -> LockEntry | None:
    """Return an image's entry in a lock; None where the lock or the entry is not there."""
    lock = load_lock(lock_path) if lock_path.is_file() else ImageLock(images={}, methods={})
    return lock.images.get(name, {}).get(platform)


def _pin(
    name: str, image_id: str, manifest_digest: str | None, platform: str, published: bool
) -> ImagePin:
    return ImagePin(
        name=name,
        image_id=image_id,
        manifest_digest=manifest_digest,
        platform=platform,
        published=published,
    )


@contextmanager
def only_one(cache_dir: Path) -> Iterator[None]:
    """Let one build at a time work in a cache; another waits for it and finds it filled."""
    folder = cache_dir / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
