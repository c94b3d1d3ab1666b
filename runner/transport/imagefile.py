"""What images an archive holds: an OCI layout, what ``docker save`` writes, or both in one.

Every document is checked against the digest that names it before it is parsed. A name or tag in an
archive means nothing: images are told apart by the digest of their config and of their manifest.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from runner.canonical import sha256_label
from runner.errors import ImageError, Where
from runner.transport.tarindex import Section, index_tar, refuse

MAX_DOCUMENT = 4 << 20
MAX_LAYERS = 500
MAX_IMAGES = 100
MAX_DEPTH = 2  # an index of indexes is the most that builders write
MANIFESTS = frozenset(
    {
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    }
)
INDEXES = frozenset(
    {
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    }
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PART = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLayer:
    """One layer in an archive. ``digest`` of its bytes as stored is None where nothing says it;
    ``diff_id`` is that of its tar, uncompressed, as the config has it."""

    digest: str | None
    diff_id: str
    section: Section


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """One image in an archive; ``manifest`` is None in what only ``docker save`` wrote."""

    config: bytes
    manifest: bytes | None
    layers: tuple[StoredLayer, ...]

    @property
    def image_id(self) -> str:
        return sha256_label(self.config)

    @property
    def manifest_digest(self) -> str | None:
        return None if self.manifest is None else sha256_label(self.manifest)

    @property
    def platform(self) -> str:
        """``os/architecture``, with the variant where the config names one."""
        return platform_of(self.config)

    def answers(self, digests: frozenset[str]) -> bool:
        """Is this one of the images with these digests?"""
        return bool(digests & {self.image_id, self.manifest_digest})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """An open archive and the images in it."""

    stream: BinaryIO
    images: tuple[StoredImage, ...]

    def find(self, digests: frozenset[str]) -> StoredImage | None:
        """Return the image that has one of the digests, or None."""
        return next((image for image in self.images if image.answers(digests)), None)


@contextmanager
def open_image_file(path: Path) -> Iterator[ImageFile]:
    """Open an archive. ``ImageError`` for a missing, damaged or hostile one, naming the file."""
    try:
        with _open(path) as stream:
            length = os.fstat(stream.fileno()).st_size
            yield ImageFile(stream=stream, images=_Reader(stream, length).images())
    except ImageError as error:
        if error.where is None and error.code.startswith("archive."):
            error.where = Where(file=str(path))
        raise


def platform_of(config: bytes) -> str:
    """Return the platform in a config's bytes; ``ImageError`` where there is none."""
    document = _parse(config, "a config")
    parts = [document.get("os"), document.get("architecture"), document.get("variant")]
    found = [part for part in parts if part]
    if len(found) < 2 or not all(isinstance(p, str) and _PART.fullmatch(p) for p in found):
        refuse("archive.config", "a config names no platform")
    return "/".join(found)


def _open(path: Path) -> BinaryIO:
    try:
        # O_NONBLOCK: opening a fifo must not wait for somebody to write to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ImageError(
            "archive.missing",
            f"cannot open the image archive: {os.strerror(error.errno or 0).lower()}",
            fix="check the path",
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        refuse("archive.not-regular", "it is no regular file")
    stream = os.fdopen(descriptor, "rb")
    if stream.peek(2)[:2] == b"\x1f\x8b":
        stream.close()
        refuse("archive.compressed", "it is compressed as a whole")
    return stream


