"""Layers -> an image: config, manifest and one archive that Docker and OCI tools both read.

All JSON is written canonically, so the image id (digest of the config) and the manifest digest are
functions of the layers and of the recipe. The archive is never on disk: it is read out of the
layers' own files as the engine takes it.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.canonical import canonical_bytes, sha256_label
from runner.imagebuild.layers import CREATED, SOURCE_DATE_EPOCH, Layer

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
USER = "65534:65534"
ENVIRONMENT = (
    "PATH=/usr/local/bin:/usr/bin",
    "LANG=C.UTF-8",
    "HOME=/tmp",
    # The root is read-only in a run; bytecode is in the layers already.
    "PYTHONDONTWRITEBYTECODE=1",
    # What a method printed before it was killed is in the log.
    "PYTHONUNBUFFERED=1",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A layer as a manifest names it, compressed or not; ``path`` holds exactly its bytes."""

    digest: str
    size: int
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedImage:
    """An image by the exact bytes of its config and manifest; ``layers`` bottom first."""

    config: bytes
    manifest: bytes
    layers: tuple[Layer, ...] | tuple[Blob, ...]

    @property
    def image_id(self) -> str:
        """Digest of the config: the id in a classic image store."""
        return sha256_label(self.config)

    @property
    def manifest_digest(self) -> str:
        """Digest of the OCI manifest: the id in a containerd image store."""
        return sha256_label(self.manifest)

    @property
    def size(self) -> int:
        """Bytes of all layers as stored."""
        return sum(layer.size for layer in self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(DescribedImage):
    """A finished image, not yet anywhere."""

    platform: str
    layers: tuple[Layer, ...]


def make_image(layers: Sequence[Layer], *, platform: str, labels: Mapping[str, str]) -> Image:
    """Describe an image of these layers, bottom first."""
    os_name, architecture = platform.split("/")
    config = canonical_bytes(
        {
            "architecture": architecture,
            "os": os_name,
            **({"variant": "v8"} if architecture == "arm64" else {}),
            "created": CREATED,
            "config": {
                "User": USER,
                "Env": list(ENVIRONMENT),
                "WorkingDir": "/",
                "Labels": dict(labels),
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [
                {"created": CREATED, "created_by": f"sealbench images build: {layer.name}"}
                for layer in layers
            ],
        }
    )
    manifest = image_manifest(config, [(layer.diff_id, layer.size) for layer in layers])
    return Image(platform=platform, config=config, manifest=manifest, layers=tuple(layers))


def image_manifest(config: bytes, layers: Iterable[tuple[str, int]]) -> bytes:
    """Return the canonical manifest of a config and uncompressed layers (digest, size)."""
    return canonical_bytes(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _descriptor(CONFIG_TYPE, sha256_label(config), len(config)),
            "layers": [_descriptor(LAYER_TYPE, digest, size) for digest, size in layers],
        }
    )


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def open_archive(image: Image) -> ArchiveStream:
    """Return the image as one tar: an OCI layout that is a ``docker save`` archive as well."""
    blobs = [Blob(digest=one.diff_id, size=one.size, path=one.path) for one in image.layers]
    return archive_of(image.config, image.manifest, image.platform, blobs)


def archive_of(
    config: bytes, manifest: bytes, platform: str, layers: Sequence[Blob]
) -> ArchiveStream:
    """``open_archive`` for an image that came from elsewhere; ``layers`` bottom first."""
    image_id, manifest_digest = sha256_label(config), sha256_label(manifest)
    os_name, architecture = platform.split("/")[:2]
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [
            {
                **_descriptor(_type_of(manifest), manifest_digest, len(manifest)),
                "platform": {"os": os_name, "architecture": architecture},
            }
        ],
    }
    saved = [
        {
            "Config": _blob(image_id),
            "RepoTags": None,
            "Layers": [_blob(layer.digest) for layer in layers],
        }
    ]
    parts: list[bytes | Path] = []
    for name, data in (
        ("oci-layout", canonical_bytes({"imageLayoutVersion": "1.0.0"})),
        ("index.json", canonical_bytes(index)),
        ("manifest.json", canonical_bytes(list(saved))),
        (_blob(image_id), config),
        (_blob(manifest_digest), manifest),
    ):
        parts += [_header(name, len(data)), data, _padding(len(data))]
    for layer in {layer.digest: layer for layer in layers}.values():
        parts += [_header(_blob(layer.digest), layer.size), layer.path, _padding(layer.size)]
    parts.append(bytes(2 * tarfile.BLOCKSIZE))
    return ArchiveStream(parts)


def _type_of(manifest: bytes) -> str:
    return str(json.loads(manifest).get("mediaType", MANIFEST_TYPE))


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, SOURCE_DATE_EPOCH, 0o644
    return member.tobuf(tarfile.USTAR_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


class ArchiveStream(io.RawIOBase):
    """Reads byte strings and whole files one after the other, as one file."""

    def __init__(self, parts: Sequence[bytes | Path]) -> None:
        self._waiting = list(reversed(parts))
        self._current: io.BufferedIOBase | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer
        while True:
            if self._current is None:
                if not self._waiting:
                    return 0
                part = self._waiting.pop()
                self._current = io.BytesIO(part) if isinstance(part, bytes) else part.open("rb")
            count = self._current.readinto(buffer)
            if count:
                return count
            self._current.close()
            self._current = None

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None
        super().close()
