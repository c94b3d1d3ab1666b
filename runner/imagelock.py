"""Which image is meant: a name of the lock, or a digest -> an ``ImagePin``. No tag gets through.

The published lock says what everybody builds or loads; a local lock says what a rebuild on this
machine came to when that was something else. The local one wins for runs, and the pin says so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.canonical import Json
from runner.errors import ImageError, Where
from runner.files import read_regular
from runner.model import ImagePin
from runner.schema_faults import suggest
from runner.schemas import validate

MAX_LOCK_BYTES = 4 << 20
_ROOT = Path(__file__).resolve().parent.parent
RECIPES = _ROOT / "images"
PUBLISHED_LOCK = RECIPES / "images.lock.json"
LOCAL_LOCK = _ROOT / ".cache" / "images" / "images.local.json"
#: Machine names of the kernel -> those of container images; the rest are the same.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm/v7", "i686": "386"}

#: As much of an image id as its name says where there is no other.
_SHOWN = len("sha256:") + 12

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BARE_HEX = re.compile(r"[0-9a-fA-F]{64}")
_DOMAIN = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*")
_RESTORE = "restore the file, or write it anew with `sealbench images lock`"
_FORGET = "delete the file: it only remembers what was built here"
_HOW_TO_PIN = (
    "pin by digest: `docker image inspect --format '{{.Id}} {{.RepoDigests}}' IMAGE` prints "
    "sha256:<image id> and repository@sha256:<manifest digest>; write one of them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of an image: digest of its uncompressed tar, and that tar's size in bytes."""

    name: str
    diff_id: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LockEntry:
    """One image on one platform, as a build recorded it."""

    image_id: str
    manifest_digest: str | None = None
    layers: tuple[Layer, ...] = ()
    inputs_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodDeclaration:
    """A method that an image declares; ``config`` has every setting with its default."""

    command: tuple[str, ...]
    config: Mapping[str, Json]
    cache: bool
    tasks: tuple[str, ...]
    declares: Mapping[str, Json] = field(default_factory=dict)  # mode, backend, exact, ...
    module: bool = False  # it takes one; settings that are not declared are the module's own


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLock:
    """One lock file: image name -> platform -> entry, image name -> method name -> declaration."""

    images: Mapping[str, Mapping[str, LockEntry]]
    methods: Mapping[str, Mapping[str, MethodDeclaration]]


