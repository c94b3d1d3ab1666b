"""The source files of a code dataset: ``files.csv`` says which there are, with their digests.

Required columns are ``id``, ``path`` (below the dataset's folder) and ``sha256`` (of the raw
bytes); ``bytes`` is checked where it is there, every other column is metadata. Raw bytes count: a
CRLF twin is another source. Texts stay on disk and are read, and hashed, again when they are used.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

from runner.datasets.code_tables import Table, read_table
from runner.datasets.code_text import content_key, is_text, normalised, text_of
from runner.datasets.lines import open_inside, refuse, shown

FILES = "files.csv"
#: A source beyond this is no program that a person wrote; comparing two takes their product.
MAX_SOURCE_BYTES = 8 << 20
MAX_PATH_CHARS = 512
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HEX = re.compile(r"[0-9a-f]{64}\Z")
_RESTORE = "restore the published file, or correct files.csv"


class Source(NamedTuple):
    """One source: path as in files.csv, SHA-256 of its bytes, digest of its normalised text."""

    path: str
    sha256: str
    key: bytes


class SourceReader:
    """Reads sources below one folder, each a regular file that lies below ``root``.

    A folder on the way is resolved once for all its files: to resolve each file's path anew took
    longer than reading it. Whatever is no plain file in such a folder goes the careful way.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder, self._root = folder, root.resolve()
        self._resolved: dict[str, str | None] = {}

    def read(self, path: str) -> bytes:
        """Return a source's bytes; ``DataError`` where it is absent, outside or too large."""
        data = self._quick(path)
        if data is None:
            with open_inside(self._folder / path, self._root, fix=_RESTORE) as stream:
                data = stream.read(MAX_SOURCE_BYTES + 1)
        if len(data) > MAX_SOURCE_BYTES:
            limit = f"a source of more than {MAX_SOURCE_BYTES >> 20} MiB"
            fix = "leave it out of the dataset"
            refuse("data.large-source", limit, fix=fix, path=self._folder / path)
        return data

    def refuse_changed(self, path: str, expected: str, data: bytes) -> NoReturn:
        """Raise ``DataError`` for a source whose bytes are not those that its digest is of."""
        found = hashlib.sha256(data).hexdigest()
        refuse(
            "data.changed",
            f"a source has sha256 {found} ({len(data)} bytes), files.csv says {expected}",
            fix=_RESTORE,
            path=self._folder / path,
        )

    def _quick(self, path: str) -> bytes | None:
        parent, _, name = path.rpartition("/")
        if parent not in self._resolved:
            self._resolved[parent] = self._resolve(parent)
        folder = self._resolved[parent]
        if folder is None:
            return None
        try:
            descriptor = os.open(f"{folder}/{name}", _FLAGS)
        except OSError:  # a link perhaps, which may lead to somewhere below the root
            return None
        try:
            found = os.fstat(descriptor)
            return _all(descriptor, found.st_size) if stat.S_ISREG(found.st_mode) else None
        finally:
            os.close(descriptor)

    def _resolve(self, parent: str) -> str | None:
        try:
            folder = (self._folder / parent).resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        return str(folder) if folder.is_relative_to(self._root) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All sources of a dataset by id, in file order; ``reader`` reads them again."""

    reader: SourceReader
    table: Table
    by_id: Mapping[str, Source] = field(repr=False)
    empty: int
    undecodable: int

    def text(self, identity: str) -> str:
        """Read a source; ``DataError`` when its bytes are not those that were loaded."""
        source = self.by_id[identity]
        data = self.reader.read(source.path)
        if hashlib.sha256(data).hexdigest() != source.sha256:
            self.reader.refuse_changed(source.path, source.sha256, data)
        return text_of(data)

    def duplicates(self, ids: Iterable[str]) -> int:
        """Return how many of these have the bytes of another one before them."""
        digests = [self.by_id[identity].sha256 for identity in ids]
        return len(digests) - len(set(digests))

    def listing(self) -> Iterator[tuple[str, str]]:
        """Yield (path, SHA-256) of files.csv and of every source."""
        yield FILES, self.table.raw_sha256
        for source in self.by_id.values():
            yield source.path, source.sha256

    def payload(self) -> str:
        """Return the SHA-256 of ``id TAB digest LF`` over all sources, sorted by id."""
        digest = hashlib.sha256()
        for identity in sorted(self.by_id):
            digest.update(f"{identity}\t{self.by_id[identity].sha256}\n".encode())
        return digest.hexdigest()


def load_sources(folder: Path, root: Path, prefix: str = "") -> Sources:
    """Read files.csv and every file that it lists.

    ``prefix`` (such as ``validation/``) is where below ``folder`` they lie. Raises ``DataError``
    naming the file for anything absent, changed, escaping, too large or no text.
    """
    base = folder / prefix if prefix else folder
    table = read_table(folder, root, f"{prefix}{FILES}", ("id", "path", "sha256"))
    reader = SourceReader(base, root)
    found: dict[str, Source] = {}
    paths: set[str] = set()
    empty = undecodable = 0
    sizes = table.column("bytes") if "bytes" in table.columns else [""] * len(table.rows)
    rows = zip(
        table.ids("id"), table.column("path"), table.column("sha256"), sizes, table.lines,
        strict=True,
    )  # fmt: skip
    for identity, path, sha256, size, line in rows:
        _check_row(table, path, sha256, line)
        if path in paths:
            message = f"path {shown(path)} stands twice"
            table.refuse("data.duplicate-path", message, "list every file once", line)
        paths.add(path)
        data = reader.read(path)
        if hashlib.sha256(data).hexdigest() != sha256 or size not in ("", str(len(data))):
            reader.refuse_changed(path, sha256, data)
        if not is_text(data):
            refuse(
                "data.not-text",
                "a source with NUL bytes or a UTF-16 mark is no text",
                fix="convert it to UTF-8, or leave it out of the dataset",
                path=base / path,
            )
        text = text_of(data)
        shared = normalised(text)
        empty += not shared
        undecodable += text.encode("utf-8") != data
        found[identity] = Source(path, sha256, content_key(shared))
    if not found:
        table.refuse("data.empty", "no sources", "list the sources")
    return Sources(reader=reader, table=table, by_id=found, empty=empty, undecodable=undecodable)


def tree_checksum(parts: Iterable[tuple[str, str]]) -> str:
    """Return ``sha256:`` of ``<hex>  <path>`` lines sorted by path, as `sha256sum` writes them."""
    digest = hashlib.sha256()
    for path, sha256 in sorted(parts, key=lambda part: part[0].encode()):
        digest.update(f"{sha256}  {path}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _check_row(table: Table, path: str, sha256: str, line: int) -> None:
    segments = path.split("/")
    unsafe = (
        not path
        or len(path) > MAX_PATH_CHARS
        or "\\" in path
        or not path.isprintable()
        or any(segment in ("", ".", "..") for segment in segments)
    )
    if unsafe:
        message = f"path {shown(path)} is not a plain path below the dataset's folder"
        fix = "write relative paths with /, without . and .."
        table.refuse("data.unsafe-path", message, fix, line)
    if not _HEX.match(sha256):
        message = f"{shown(sha256)} is no SHA-256 in hex"
        table.refuse("data.bad-digest", message, "write 64 hexadecimal digits", line)


def _all(descriptor: int, size: int) -> bytes:
    """Read a file to its end, or one byte beyond the limit of a source."""
    pieces, left = [], MAX_SOURCE_BYTES + 1
    while left and (piece := os.read(descriptor, min(size + 1, left))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
