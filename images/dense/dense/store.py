"""Embeddings on disk: an append-only file that survives a kill at any moment.

A header, then records of equal size: SHA-256 of the text, the vector, CRC-32 of both. Every append
is flushed and fsynced before anybody relies on it. What a kill left half written is cut off when
the file is opened again, and so is everything from the first damaged record on: an append-only file
is only trusted up to where it is whole.

One file holds the embeddings of one model under one set of settings; their digest is in its name
and in its header, so vectors of another model are never taken for one's own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from dense.vectors import Vectors

MAGIC = b"SBEMBED1"
HASH_BYTES = 32
_HEADER = len(MAGIC) + HASH_BYTES + 4 + 4


class StoreError(RuntimeError):
    """The file belongs to something else, or another process is writing it."""


def settings_digest(settings: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of settings (JSON values), whatever the order of their keys."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).digest()


class EmbeddingStore:
    """Vectors by text hash, for one model and one set of settings. Use as a context manager.

    ``folder`` None keeps everything in memory. ``dropped`` is the number of bytes that were cut
    off as torn or damaged.
    """

    def __init__(self, folder: Path | None, settings: Mapping[str, Any], dimension: int) -> None:
        self.dimension, self.dropped = dimension, 0
        self._digest = settings_digest(settings)
        self._places: dict[bytes, int] = {}
        self._blocks: list[Vectors] = []
        self._starts: list[int] = []
        self._count = 0
        self._descriptor: int | None = None
        self._record = np.dtype(
            [("key", f"V{HASH_BYTES}"), ("vector", "<f4", (dimension,)), ("crc", "<u4")]
        )
        if folder is not None:
            self.path = folder / f"embeddings-{self._digest.hex()[:16]}.bin"
            self._open()

    def __enter__(self) -> EmbeddingStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def take(self, keys: Sequence[bytes]) -> Vectors:
        """Return the vectors of known keys, one row each; ``KeyError`` for an unknown one."""
        places = [self._places[key] for key in keys]
        if not places:
            return np.empty((0, self.dimension), dtype=np.float32)
        return self._all()[places]

    def append(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        """Add vectors (one row a key); they are on the disk when this returns."""
        if vectors.shape != (len(keys), self.dimension):
            raise ValueError(f"{len(keys)} keys for vectors of shape {vectors.shape}")
        if self._descriptor is not None:
            records = np.empty(len(keys), dtype=self._record)
            for record, key, vector in zip(records, keys, vectors, strict=True):
                record["key"], record["vector"] = np.void(key), vector
                record["crc"] = zlib.crc32(record.tobytes()[:-4])
            _write(self._descriptor, records.tobytes())
            os.fsync(self._descriptor)
        self._adopt(keys, vectors)

    def _all(self) -> Vectors:
        if len(self._blocks) > 1:
            self._blocks = [np.concatenate(self._blocks)]
        return self._blocks[0]

    def _adopt(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        for offset, key in enumerate(keys):
            self._places[key] = self._count + offset
        self._blocks.append(np.array(vectors, dtype=np.float32))
        self._count += len(keys)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._load(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreError(f"{self.path.name} is being written by another process") from None
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _header(self) -> bytes:
        head = MAGIC + self._digest + self.dimension.to_bytes(4, "little")
        return head + zlib.crc32(head).to_bytes(4, "little")

    def _load(self, descriptor: int) -> None:
        data = self.path.read_bytes()
        header = self._header()
        if len(data) < _HEADER:  # new, or killed while its first bytes were written
            self.dropped = len(data)
            os.ftruncate(descriptor, 0)
            _write(descriptor, header)
            os.fsync(descriptor)
            _sync_folder(self.path.parent)
            return
        if data[:_HEADER] != header:
            raise StoreError(
                f"{self.path.name} does not hold embeddings of this model and settings"
            )
        records = self._whole_records(data)
        kept = _HEADER + records.nbytes
        if kept < len(data):
            self.dropped = len(data) - kept
            os.ftruncate(descriptor, kept)
            os.fsync(descriptor)
        if len(records):
            self._adopt([key.tobytes() for key in records["key"]], records["vector"])

    def _whole_records(self, data: bytes) -> Any:
        size = self._record.itemsize
        count = (len(data) - _HEADER) // size
        records = np.frombuffer(data, dtype=self._record, count=count, offset=_HEADER)
        view = memoryview(data)
        for number, stored in enumerate(records["crc"].tolist()):
            start = _HEADER + number * size
            if zlib.crc32(view[start : start + size - 4]) != stored:
                return records[:number]
        return records


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