_EMPTY = ImageLock(images={}, methods={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Locks:
    """The published lock, and the local one of images that came out different here."""

    published: ImageLock = field(default=_EMPTY)
    local: ImageLock = field(default=_EMPTY)

    def names(self) -> list[str]:
        """Return the names of all images, sorted."""
        return sorted({*self.published.images, *self.local.images})


def host_platform() -> str:
    """Return the platform of images that this machine's engine runs, such as ``linux/amd64``."""
    machine = os.uname().machine
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def load_locks(published: Path = PUBLISHED_LOCK, local: Path | None = LOCAL_LOCK) -> Locks:
    """Read the locks; one that does not exist locks nothing.

    Raises ``ImageError`` for a lock that is malformed or unreadable.
    """
    there = {path: load_lock(path) for path in (published, local) if path and path.exists()}
    return Locks(
        published=there.get(published, _EMPTY),
        local=there.get(local, _EMPTY) if local else _EMPTY,
    )


def load_lock(path: Path) -> ImageLock:
    """Read one lock file; raise ``ImageError`` where it is absent or malformed."""
    try:
        raw = read_regular(path, MAX_LOCK_BYTES + 1)
    except OSError as error:
        raise ImageError(
            "image.no-lock",
            f"cannot read the image lock: {error.strerror}",
            fix="run where images/images.lock.json is, or `sealbench images lock`",
            where=Where(file=str(path)),
        ) from error
    return parse_lock(raw, path)


def parse_lock(raw: bytes, path: Path) -> ImageLock:
    """Check the bytes of a lock file; ``path`` is only for messages."""
    try:
        if len(raw) > MAX_LOCK_BYTES:
            raise ValueError(f"more than {MAX_LOCK_BYTES} bytes")
        data = json.loads(raw, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise ImageError(
            "image.bad-lock",
            f"the image lock is not JSON: {error}",
            fix=_FORGET if path == LOCAL_LOCK else _RESTORE,
            where=Where(file=str(path)),
        ) from error
    validate("images-lock", data, where_file=str(path), error_class=ImageError)
    return ImageLock(
        images={
            name: {platform: _entry(entry) for platform, entry in platforms.items()}
            for name, platforms in data["images"].items()
        },
        methods={
            image: {name: _declaration(value) for name, value in methods.items()}
            for image, methods in data["methods"].items()
        },
    )


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _entry(entry: Mapping[str, Any]) -> LockEntry:
    return LockEntry(
        image_id=entry["image_id"],
        manifest_digest=entry.get("manifest_digest"),
        layers=tuple(Layer(**layer) for layer in entry.get("layers", ())),
        inputs_sha256=entry.get("inputs_sha256"),
    )


def _declaration(value: Mapping[str, Any]) -> MethodDeclaration:
    return MethodDeclaration(
        command=tuple(value["command"]),
        config=value["config"],
        cache=value["cache"],
        tasks=tuple(value["tasks"]),
        declares=value.get("declares", {}),
        module=value.get("module", False),
    )


def resolve_image(text: str, locks: Locks, platform: str) -> ImagePin:
    """Return the pin of an image as a manifest names it: a lock entry's name,
    ``repository@sha256:<manifest digest>`` or ``sha256:<image id>``.

    Raises ``ImageError`` for a tag, an unknown name, a malformed digest, and an image that is not
    locked for ``platform`` (such as ``linux/amd64``).
    """
    if "@" in text:
        return _by_manifest_digest(text, locks, platform)
    if text.lower().startswith("sha256:"):
        return _by_image_id(text, locks, platform)
    for lock, published in ((locks.local, False), (locks.published, True)):
        entry = lock.images.get(text, {}).get(platform)
        if entry is not None:
            return _pin(text, entry, platform, published or _is_published(entry, text, locks))
    platforms = {**locks.published.images.get(text, {}), **locks.local.images.get(text, {})}
    if platforms:
        raise ImageError(
            "image.platform",
            f"image {text!r} is not locked for {platform}, only for {', '.join(sorted(platforms))}",
            fix="run on such a machine, or build the image here: `sealbench images build`",
        )
    raise _not_a_pin(text, locks)


def _is_published(entry: LockEntry, name: str, locks: Locks) -> bool:
    entries = locks.published.images.get(name, {}).values()
    return any(entry.image_id == other.image_id for other in entries)


def declared_methods(pin: ImagePin, locks: Locks) -> Mapping[str, MethodDeclaration]:
    """Return the methods that an image declares in the lock that it was found in, by name."""
    order = (locks.published, locks.local) if pin.published else (locks.local, locks.published)
    return next((lock.methods[pin.name] for lock in order if pin.name in lock.methods), {})


def image_differs(text: str, pin: ImagePin) -> bool:
    """Is a pin certainly not what ``text`` of a manifest resolves to, whatever the lock was?

    A digest must be the pin's own; of a name nothing is known but that the pin has it.
    """
    repository, at, digest = text.partition("@")
    if at:
        return (repository, digest) != (pin.repository, pin.manifest_digest)
    if text.startswith("sha256:"):
        return pin.image_id != text
    return pin.name != text


def is_undeclared(text: str, pin: ImagePin) -> bool:
    """Is a pin what no lock knew when ``text`` was resolved, so that it declares no method?"""
    repository, at, _ = text.partition("@")
    if at:
        return pin.image_id is None and pin.name == repository
    return text.startswith("sha256:") and pin.name == text[:_SHOWN]


def _by_manifest_digest(text: str, locks: Locks, platform: str) -> ImagePin:
    repository, _, digest = text.partition("@")
    _check_digest(digest, text)
    if not _REPOSITORY.fullmatch(repository):
        tag = re.search(r":[A-Za-z0-9_][A-Za-z0-9._-]*$", repository)
        fix = (
            f"write {repository[: tag.start()]}@{digest}" if tag else "write repository@sha256:..."
        )
        raise ImageError("image.bad-repository", f"{repository!r} is no repository name", fix=fix)
    for name, entry, published in _entries(locks, platform):
        if entry.manifest_digest == digest:
            # The lock knows its image id: the method's identity is then the same by either pin.
            return _pin(name, entry, platform, published, repository)
    return ImagePin(
        name=repository, manifest_digest=digest, repository=repository, platform=platform
    )


def _by_image_id(text: str, locks: Locks, platform: str) -> ImagePin:
    _check_digest(text, text)
    for name, entry, published in _entries(locks, platform):
        if entry.image_id == text:
            return _pin(name, entry, platform, published)
    # An image that only somebody's engine has: nothing says where others get it.
    return ImagePin(name=text[:_SHOWN], image_id=text, platform=platform, published=False)


def _entries(locks: Locks, platform: str) -> list[tuple[str, LockEntry, bool]]:
    return [
        (name, platforms[platform], published)
        for lock, published in ((locks.published, True), (locks.local, False))
        for name, platforms in sorted(lock.images.items())
        if platform in platforms
    ]


def _pin(
    name: str, entry: LockEntry, platform: str, published: bool, repository: str | None = None
) -> ImagePin:
    return ImagePin(
        name=name,
        image_id=entry.image_id,
        manifest_digest=entry.manifest_digest,
        repository=repository,
        platform=platform,
        published=published,
    )


def _check_digest(digest: str, text: str) -> None:
    if _DIGEST.fullmatch(digest):
        return
    problem = "is no digest: sha256: and 64 of 0-9 a-f are expected"
    fix = _HOW_TO_PIN
    if _DIGEST.fullmatch(digest.lower()):
        fix = f"write it in lower case: {text.lower()}"
    elif digest.startswith("sha256:"):
        problem += f", there are {len(digest) - 7} characters after the colon"
    raise ImageError("image.bad-digest", f"{digest!r} {problem}", fix=fix)


def _recipes() -> list[str]:
    """Names of the images that can be built here, locked or not."""
    return sorted(recipe.parent.name for recipe in RECIPES.glob("*/image.toml"))


def _not_a_pin(text: str, locks: Locks) -> ImageError:
    if _BARE_HEX.fullmatch(text):
        fix = f"write sha256:{text.lower()}"
        return ImageError("image.bad-digest", f"{text!r} lacks the prefix sha256:", fix=fix)
    if ":" in text or "/" in text:
        message = f"{text!r} names an image by {'tag' if ':' in text else 'repository only'}"
        message += ", which may be another image tomorrow"
        return ImageError("image.tag", message, fix=_HOW_TO_PIN)
    names = locks.names()
    if text in _recipes():
        message = f"image {text!r} has a recipe, images/{text}/image.toml, and is not locked yet"
        fix = f"`sealbench images build {text}`, then `sealbench images lock {text}`"
        return ImageError("image.unknown", message, fix=f"{fix}; or {_HOW_TO_PIN}")
    message = f"no image {text!r} in the lock{suggest(text, [*names, *_recipes()])}"
    known = f"use one of: {', '.join(names)}" if names else "make one: `sealbench images lock`"
    return ImageError("image.unknown", message, fix=f"{known}; or {_HOW_TO_PIN}")
