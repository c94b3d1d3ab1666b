"""Canonical bytes and digests: RFC 8785 for documents, SHA-256 for everything.

Refuses what does not survive a round trip through other readers: NaN, Infinity, integers beyond
+-(2**53 - 1), whole floats of 2**53 and more, and strings with lone surrogates.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import rfc8785

from runner.errors import BundleError

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
MAX_SAFE_INTEGER = 2**53 - 1
HASH_CHUNK = 1 << 20


def canonical_bytes(document: Mapping[str, object] | list[object]) -> bytes:
    """Return the RFC 8785 bytes of a small document; raise ``BundleError`` where none exist."""
    _refuse_unsafe_numbers(document, "$")
    try:
        return bytes(rfc8785.dumps(cast(Any, document)))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise BundleError(
            "canonical.unserialisable",
            f"document has no canonical form: {error}",
            fix="use only JSON values with text free of lone surrogates",
        ) from error


def digest_of(document: Mapping[str, object] | list[object]) -> str:
    """Return ``sha256:<hex>`` of the document's canonical bytes."""
    return sha256_label(canonical_bytes(document))


def sha256_label(data: bytes) -> str:
    """Return ``sha256:<hex>`` of bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> tuple[str, int]:
    """Return (hex digest, size in bytes) of a file, read in blocks."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while block := stream.read(HASH_CHUNK):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size


def _refuse_unsafe_numbers(value: object, path: str) -> None:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, int) and abs(value) > MAX_SAFE_INTEGER:
        _unsafe(path, value)
    elif isinstance(value, float):
        if not math.isfinite(value) or (value.is_integer() and abs(value) > MAX_SAFE_INTEGER):
            _unsafe(path, value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_unsafe_numbers(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_unsafe_numbers(item, f"{path}[{index}]")


def _unsafe(path: str, value: object) -> None:
    raise BundleError(
        "canonical.unsafe-number",
        f"{path} is {value!r}, which other JSON readers would change",
        fix="keep integers within +-(2**53 - 1) and floats finite",
    )
