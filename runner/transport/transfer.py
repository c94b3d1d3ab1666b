"""Images from an engine into an archive, and from an archive into an engine."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from runner.bundle import durable
from runner.engine.api import Engine, ImageInfo
from runner.engine.images import find_image
from runner.errors import ImageError
from runner.model import ImagePin
from runner.transport.imagefile import StoredImage, open_image_file
from runner.transport.spool import CHUNK, SpooledImage, spool

SUFFIX = ".oci.tar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """An image that was exported or imported; ``present``: it was there before."""

    image_id: str
    manifest_digest: str
    platform: str
    size: int
    file: str
    present: bool = False


@contextmanager
def taken_from_engine(engine: Engine, pin: ImagePin) -> Iterator[SpooledImage]:
    """Take an image out of the engine, proven, its layers in a folder that goes away."""
    found = find_image(engine, pin)
    if found is None:
        raise ImageError(
            "image.absent",
            f"the engine has no image {pin.name} ({pin.digest})",
            fix="build it with `sealbench images build`, or pull it by digest",
        )
    with _temporary() as folder:
        saved = folder / "saved.tar"
        with durable.storage_errors(saved), saved.open("xb") as stream:
            for block in engine.save_image(found.image_id):
                stream.write(block)
        digests = frozenset({found.image_id, pin.digest})
        with open_image_file(saved) as file:
            image = file.find(digests)
            if image is None:
                raise ImageError(
                    "image.save-mismatch",
                    f"the engine gave another image than {found.image_id}",
                    fix="see the engine's log; it changes images when it saves them",
                )
            yield spool(file.stream, image, folder)


def export_image(engine: Engine, pin: ImagePin, target: Path) -> Moved:
    """Write an image as a canonical archive; an existing file is refused.

    The same image gives the same bytes. Raises ``ImageError`` and ``StorageError``; a failure
    leaves nothing.
    """
    durable.make_directory(target.parent)
    temporary = target.with_name(f".partial-{target.name}-{secrets.token_hex(4)}")
    with taken_from_engine(engine, pin) as image:
        try:
            with durable.storage_errors(target):
                descriptor = durable.create_file(temporary)
                with os.fdopen(descriptor, "wb") as stream, image.open_archive() as archive:
                    while block := archive.read(CHUNK):
                        stream.write(block)
                    stream.flush()
                    os.fsync(descriptor)
            durable.rename_new(temporary, target)
        finally:
            with suppress(OSError):
                temporary.unlink()
        durable.fsync_directory(target.parent)
        return _moved(image, target)


def archive_name(pin: ImagePin) -> str:
    """Return the name of a pin's archive: what people call it, and the start of its digest."""
    name = "".join(c if c.isalnum() and c.isascii() else "-" for c in pin.name.rpartition("/")[2])
    return f"{name or 'image'}-{pin.digest.removeprefix('sha256:')[:12]}{SUFFIX}"


def import_file(
    engine: Engine, path: Path, wanted: frozenset[str] = frozenset()
) -> tuple[Moved, ...]:
    """Load the images of an archive that have one of the ``wanted`` digests; all, if none is named.

    Raises ``ImageError`` when a wanted one is not there, when anything in the archive is not what
    its digest says, and when the engine made something else of it.
    """
    with open_image_file(path) as file:
        chosen = [one for one in file.images if not wanted or one.answers(wanted)]
        if not chosen:
            held = ", ".join(image.image_id for image in file.images)
            raise ImageError(
                "archive.other-image",
                f"the archive holds {held}, not {', '.join(sorted(wanted))}",
                fix="ask for the archive of the digest that is wanted; tags are not compared",
            )
        return tuple(_load(engine, file.stream, image, path) for image in chosen)


def load_wanted(engine: Engine, path: Path, digests: frozenset[str]) -> Moved | None:
    """Load the image with one of the digests out of an archive; None when it holds no such image.

    ``ImageError`` for an archive that holds it damaged.
    """
    with open_image_file(path) as file:
        image = file.find(digests)
        return None if image is None else _load(engine, file.stream, image, path)


def _load(engine: Engine, stream: BinaryIO, image: StoredImage, path: Path) -> Moved:
    with _temporary() as folder:
        ready = spool(stream, image, folder)
        if _in_engine(engine, ready) is not None:
            return _moved(ready, path, present=True)
        with ready.open_archive() as archive:
            brought = engine.load_image(archive)
        if _in_engine(engine, ready) is None:
            raise ImageError(
                "image.load-mismatch",
                f"the engine loaded {ready.image_id} as {', '.join(brought) or 'nothing'}",
                fix="the engine changes images when it loads them and cannot be used for this",
            )
        return _moved(ready, path)


def _in_engine(engine: Engine, image: SpooledImage) -> ImageInfo | None:
    """By config digest, then by manifest digest: a containerd image store knows the latter."""
    return engine.inspect_image(image.image_id) or engine.inspect_image(image.manifest_digest)


def _moved(image: SpooledImage, path: Path, *, present: bool = False) -> Moved:
    return Moved(
        image_id=image.image_id,
        manifest_digest=image.manifest_digest,
        platform=image.platform,
        size=image.size,
        file=str(path),
        present=present,
    )


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sealbench-image-") as name:
        yield Path(name)
