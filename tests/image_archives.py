"""Image archives made by hand, right and wrong ones, and an engine that loads and saves them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from runner.engine.api import ImageInfo
from runner.engine.fake import FakeEngine, Script, fake_image
from runner.transport.imagefile import open_image_file

OCI = "application/vnd.oci.image"


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def blob(name: str) -> str:
    return "blobs/" + name.replace(":", "/")


def layer_tar(text: str = "hello") -> bytes:
    return tar_of({"etc/motd": text.encode()})


def tar_of(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def config_of(*layers: bytes, architecture: str = "amd64", **members: Any) -> bytes:
    document = {
        "os": "linux",
        "architecture": architecture,
        "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        **members,
    }
    return json.dumps(document).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The files of an archive, to be changed before they are written."""

    files: Mapping[str, bytes]
    image_id: str

    def write(self, path: Path) -> Path:
        path.write_bytes(tar_of(self.files))
        return path

    def with_file(self, name: str, data: bytes | None) -> Archive:
        kept = {key: value for key, value in self.files.items() if key != name}
        return replace(self, files=kept if data is None else {**kept, name: data})


def saved(*layers: bytes, **members: Any) -> Archive:
    """What ``docker save`` of a classic store writes."""
    config = config_of(*layers, **members)
    hexes = digest(config).partition(":")[2]
    names = [f"{index}/layer.tar" for index in range(len(layers))]
    manifest = [{"Config": f"{hexes}.json", "RepoTags": None, "Layers": names}]
    files = dict(zip(names, layers, strict=True))
    files |= {f"{hexes}.json": config, "manifest.json": json.dumps(manifest).encode()}
    return Archive(files=files, image_id=digest(config))


def layout(*layers: bytes, compressed: bool = False, **members: Any) -> Archive:
    """An OCI layout of one image."""
    config = config_of(*layers, **members)
    blobs = [gzip.compress(layer, mtime=0) if compressed else layer for layer in layers]
    kind = f"{OCI}.layer.v1.tar" + ("+gzip" if compressed else "")
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": entry(f"{OCI}.config.v1+json", config),
            "layers": [entry(kind, data) for data in blobs],
        }
    ).encode()
    index = {"schemaVersion": 2, "manifests": [entry(f"{OCI}.manifest.v1+json", manifest)]}
    files = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps(index).encode(),
        **{blob(digest(data)): data for data in (config, manifest, *blobs)},
    }
    return Archive(files=files, image_id=digest(config))


def entry(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest(data), "size": len(data)}


class LoadingEngine(FakeEngine):
    """A fake engine whose store is empty at first, and holds what is loaded into it.

    ``by_manifest`` names images by their manifest digest, as a containerd image store does.
    """

    def __init__(self, *, by_manifest: bool = False, script: Script | None = None) -> None:
        super().__init__(images=[], default=script)
        self.store: dict[str, bytes] = {}
        self._by_manifest = by_manifest

    def load_image(self, archive: BinaryIO) -> tuple[str, ...]:
        import tempfile

        data = archive.read()
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            file.write(data)
            file.flush()
            with open_image_file(Path(file.name)) as held:
                (image,) = held.images
        name = image.image_id
        if self._by_manifest and image.manifest_digest is not None:
            name = image.manifest_digest
        self.hold(fake_image(name, "/".join(image.platform.split("/")[:2])), data)
        return (name,)

    def hold(self, image: ImageInfo, archive: bytes) -> None:
        assert self._images is not None
        self._images.append(image)
        self.store[image.image_id] = archive

    def save_image(self, image_id: str) -> Iterator[bytes]:
        yield self.store[image_id]
