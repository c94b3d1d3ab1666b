"""Read a line-based data file strictly, and hash it in the same read.

Every refusal names the file, the line and what to do. What is accepted is narrow on purpose:
Python's own readers take a byte-order mark, duplicate keys, ``NaN`` and lone surrogates without
a word, and two readers that differ on those score two different datasets.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import orjson

from runner.errors import DataError, Where

#: Longest accepted line. A whole book is about 5 MB; a line beyond this is no text to retrieve.
MAX_LINE_BYTES = 64 << 20
MAX_ID_CHARS = 512
BOM = b"\xef\xbb\xbf"
_SHOWN_CHARS = 60
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,29}\Z")
_LINE_SEPARATORS = frozenset("\u2028\u2029")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """A file by content: its name inside the dataset's folder, SHA-256 in hex, size in bytes."""

    name: str
    sha256: str
    size: int


def shown(text: str) -> str:
    """Return a text for a message: quoted, escaped and cut."""
    cut = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
    return ascii(cut)


def refuse(code: str, message: str, *, fix: str, path: Path, line: int | None = None) -> NoReturn:
    """Raise ``DataError`` for a place in a data file."""
    raise DataError(code, message, fix=fix, where=Where(file=str(path), line=line))


def check_name(name: str, what: str) -> str:
    """Return a name that is safe as one path segment; raise ``DataError`` otherwise."""
    if _NAME.match(name):
        return name
    raise DataError(
        "data.bad-name",
        f"{shown(name)} cannot name a {what}",
        fix="use 1 to 30 characters of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
    )


def open_inside(path: Path, root: Path, *, fix: str) -> BinaryIO:
    """Open a regular file for reading, wherever links lead, as long as that is below ``root``.

    ``fix`` is the advice for a missing file. A fifo or a device never blocks the reader.
    """
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        refuse("data.missing", f"{path.name} is not there", fix=fix, path=path)
    if not target.is_relative_to(root.resolve()):
        refuse(
            "data.outside-root",
            f"{path.name} is a link that leaves the data root",
            fix="copy the file into the dataset's folder instead of linking to it",
            path=path,
        )
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(target, flags)
    except OSError as error:
        refuse("data.unreadable", f"cannot read it: {error.strerror}", fix=fix, path=path)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        refuse("data.not-a-file", f"{path.name} is not a regular file", fix=fix, path=path)
    return os.fdopen(descriptor, "rb")


class HashedLines:
    """Numbered text lines of one file; once they are exhausted, ``digest()`` says what was read.

    A line ends at LF; one CR before it is dropped, because published qrels come with CRLF (the
    digest is of the bytes as they lie on disk). Refused: a byte-order mark, blank lines, bytes
    that are not UTF-8, lines over ``MAX_LINE_BYTES``.
    """

    def __init__(self, path: Path, root: Path, *, name: str, fix: str) -> None:
        self._path, self._root, self._name, self._fix = path, root, name, fix
        self._hash, self._size, self._done = hashlib.sha256(), 0, False

    def __iter__(self) -> Iterator[tuple[int, str]]:
        with open_inside(self._path, self._root, fix=self._fix) as stream:
            number = 0
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                self._hash.update(line)
                self._size += len(line)
                yield number, self._text(line, number)
        self._done = True

    def digest(self) -> FileDigest:
        """Return the digest of the whole file; only after the last line was read."""
        if not self._done:
            raise RuntimeError("the file was not read to its end")
        return FileDigest(name=self._name, sha256=self._hash.hexdigest(), size=self._size)

    def _text(self, line: bytes, number: int) -> str:
        if number == 1 and line.startswith(BOM):
            self._refuse("data.bom", "starts with a byte-order mark", "save it as plain UTF-8", 1)
        if len(line) > MAX_LINE_BYTES:
            limit = f"{MAX_LINE_BYTES >> 20} MiB"
            self._refuse("data.long-line", f"line of more than {limit}", "split the text", number)
        body = line.removesuffix(b"\n").removesuffix(b"\r")
        if not body or body.isspace():
            self._refuse("data.blank-line", "blank line", "remove the line", number)
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"not UTF-8: byte {body[error.start]:#04x} at offset {error.start}"
            self._refuse("data.not-utf-8", message, "convert the file to UTF-8", number)

    def _refuse(self, code: str, message: str, fix: str, line: int) -> NoReturn:
        refuse(code, message, fix=fix, path=self._path, line=line)


