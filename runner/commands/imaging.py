"""``images build|lock|list``: the images that methods run in."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from runner.commands.output import emit, table
from runner.engine.docker import DockerEngine
from runner.errors import EngineError
from runner.imagebuild.build import IMAGES_FOLDER, BuildEvent, BuildReport
from runner.imagebuild.build import build as build_images
from runner.imagebuild.listing import list_images
from runner.imagebuild.lock import lock_update
from runner.imagebuild.recipe import recipe_names
from runner.progress_text import size_text

CACHE = Path(__file__).resolve().parent.parent.parent / ".cache"


def build(arguments: Namespace) -> int:
    """Build what is missing and load it into the engine."""
    engine = DockerEngine()
    try:
        report = build_images(
            arguments.names or recipe_names(IMAGES_FOLDER),
            engine=engine,
            cache_dir=CACHE,
            progress=None if arguments.json else _tell,
        )
    finally:
        engine.close()
    _answer(arguments, report)
    return 0


def lock(arguments: Namespace) -> int:
    """Build and record what came out as the published state."""
    report = lock_update(
        arguments.names or None,
        cache_dir=CACHE,
        resolve=arguments.resolve,
        progress=None if arguments.json else _tell,
    )
    _answer(arguments, report)
    return 0


def list_(arguments: Namespace) -> int:
    """List the images of the locks, and whether the engine has them."""
    engine = _engine_if_any()
    try:
        found = list_images(engine=engine, cache_dir=CACHE)
    finally:
        if engine is not None:
            engine.close()
    present = {True: "present", False: "absent", None: "no engine"}
    rows = [
        (
            image.name,
            image.platform,
            present[image.present],
            "published" if image.published else "built here",
            size_text(image.size_bytes),
            image.image_id,
            ", ".join(image.methods),
        )
        for image in found
    ]
    head = ("image", "platform", "engine", "from", "size", "image id", "methods")
    emit(arguments, {"images": [asdict(image) for image in found]}, table(head, rows))
    return 0


def _engine_if_any() -> DockerEngine | None:
    try:
        return DockerEngine()
    except EngineError:
        return None


def _tell(event: BuildEvent) -> None:
    sys.stderr.write(f"   {event.image}: {event.step} {event.detail} ({event.elapsed_s:.1f} s)\n")


def _answer(arguments: Namespace, report: BuildReport) -> None:
    document = {
        "seconds": round(report.seconds, 3),
        "images": [
            {
                "name": image.name,
                "status": image.status,
                "published": image.pin.published,
                "image_id": image.pin.image_id,
                "manifest_digest": image.pin.manifest_digest,
                "size_bytes": image.size_bytes,
                "differences": [str(difference) for difference in image.differences],
            }
            for image in report.images
        ],
    }
    rows = [
        (image.name, image.status, size_text(image.size_bytes), image.pin.digest)
        for image in report.images
    ]
    text = table(("image", "status", "size", "image id"), rows)
    text += "".join(f"warning: {warning}\n" for warning in report.warnings())
    emit(arguments, document, text)
