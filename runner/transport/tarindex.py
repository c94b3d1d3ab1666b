"""Where the files of somebody's tar lie, found without unpacking anything.

Only what image archives need is understood: regular files, folders (skipped), links to files of
the same archive (old engines write them for layers that recur), long names. Everything else, and
everything that could be read in two ways, is refused. Nothing is ever written under a name from an
archive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from runner.errors import ImageError

BLOCK = 512
MAX_MEMBERS = 10_000  # an engine writes about five a layer, and allows some 127 layers
MAX_NAME = 255
MAX_HEADER = 64 << 10  # bytes of an extended header
MAX_TRAILER = 1 << 20
_NAME, _SIZE, _SUM, _KIND, _LINK = (
    slice(0, 100), slice(124, 136), slice(148, 156), 156, slice(157, 257),
)  # fmt: skip
_MAGIC, _PREFIX = slice(257, 263), slice(345, 500)
_FILE, _FOLDER = frozenset(b"\x000"), ord("5")
_HARD, _SYMBOLIC = ord("1"), ord("2")
_PAX, _LONG_NAME, _LONG_LINK = ord("x"), ord("L"), ord("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Bytes of a file: where they start, and how many."""

    offset: int
    size: int


def index_tar(stream: BinaryIO, length: int) -> dict[str, Section]:
    """Return the regular files of a tar of ``length`` bytes by name, links resolved.

    ``ImageError`` for anything but a plain, complete archive. Reads headers only.
    """
    return _Indexer(stream, length).run()


class _Indexer:
    def __init__(self, stream: BinaryIO, length: int) -> None:
        self._stream, self._length = stream, length
        self._position = 0
        self._files: dict[str, Section] = {}
        self._links: dict[str, str] = {}
        self._folders: set[str] = set()
        self._extended: dict[str, str] = {}

    def run(self) -> dict[str, Section]:
        count = 0
        while (header := self._block()).strip(b"\0"):
            count += 1
            if count > MAX_MEMBERS:
                refuse("archive.too-many", f"more than {MAX_MEMBERS} members")
            self._member(header)
        self._check_end()
        return {**self._files, **self._resolved()}

    def _member(self, header: bytes) -> None:
        _check_sum(header)
        kind = header[_KIND]
        size = _octal(header[_SIZE], "size")
        if kind in (_PAX, _LONG_NAME, _LONG_LINK):
            self._extend(kind, size)
            return
        extended, self._extended = self._extended, {}
        size = _decimal(extended["size"]) if "size" in extended else size
        name = _clean(extended.get("path") or _name_of(header))
        if kind in _FILE:
            self._claim(name)
            self._files[name] = Section(offset=self._position, size=size)
            self._skip(size)
        elif kind == _FOLDER:
            self._folders.add(name)
        elif kind in (_HARD, _SYMBOLIC):
            target = extended.get("linkpath") or _text(header[_LINK])
            base = name.rpartition("/")[0] if kind == _SYMBOLIC else ""
            self._claim(name)
            self._links[name] = _join(base, target)
        else:
            refuse("archive.kind", f"{name!r} is neither file nor folder nor link")

    def _extend(self, kind: int, size: int) -> None:
        if size > MAX_HEADER:
            refuse("archive.header", f"an extended header of {size} bytes")
        data = self._exactly(size)
        self._skip(0, padding=-size % BLOCK)
        if kind == _PAX:
            self._extended |= _pax_records(data)
        else:
            key = "path" if kind == _LONG_NAME else "linkpath"
            self._extended[key] = _text(data)

    def _claim(self, name: str) -> None:
        if name in self._files or name in self._links:
            refuse("archive.duplicate", f"{name!r} is there twice")

    def _resolved(self) -> Mapping[str, Section]:
        for name, target in self._links.items():
            if target not in self._files:
                refuse("archive.link", f"{name!r} leads to no file of the archive")
        return {name: self._files[target] for name, target in self._links.items()}

    def _block(self) -> bytes:
        return self._exactly(BLOCK)

    def _exactly(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) != count:
            refuse("archive.truncated", "the archive ends too early")
        self._position += count
        return data

    def _skip(self, size: int, *, padding: int | None = None) -> None:
        self._position += size + (-size % BLOCK if padding is None else padding)
        if self._position > self._length:
            refuse("archive.truncated", "the archive ends too early")
        self._stream.seek(self._position)

    def _check_end(self) -> None:
        """A second archive behind the end would be read by some programs and not by others."""
        rest = self._length - self._position
        if rest > MAX_TRAILER or self._exactly(rest).strip(b"\0"):
            refuse("archive.trailing", "more follows behind the end of the archive")


def _check_sum(header: bytes) -> None:
    blank = header[: _SUM.start] + b" " * 8 + header[_SUM.stop :]
    if _octal(header[_SUM], "checksum") != sum(blank):
        refuse("archive.header", "not a tar archive, or damaged: a header's checksum is wrong")


def _octal(field: bytes, what: str) -> int:
    digits = field.strip(b" \0")
    if not digits or set(digits) - set(b"01234567"):
        refuse("archive.header", f"not a tar archive, or damaged: {what} {field[:12]!r}")
    return int(digits, 8)


def _decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        refuse("archive.header", f"size {text[:20]!r} in an extended header")
    return int(text)


def _name_of(header: bytes) -> str:
    name = _text(header[_NAME])
    prefix = _text(header[_PREFIX]) if header[_MAGIC] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    try:
        return field.partition(b"\0")[0].decode("ascii")
    except UnicodeDecodeError:
        refuse("archive.name", "a name that is not ASCII")


def _clean(name: str) -> str:
    return _join("", name)


def _join(base: str, name: str) -> str:
    """Resolve a name within the archive; one that leaves it is refused."""
    parts = base.split("/") if base else []
    if name.startswith("/") or not name.isprintable():
        refuse("archive.name", f"{name[:100]!r} is no name within an archive")
    for part in name.split("/"):
        if part == "..":
            if not parts:
                refuse("archive.name", f"{name[:100]!r} leaves the archive")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    joined = "/".join(parts)
    if len(joined) > MAX_NAME:
        refuse("archive.name", f"a name of {len(joined)} characters")
    return joined


def _pax_records(data: bytes) -> dict[str, str]:
    """Return those records that matter; ``length key=value\\n`` each."""
    found: dict[str, str] = {}
    while data:
        length, blank, _ = data.partition(b" ")
        if not blank or not length.isdigit() or not len(length) < int(length) <= len(data):
            refuse("archive.header", "a broken extended header")
        record, data = data[len(length) + 1 : int(length)], data[int(length) :]
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n"):
            refuse("archive.header", "a broken extended header")
        if key.startswith(b"GNU.sparse"):
            refuse("archive.kind", "a sparse file")
        if key in (b"path", b"linkpath", b"size"):
            found[key.decode()] = _text(value[:-1])
    return found


def refuse(code: str, message: str) -> NoReturn:
    """Raise the error of an archive that cannot be trusted or understood."""
    raise ImageError(
        code,
        f"the image archive is refused: {message}",
        fix="make it again with `sealbench images export` or `docker save`, uncompressed",
    )
