"""One image out of an archive, every byte checked while it is copied into a folder of ours.

What is used afterwards is the copy, so nobody can change the archive between check and use. An
image from an OCI layout keeps its manifest and its layers as they are, compressed or not. One that
only ``docker save`` wrote gets the canonical manifest of its uncompressed layers, so that the same
image gives the same archive whichever engine saved it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from runner.bundle import durable
from runner.errors import StorageError, Where
from runner.imagebuild.oci import Blob, DescribedImage, archive_of, image_manifest
from runner.transport.imagefile import StoredImage, StoredLayer, platform_of
from runner.transport.tarindex import refuse

CHUNK = 1 << 20
#: No image that anybody runs a benchmark in unpacks to more; a bomb does.
MAX_UNPACKED = 64 << 30
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW = 31  # zlib's code for a gzip frame


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledImage(DescribedImage):
    """An image whose layers are files of ours; all digests are proven."""

    layers: tuple[Blob, ...]

    @property
    def platform(self) -> str:
        return platform_of(self.config)

    def open_archive(self) -> BinaryIO:
        """Return the image as one canonical tar."""
        stream = archive_of(self.config, self.manifest, self.platform, self.layers)
        return cast(BinaryIO, stream)


def spool(stream: BinaryIO, image: StoredImage, folder: Path) -> SpooledImage:
    """Copy an image's layers into ``folder`` and prove them.

    Raises ``ImageError`` for a layer that is not what manifest and config say, ``StorageError``
    when the disk is full.
    """
    _check_room(folder, image.layers)
    layers: list[Blob] = []
    done: dict[str, Blob] = {}
    for layer in image.layers:
        blob = done.get(layer.diff_id)
        if blob is None or (layer.digest is not None and blob.digest != layer.digest):
            blob = _copy(stream, layer, folder / f"layer-{len(done):03d}-{len(layers):03d}")
            done[layer.diff_id] = blob
        layers.append(blob)
    manifest = image.manifest or image_manifest(
        image.config, [(layer.digest, layer.size) for layer in layers]
    )
    return SpooledImage(config=image.config, manifest=manifest, layers=tuple(layers))


def _copy(stream: BinaryIO, layer: StoredLayer, target: Path) -> Blob:
    stored, unpacked = hashlib.sha256(), _Unpacked()
    left = layer.section.size
    stream.seek(layer.section.offset)
    with durable.storage_errors(target):
        descriptor = durable.create_file(target)
        try:
            while left:
                block = stream.read(min(left, CHUNK))
                if not block:
                    refuse("archive.truncated", "it became shorter while it was read")
                left -= len(block)
                stored.update(block)
                unpacked.update(block)
                # Of a saved image the tar itself is kept, for only its digest is known.
                durable.write_all(descriptor, block)
        finally:
            os.close(descriptor)
    unpacked.check_end()
    digest = f"sha256:{stored.hexdigest()}"
    if layer.digest is not None and digest != layer.digest:
        refuse("archive.digest", f"a layer is {digest}, and its manifest says {layer.digest}")
    if unpacked.diff_id != layer.diff_id:
        message = f"a layer unpacks to {unpacked.diff_id}, and its config says {layer.diff_id}"
        refuse("archive.digest", message)
    if layer.digest is None and digest != layer.diff_id:
        refuse("archive.compressed", "a layer without a manifest is compressed")
    return Blob(digest=digest, size=layer.section.size, path=target)


class _Unpacked:
    """The digest of a layer's tar, of which the compressed bytes are given piece by piece."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._inflate: zlib._Decompress | None = None
        self._begun = False
        self._size = 0

    def update(self, block: bytes) -> None:
        if not self._begun:
            self._begun = True
            if block.startswith(_ZSTD):
                refuse("archive.compressed", "a layer is compressed by zstd, not by gzip")
            if block.startswith(_GZIP):
                self._inflate = zlib.decompressobj(_GZIP_WINDOW)
        if self._inflate is None:
            self._digest.update(block)
            return
        while block:
            try:
                piece = self._inflate.decompress(block, CHUNK)
            except zlib.error as error:
                refuse("archive.compressed", f"a layer's gzip stream is broken: {error}")
            self._size += len(piece)
            if self._size > MAX_UNPACKED:
                refuse("archive.too-large", f"a layer unpacks to more than {MAX_UNPACKED} bytes")
            self._digest.update(piece)
            block = self._inflate.unconsumed_tail
            if self._inflate.eof and (block or self._inflate.unused_data):
                refuse("archive.trailing", "bytes follow behind a layer's gzip stream")

    def check_end(self) -> None:
        if self._inflate is None:
            return
        self._digest.update(self._inflate.flush())
        if not self._inflate.eof:
            refuse("archive.truncated", "a layer's gzip stream ends too early")

    @property
    def diff_id(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"


def _check_room(folder: Path, layers: Sequence[StoredLayer]) -> None:
    with durable.storage_errors(folder):
        free = shutil.disk_usage(folder).free
    needed = sum(layer.section.size for layer in layers)
    if needed > free:
        raise StorageError(
            "storage.full",
            f"the image needs {needed} bytes for a while, and {free} are free",
            fix="free some space, or set TMPDIR to a folder with room",
            where=Where(file=str(folder)),
        )
