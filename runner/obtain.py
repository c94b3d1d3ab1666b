"""Images that a sealed plan needs -> the engine, each proven by its digest, from wherever it is.

In this order: it is there already; an archive that the reviewer was given; the registry that the
pin names, by manifest digest; a rebuild from ``images/``, where the digest proves that it is the
same image. A source that fails is remembered, and told when none of them has the image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runner.engine.api import Engine
from runner.engine.images import find_image, meets
from runner.errors import ImageError
from runner.imagelock import Locks
from runner.model import ImagePin
from runner.transport.transfer import load_wanted

ENGINE, ARCHIVE, REGISTRY, BUILT = "engine", "archive", "registry", "built"
#: Builds the named image of ``images/`` and loads it; what came out is looked at afterwards.
Rebuild = Callable[[Engine, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where images may come from besides the engine. ``archives``: a folder or one file."""

    archives: Path | None = None
    rebuild: Rebuild | None = None
    locks: Locks = field(default_factory=Locks)
    tell: Callable[[str], None] = lambda _text: None


def obtain(engine: Engine, pins: Iterable[ImagePin], sources: Sources) -> dict[ImagePin, str]:
    """Return where each image came from; afterwards the engine has all of them.

    The pins are those that the original recorded, with every digest that it knew. Raises
    ``ImageError`` for the first that is for another platform or is nowhere.
    """
    info = engine.info()
    platform = f"{info.os}/{info.architecture}"
    distinct = list(dict.fromkeys(pins))
    for pin in distinct:
        if pin.platform.split("/")[:2] != platform.split("/"):
            raise ImageError(
                "image.platform",
                f"image {pin.name} is for {pin.platform}, and this engine runs {platform}",
                fix=f"reproduce on a {pin.platform} machine: the platform is part of the identity",
            )
    return {pin: _obtain_one(engine, pin, sources) for pin in distinct}


def _obtain_one(engine: Engine, pin: ImagePin, sources: Sources) -> str:
    problems: list[str] = []
    for source, attempt in _attempts(engine, pin, sources):
        try:
            attempt()
        except ImageError as error:
            problems.append(f"{source}: {error}")
        found = find_image(engine, pin)
        if found is not None and meets(found, pin):
            if source != ENGINE:
                sources.tell(f"image {pin.name}: {source}, {found.image_id}")
            return source
    tried = "; ".join(problems) or "no other source was named"
    raise ImageError(
        "image.nowhere",
        f"image {pin.name} ({pin.digest}) is not to be had: {tried}",
        fix="get its archive (`sealbench images export`) and name the folder with --images",
    )


def _attempts(
    engine: Engine, pin: ImagePin, sources: Sources
) -> Iterator[tuple[str, Callable[[], object]]]:
    yield ENGINE, lambda: None
    if sources.archives is not None:
        archives = sources.archives
        yield ARCHIVE, lambda: _from_archives(engine, pin, archives)
    if pin.repository is not None and pin.manifest_digest is not None:
        repository, digest = pin.repository, pin.manifest_digest
        yield REGISTRY, lambda: engine.pull_image(repository, digest)
    name = _recipe_of(pin, sources.locks)
    if sources.rebuild is not None and name is not None:
        rebuild = sources.rebuild
        yield BUILT, lambda: rebuild(engine, name)


def _from_archives(engine: Engine, pin: ImagePin, place: Path) -> None:
    digests = frozenset(d for d in (pin.image_id, pin.manifest_digest) if d)
    files = sorted(place.glob("*.tar")) if place.is_dir() else [place]
    problems: list[str] = []
    for file in files:
        try:
            if load_wanted(engine, file, digests) is not None:
                return
            problems.append(f"{file.name} holds another image")
        except ImageError as error:
            problems.append(str(error))
    raise ImageError(
        "image.no-archive",
        "; ".join(problems) or f"no *.tar in {place}",
        fix="get the archive of this digest",
    )


def _recipe_of(pin: ImagePin, locks: Locks) -> str | None:
    """Return the name under which the published lock has the image; only then can a rebuild be it.

    Names in a bundle are for people: one that means another image here is not built for nothing.
    """
    wanted = {pin.image_id, pin.manifest_digest} - {None}
    for name, platforms in locks.published.images.items():
        entry = platforms.get(pin.platform)
        if entry is not None and wanted & {entry.image_id, entry.manifest_digest}:
            return name
    return None
