"""Two sets of rows of one unit -> which differ, by how much, and the first of them side by side.

Rows are read as often as needed instead of being kept: memory holds a digest a row, the numbers of
those rows that differ, and the few that are shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from runner.rows.form import Shape, key_field, parse_row, row_digest, shape_of

#: Opens the rows of one side anew: whole valid lines, each key once.
Lines = Callable[[], Iterable[bytes]]
MAX_SHOWN = 5  # differing rows of one unit that are shown
MAX_TEXT = 300  # characters of a value that is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDifference:
    """The first place at which two rows of one key differ; ``None`` on the side without the row.

    ``place`` is a path such as ``ranking[3]``; the values are JSON texts, shortened.
    """

    key: str
    place: str
    original: str | None
    reproduction: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsComparison:
    """``compared`` keys of either side: ``differing`` are not the same, ``beyond`` of these not
    within the tolerance either. ``largest`` is the largest move of a number between rows of one
    shape, None where there was none to compare."""

    compared: int
    differing: int
    beyond: int
    largest: float | None
    first: tuple[RowDifference, ...]


def compare_rows(
    original: Lines, reproduction: Lines, kind: str, tolerance: float | None
) -> RowsComparison:
    """Compare by key. ``tolerance`` is absolute; None counts no difference of numbers."""
    key = key_field(kind)
    before = {name: row_digest(row) for name, row in _rows(original, key)}
    count = len(before)
    differing: dict[str, None] = {}
    for name, row in _rows(reproduction, key):
        found = before.pop(name, None)
        if found is None:
            count += 1
        if found != row_digest(row):
            differing[name] = None
    differing |= dict.fromkeys(before)  # rows that only the original has
    if not differing:
        return RowsComparison(compared=count, differing=0, beyond=0, largest=None, first=())
    beyond, largest = _beyond(original, reproduction, key, (set(differing), tolerance))
    shown = beyond or differing
    wanted = set(islice((name for name, _ in _rows(original, key) if name in shown), MAX_SHOWN))
    wanted |= set(islice((name for name in shown if name not in wanted), MAX_SHOWN - len(wanted)))
    return RowsComparison(
        compared=count,
        differing=len(differing),
        beyond=len(beyond),
        largest=largest,
        first=tuple(_side_by_side(original, reproduction, key, wanted)),
    )


def _rows(lines: Lines, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in lines():
        row = parse_row(line)
        yield str(row[key]), row


def _beyond(
    original: Lines, reproduction: Lines, key: str, what: tuple[set[str], float | None]
) -> tuple[dict[str, None], float | None]:
    """Return the keys whose rows differ by more than the tolerance, and the largest move."""
    differing, tolerance = what
    before: dict[str, Shape] = {
        name: shape_of(row) for name, row in _rows(original, key) if name in differing
    }
    beyond: dict[str, None] = {}
    moves: list[float] = []
    for name, row in _rows(reproduction, key):
        if name not in differing:
            continue
        then, now = before.pop(name, None), shape_of(row)
        if then is None or then.digest != now.digest:
            beyond[name] = None
            continue
        move = max(
            (abs(a - b) for a, b in zip(then.numbers, now.numbers, strict=True)), default=0.0
        )
        moves.append(move)
        if tolerance is not None and move > tolerance:
            beyond[name] = None
    return beyond | dict.fromkeys(before), max(moves, default=None)


def _side_by_side(
    original: Lines, reproduction: Lines, key: str, wanted: set[str]
) -> Iterator[RowDifference]:
    before = {name: row for name, row in _rows(original, key) if name in wanted}
    after = {name: row for name, row in _rows(reproduction, key) if name in wanted}
    for name in (*before, *(name for name in after if name not in before)):
        place, one, other = first_difference(before.get(name), after.get(name))
        yield RowDifference(
            key=shortened(name), place=shortened(place), original=one, reproduction=other
        )


def first_difference(one: Any, other: Any, place: str = "") -> tuple[str, str | None, str | None]:
    """Return (path, text, text) of the first place at which two JSON values differ; pure.

    A missing row is None; both texts are those of the whole values where there is no difference.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        for name in (*one, *(name for name in other if name not in one)):
            if one.get(name) != other.get(name):
                path = f"{place}.{name}" if place else str(name)
                return first_difference(one.get(name), other.get(name), path)
    if isinstance(one, list) and isinstance(other, list):
        for index in range(max(len(one), len(other))):
            left, right = (side[index] if index < len(side) else None for side in (one, other))
            if left != right:
                path = f"{place}[{index}]"
                nested = all(isinstance(item, list) and len(item) > 2 for item in (left, right))
                if nested:
                    return first_difference(left, right, path)
                return path, _text(left), _text(right)
    return shortened(place or "row"), _text(one), _text(other)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return shortened(json.dumps(value, ensure_ascii=True, allow_nan=False))


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text of at most ``limit`` characters, marked where it was cut."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