class _Reader:
    def __init__(self, stream: BinaryIO, length: int) -> None:
        self._stream = stream
        self._files = index_tar(stream, length)

    def images(self) -> tuple[StoredImage, ...]:
        found: dict[str, StoredImage] = {}
        if "index.json" in self._files:
            index = _parse(self._bytes("index.json"), "index.json")
            for image in self._of_index(index, MAX_DEPTH):
                found.setdefault(image.image_id, image)
        if "manifest.json" in self._files:
            saved = json_of(self._bytes("manifest.json"), "manifest.json")
            if not isinstance(saved, list) or len(saved) > MAX_IMAGES:
                refuse("archive.manifest", "manifest.json is no list of images")
            for entry in saved:
                image = self._saved(entry)
                found.setdefault(image.image_id, image)
        if not found:
            refuse("archive.empty", "it holds no image")
        return tuple(found.values())

    def _of_index(self, index: dict[str, Any], depth: int) -> Iterator[StoredImage]:
        entries = index.get("manifests")
        if not isinstance(entries, list) or len(entries) > MAX_IMAGES:
            refuse("archive.index", "an index without manifests, or with too many")
        for entry in entries:
            digest = _digest_of(entry)
            data = self._blob(digest)
            document = _parse(data, digest)
            kind = document.get("mediaType") or entry.get("mediaType")
            if kind in INDEXES:
                if not depth:
                    refuse("archive.index", "indexes within indexes")
                yield from self._of_index(document, depth - 1)
            elif kind in MANIFESTS and not _is_attestation(entry):
                yield self._of_manifest(data, document)

    def _of_manifest(self, data: bytes, document: dict[str, Any]) -> StoredImage:
        config = self._blob(_digest_of(document.get("config")))
        blobs = [_digest_of(layer) for layer in _list(document, "layers")]
        layers = tuple(
            StoredLayer(digest=digest, diff_id=diff_id, section=self._section(_blob_name(digest)))
            for digest, diff_id in zip(blobs, _diff_ids(config, len(blobs)), strict=True)
        )
        return StoredImage(config=config, manifest=data, layers=layers)

    def _saved(self, entry: Any) -> StoredImage:
        if not isinstance(entry, dict) or not isinstance(entry.get("Config"), str):
            refuse("archive.manifest", "manifest.json has an entry without a config")
        name = entry["Config"]
        config = self._bytes(name)
        claimed = name.rpartition("/")[2].removesuffix(".json")
        if re.fullmatch(r"[0-9a-f]{64}", claimed) and sha256_label(config) != f"sha256:{claimed}":
            refuse("archive.digest", f"{name} has another digest than its name says")
        files = [str(layer) for layer in _list(entry, "Layers")]
        layers = tuple(
            StoredLayer(digest=None, diff_id=diff_id, section=self._section(file))
            for file, diff_id in zip(files, _diff_ids(config, len(files)), strict=True)
        )
        return StoredImage(config=config, manifest=None, layers=layers)

    def _section(self, name: str) -> Section:
        found = self._files.get(name)
        if found is None:
            refuse("archive.incomplete", f"it lacks {name[:200]!r}")
        return found

    def _bytes(self, name: str) -> bytes:
        section = self._section(name)
        if section.size > MAX_DOCUMENT:
            refuse("archive.too-large", f"{name[:200]!r} has more than {MAX_DOCUMENT} bytes")
        self._stream.seek(section.offset)
        return self._stream.read(section.size)

    def _blob(self, digest: str) -> bytes:
        data = self._bytes(_blob_name(digest))
        if sha256_label(data) != digest:
            refuse("archive.digest", f"blob {digest} has another digest than its name says")
        return data


def _list(document: dict[str, Any], name: str) -> list[Any]:
    found = document.get(name)
    if not isinstance(found, list) or not 1 <= len(found) <= MAX_LAYERS:
        refuse("archive.manifest", f"an image without {name}, or with more than {MAX_LAYERS}")
    return found


def _diff_ids(config: bytes, count: int) -> list[str]:
    rootfs = _parse(config, "a config").get("rootfs")
    found = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(found, list) or len(found) != count:
        refuse("archive.config", "a config and its manifest disagree about the layers")
    for diff_id in found:
        if not isinstance(diff_id, str) or not _DIGEST.fullmatch(diff_id):
            refuse("archive.config", "a config with a layer without a SHA-256 digest")
    return found


def _digest_of(descriptor: Any) -> str:
    digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        refuse("archive.digest", "a part is not named by a SHA-256 digest")
    return digest


def _is_attestation(entry: dict[str, Any]) -> bool:
    """Builders store provenance as manifests for the platform ``unknown/unknown``."""
    platform = entry.get("platform")
    return isinstance(platform, dict) and platform.get("os") == "unknown"


def _blob_name(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _parse(data: bytes, what: str) -> dict[str, Any]:
    document = json_of(data, what)
    if not isinstance(document, dict):
        refuse("archive.not-json", f"{what} is no JSON object")
    return document


def json_of(data: bytes, what: str) -> Any:
    """Parse a document; ``ImageError`` for anything that two parsers could read differently."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key stands twice in one object")
        return found

    try:
        return json.loads(data, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        refuse("archive.not-json", f"{what} is not JSON: {error}")