class _DuplicateKey(ValueError):
    """A JSON object names one key twice; no reader agrees on which one counts."""


class _BadNumber(ValueError):
    """A number outside JSON: NaN, Infinity, or one that overflows to infinity."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKey(key)
            seen.add(key)
    return result


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _BadNumber(text)
    return value


def _constant(text: str) -> NoReturn:
    raise _BadNumber(text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_constant=_constant, strict=True
)


def _plain_object(text: str) -> dict[str, object] | None:
    """Return the object of a line that is certainly nothing but strings under distinct keys.

    Without a backslash no string hides a colon, so the colons of the text are those within strings
    and one a pair: a key that stands twice would leave one over.
    """
    if "\\" in text:
        return None
    try:
        value = orjson.loads(text)
    except ValueError:
        return None
    if type(value) is not dict:
        return None
    colons = len(value)
    for key, item in value.items():
        if type(item) is not str:
            return None
        colons += key.count(":") + item.count(":")
    return value if colons == text.count(":") else None


def parse_object(text: str, path: Path, line: int) -> dict[str, object]:
    """Return the JSON object on a line; raise ``DataError`` for anything that is not just that."""
    plain = _plain_object(text)
    if plain is not None:
        return plain
    try:
        value = _DECODER.decode(text)
    except _DuplicateKey as error:
        message, fix = f"key {shown(str(error))} stands twice", "keep one of the two"
        refuse("data.duplicate-key", message, fix=fix, path=path, line=line)
    except _BadNumber as error:
        message, fix = f"{shown(str(error))} is not a JSON number", "write a finite number"
        refuse("data.bad-number", message, fix=fix, path=path, line=line)
    except (ValueError, RecursionError) as error:
        why = getattr(error, "msg", None) or "nested too deeply or a number too long"
        fix = "write one JSON object a line"
        refuse("data.bad-json", f"not JSON: {why}", fix=fix, path=path, line=line)
    if not isinstance(value, dict):
        fix = "write one JSON object a line"
        refuse("data.not-an-object", "not a JSON object", fix=fix, path=path, line=line)
    return value


def text_field(row: dict[str, object], key: str, path: Path, line: int) -> str:
    """Return a string member of a row; raise ``DataError`` if absent, no string or not Unicode."""
    value = row.get(key)
    if not isinstance(value, str):
        state = "is missing" if key not in row else "is not a string"
        fix = f'write "{key}" as a JSON string'
        refuse("data.bad-field", f'"{key}" {state}', fix=fix, path=path, line=line)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        refuse(
            "data.lone-surrogate",
            f'"{key}" has half of a surrogate pair, which no UTF-8 file can hold',
            fix="repair the escape sequence",
            path=path,
            line=line,
        )
    return value


def check_id(value: str, path: Path, line: int) -> str:
    """Return a usable id; raise ``DataError`` for an empty, overlong or unprintable one."""
    if not value.strip():
        refuse("data.empty-id", "empty id", fix="give every row an id", path=path, line=line)
    if len(value) > MAX_ID_CHARS:
        message = f"id of {len(value)} characters; {MAX_ID_CHARS} are allowed"
        refuse("data.long-id", message, fix="shorten the id", path=path, line=line)
    if not value.isprintable() and any(map(_unprintable, value)):
        message = f"id {shown(value)} has a control character or a line separator"
        fix = "use printable characters in ids"
        refuse("data.bad-id", message, fix=fix, path=path, line=line)
    return value


def _unprintable(char: str) -> bool:
    return unicodedata.category(char) in {"Cc", "Cs"} or char in _LINE_SEPARATORS
