"""Rows in the form in which they are compared: all that a method said, none of what was measured.

Two executions of one method never take equally long, so ``latency_ms`` is left out; that is the
only member. What remains is written with sorted keys and without white space. Rows are told apart
by their key, the member that stands first in their schema's ``required``; their order in a file
carries no meaning, for a task may be answered in any order.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runner.schemas import load_schema

#: Members of a row that say how long something took.
MEASURED = frozenset({"latency_ms"})
DIGEST_BYTES = 16  # of one row, to find those that differ; 2**-64 that two of 2**32 collide
_PAIR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A row without its numbers, and the numbers: rows of one shape can be compared by value.

    Lists of [id, number] pairs are taken in the order of the ids: scores alone decide a ranking.
    """

    digest: bytes
    numbers: array[float]


def key_field(kind: str) -> str:
    """Return the member that tells rows of a kind (such as ``row-retrieval``) apart."""
    return str(load_schema(kind)["required"][0])


def parse_row(line: bytes) -> dict[str, Any]:
    """Return a valid row without what was measured."""
    import orjson

    row: dict[str, Any] = orjson.loads(line)
    return {name: value for name, value in row.items() if name not in MEASURED}


def row_bytes(row: dict[str, Any]) -> bytes:
    """Return the canonical bytes of a row that ``parse_row`` returned."""
    import orjson

    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


def row_digest(row: dict[str, Any]) -> bytes:
    """Return the first bytes of the SHA-256 of a row's canonical bytes."""
    return hashlib.sha256(row_bytes(row)).digest()[:DIGEST_BYTES]


def shape_of(row: dict[str, Any]) -> Shape:
    """Take the numbers out of a row."""
    numbers: array[float] = array("d")
    skeleton = {name: _skeleton(row[name], numbers) for name in sorted(row)}
    return Shape(digest=row_digest(skeleton), numbers=numbers)


def _skeleton(value: Any, numbers: array[float]) -> Any:
    if isinstance(value, dict):
        return {name: _skeleton(value[name], numbers) for name in sorted(value)}
    if isinstance(value, list):
        return [_skeleton(item, numbers) for item in _by_id(value)]
    if isinstance(value, int | float) and not isinstance(value, bool):
        numbers.append(float(value))
        return 0
    return value


def _by_id(items: list[Any]) -> list[Any]:
    pairs = all(
        isinstance(item, list) and len(item) == _PAIR and isinstance(item[0], str) for item in items
    )
    return sorted(items, key=lambda item: str(item[0])) if pairs else items


class RowsDigest:
    """The digest of a set of rows, whatever their order; takes whole lines as they are read."""

    def __init__(self, kind: str) -> None:
        self._key = key_field(kind)
        self._rows: list[tuple[str, bytes]] = []

    def add(self, lines: bytes) -> None:
        """Take in some whole valid lines."""
        self.add_lines(lines.splitlines())

    def add_lines(self, lines: Iterable[bytes]) -> None:
        """Take in valid lines."""
        for line in lines:
            row = parse_row(line)
            self._rows.append((str(row[self._key]), row_digest(row)))

    def hexdigest(self) -> str:
        """Return the SHA-256 over all rows' digests in the order of their keys."""
        total = hashlib.sha256()
        for _, digest in sorted(self._rows):
            total.update(digest)
        return total.hexdigest()
