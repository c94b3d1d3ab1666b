"""Data files that are not read line by line as they lie on disk: gzipped lines, whole JSON files.

The digest is always of the bytes on disk. What a file unpacks to is capped, whatever it claims.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from runner.datasets.lines import (
    BOM,
    MAX_LINE_BYTES,
    FileDigest,
    HashedLines,
    open_inside,
    parse_object,
    refuse,
)
from runner.errors import DataError

MAX_PACKED_BYTES = 256 << 20
MAX_UNPACKED_BYTES = 1 << 30
GZIP = ".gz"


def lines_of(path: Path, root: Path, *, name: str, fix: str) -> HashedLines:
    """Return the lines of a file, unpacked where its name ends in .gz."""
    kind = GzipLines if path.suffix == GZIP else HashedLines
    return kind(path, root, name=name, fix=fix)


class GzipLines(HashedLines):
    """``HashedLines`` of a gzipped file: the digest is of the packed bytes."""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        data, found = read_bytes(self._path, self._root, name=self._name, fix=self._fix)
        unpacked = number = 0
        with _GzipErrors(self._path), gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                unpacked += len(line)
                _check_unpacked(unpacked, self._path)
                yield number, self._text(line, number)
        self._hash, self._size = hashlib.sha256(data), found.size
        self._done = True


def read_bytes(path: Path, root: Path, *, name: str, fix: str) -> tuple[bytes, FileDigest]:
    """Return a file's bytes as they lie on disk; ``DataError`` beyond 256 MiB."""
    with open_inside(path, root, fix=fix) as stream:
        data = stream.read(MAX_PACKED_BYTES + 1)
    if len(data) > MAX_PACKED_BYTES:
        limit = f"{MAX_PACKED_BYTES >> 20} MiB"
        refuse("data.too-large", f"more than {limit}", fix="split the file", path=path)
    return data, FileDigest(name=name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def read_object(
    path: Path, root: Path, *, name: str, fix: str
) -> tuple[dict[str, object], FileDigest]:
    """Return the JSON object that a whole file is, unpacked where its name ends in .gz."""
    data, found = read_bytes(path, root, name=name, fix=fix)
    if path.suffix == GZIP:
        with _GzipErrors(path), gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            data = stream.read(MAX_UNPACKED_BYTES + 1)
            _check_unpacked(len(data), path)
    return parse_bytes(data, path), found


def parse_bytes(data: bytes, path: Path) -> dict[str, object]:
    """Return the JSON object in some bytes; ``DataError`` for anything that is not just that.

    Keys may be ids of people, so a message never repeats one.
    """
    if data.startswith(BOM):
        fix = "save it as plain UTF-8"
        refuse("data.bom", "starts with a byte-order mark", fix=fix, path=path, line=1)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"not UTF-8: byte {data[error.start]:#04x} at offset {error.start}"
        refuse("data.not-utf-8", message, fix="convert the file to UTF-8", path=path)
    try:
        return parse_object(text, path, 1)
    except DataError as error:
        if error.code == "data.duplicate-key":
            fix = "keep one of the two"
            refuse("data.duplicate-key", "a key stands twice in one object", fix=fix, path=path)
        raise


class _GzipErrors:
    """Turn what a damaged gzip file raises into a ``DataError`` that names the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
            fix = "get the published file again"
            refuse("data.bad-gzip", f"damaged gzip file: {error}", fix=fix, path=self._path)


def _check_unpacked(size: int, path: Path) -> None:
    if size > MAX_UNPACKED_BYTES:
        limit = f"{MAX_UNPACKED_BYTES >> 20} MiB"
        refuse("data.too-large", f"unpacks to more than {limit}", fix="split the file", path=path)
