"""``images export|import|push|pull``: images as files and in registries, always by digest."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from runner import keys
from runner.bundle.documents import parse_canonical
from runner.bundle.read import open_bundle
from runner.commands.output import emit, table
from runner.commands.verifying import bundle_folder, trust_of
from runner.engine.docker import DockerEngine
from runner.engine.images import prove_image
from runner.errors import UsageError
from runner.imagelock import host_platform, load_locks, resolve_image
from runner.model import ImagePin
from runner.plan_document import plan_from_document
from runner.progress_text import size_text
from runner.transport.registry import Registry
from runner.transport.transfer import (
    Moved,
    archive_name,
    export_image,
    import_file,
    taken_from_engine,
)


def export(arguments: Namespace) -> int:
    """Write images as canonical OCI archives, one file each."""
    pins = [_pin(text) for text in arguments.names]
    if arguments.bundle is not None:
        pins += _pins_of(arguments)
    if not pins:
        raise UsageError("usage.no-image", "no image is named", fix="name one, or give --bundle")
    with _engine() as engine:
        moved = [
            export_image(engine, pin, arguments.out / archive_name(pin))
            for pin in dict.fromkeys(pins)
        ]
    return _answer(arguments, moved)


def import_(arguments: Namespace) -> int:
    """Load archives into the engine; every byte is held against its digest first."""
    wanted = frozenset(arguments.expect or ())
    with _engine() as engine:
        moved = [one for file in arguments.files for one in import_file(engine, file, wanted)]
    return _answer(arguments, moved)


def push(arguments: Namespace) -> int:
    """Push an image under its manifest digest; prints how to pin it."""
    pin = _pin(arguments.name)
    credentials = None
    if arguments.credentials is not None:
        credentials = keys.read_secret_file(arguments.credentials).decode().strip()
    registry = Registry(arguments.repository, credentials)
    with _engine() as engine, taken_from_engine(engine, pin) as image:
        digest = registry.push(image)
        image_id = image.image_id
    reference = f"{arguments.repository}@{digest}"
    document = {"reference": reference, "image_id": image_id, "manifest_digest": digest}
    emit(arguments, document, f"pushed {image_id}\npin it as {reference}")
    return 0


def pull(arguments: Namespace) -> int:
    """Pull an image by its manifest digest and prove that it is the one for this platform."""
    if "@" not in arguments.reference:
        raise UsageError(
            "usage.not-pinned",
            f"{arguments.reference!r} is no repository@sha256:<manifest digest>",
            fix="pin the digest: a tag may be another image tomorrow",
        )
    pin = _pin(arguments.reference)
    if arguments.expect is not None:
        pin = replace(pin, image_id=arguments.expect)
    with _engine() as engine:
        found = prove_image(engine, pin, host_platform())
    document = {
        "image_id": found.image_id,
        "manifest_digest": pin.manifest_digest,
        "platform": found.platform,
        "size_bytes": found.size_bytes,
    }
    emit(arguments, document, f"pulled {pin.digest}\nimage id {found.image_id} ({found.platform})")
    return 0


def _pin(text: str) -> ImagePin:
    return resolve_image(text, load_locks(), host_platform())


def _pins_of(arguments: Namespace) -> list[ImagePin]:
    """The pins of a bundle's plan, with the image ids that it recorded."""
    with (
        ExitStack() as stack,
        open_bundle(
            bundle_folder(arguments, stack),
            protocol_id=None,
            trust=trust_of(arguments),
            allow_unsigned=arguments.allow_unsigned,
        ) as view,
    ):
        plan = plan_from_document(
            parse_canonical(view.read_verified("plan.json"), kind="plan", file="plan.json")
        )
        listed = parse_canonical(
            view.read_verified("images.json"), kind="images", file="images.json"
        )["images"]
    ids = {name: entry["image_id"] for entry in listed for name in entry["methods"]}
    return [
        replace(method.image, image_id=ids[method.name])
        for method in plan.methods
        if method.image is not None and method.name in ids
    ]


@contextmanager
def _engine() -> Iterator[DockerEngine]:
    engine = DockerEngine()
    try:
        yield engine
    finally:
        engine.close()


def _answer(arguments: Namespace, moved: list[Moved]) -> int:
    rows = [
        (
            one.image_id,
            one.platform,
            size_text(one.size),
            "was there" if one.present else "done",
            _short(one.file),
        )
        for one in moved
    ]
    head = ("image id", "platform", "size", "", "archive")
    emit(arguments, {"images": [asdict(one) for one in moved]}, table(head, rows))
    return 0


def _short(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file
