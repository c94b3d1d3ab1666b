"""Write the locks: what the images of this repository are from now on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from runner.imagebuild.assemble import Assembler
from runner.imagebuild.build import (
    IMAGES_FOLDER,
    BuildEvent,
    BuildReport,
    BuiltImage,
    Places,
    ProgressCallback,
    finish,
    host_image_platform,
    only_one,
)
from runner.imagebuild.inputs import image_inputs
from runner.imagebuild.locks import (
    DEB_LOCK,
    differences,
    image_entry,
    read_contents,
    write_contents,
    write_deb_lock,
    write_image,
)
from runner.imagebuild.recipe import Recipe, load_recipe, recipe_names
from runner.imagebuild.wheels import MACHINES, Wheel, resolve_wheels
from runner.model import ImagePin


def lock_update(  # noqa: PLR0913 - the options of a command, all keyword-only
    names: Sequence[str] | None = None,
    *,
    cache_dir: Path,
    mirror: str | None = None,
    resolve: bool = False,
    images_dir: Path = IMAGES_FOLDER,
    progress: ProgressCallback | None = None,
) -> BuildReport:
    """Build images (all by default) and make what came out the published state of the repository.

    ``resolve`` first renews what they are built from: the wheels that ``requirements.in`` resolves
    to on every platform, and the Debian packages that the archive has now. The report's
    ``differences`` say what changed against the locks as they were.
    """
    started = time.monotonic()
    places = Places(images=images_dir, cache=cache_dir)
    platform = host_image_platform()
    done: list[BuiltImage] = []
    renewed: set[str] = set()
    for name in names or recipe_names(images_dir):
        recipe = load_recipe(images_dir, name)

        def tell(step: str, detail: str, name: str = name) -> None:
            if progress is not None:
                elapsed = time.monotonic() - started
                progress(BuildEvent(image=name, step=step, detail=detail, elapsed_s=elapsed))

        with only_one(cache_dir):
            assembler = Assembler(
                cache_dir=cache_dir,
                platform=platform,
                mirror=mirror,
                progress=tell,
            )
            if resolve:
                _resolve(recipe, cache_dir)
            root = recipe.root()
            _lock_debs(root, assembler, renew=resolve and root.name not in renewed)
            renewed.add(root.name)
            done.append(_publish(recipe, assembler, places))
    return BuildReport(images=tuple(done), seconds=time.monotonic() - started)


def _lock_debs(root: Recipe, assembler: Assembler, *, renew: bool) -> None:
    """Before any image is finished: its label is the digest of all inputs, these included."""
    debs = assembler.debs(root, renew=renew)
    write_deb_lock(
        root.folder / DEB_LOCK,
        assembler.platform,
        {deb.name: {"version": deb.version, "sha256": deb.sha256} for deb in debs},
    )


def _publish(recipe: Recipe, assembler: Assembler, places: Places) -> BuiltImage:
    platform = assembler.platform
    image = finish(recipe, platform, assembler)
    changed = differences(image.layers, read_contents(places.contents, platform))
    write_contents(places.contents, platform, {layer.name: layer for layer in image.layers})
    entry = image_entry(image, image_inputs(recipe, platform))
    write_image(places.published_lock, recipe, platform, entry)
    write_image(places.local_lock, recipe, platform, None)
    return BuiltImage(
        name=recipe.name,
        pin=ImagePin(
            name=recipe.name,
            image_id=image.image_id,
            manifest_digest=image.manifest_digest,
            platform=platform,
        ),
        status="built",
        size_bytes=image.size,
        differences=changed,
    )


def _resolve(recipe: Recipe, cache_dir: Path) -> None:
    part = recipe.wheels
    if part is None:
        return
    wanted = part.requirements.with_suffix(".in")
    found = [
        wheel
        for platform in part.platforms or MACHINES
        for wheel in resolve_wheels(
            wanted, platform=platform, cache=cache_dir / "wheels", index=part.index
        )
    ]
    part.requirements.write_text(requirements_text(found, wanted.name), encoding="utf-8")


def requirements_text(wheels: Sequence[Wheel], origin: str) -> str:
    """Return a hash-locked requirements file for all platforms' wheels together. Pure."""
    hashes: dict[tuple[str, str], set[str]] = {}
    for wheel in wheels:
        hashes.setdefault((wheel.name, wheel.version), set()).add(wheel.sha256)
    lines = [f"# Made from {origin} by: sealbench images lock --resolve"]
    for (name, version), digests in sorted(hashes.items()):
        options = " \\\n".join(f"    --hash=sha256:{digest}" for digest in sorted(digests))
        lines.append(f"{name}=={version} \\\n{options}")
    return "\n".join(lines) + "\n"
