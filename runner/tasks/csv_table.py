"""Columns of text -> the bytes of a CSV file, quickly where nothing needs quotes."""

from __future__ import annotations

from collections.abc import Sequence

#: Characters for which CSV needs quotes.
_QUOTED = frozenset(',"\r\n')


def csv_bytes(header: Sequence[str], columns: Sequence[Sequence[str]]) -> bytes:
    """Return a header and rows as UTF-8 with LF; ``columns`` are of equal length, two or more.

    To see that no field needs quotes costs less than to decide it field by field.
    """
    if any(len(column) != len(columns[0]) for column in columns):
        raise ValueError("columns of unequal length")
    rows = zip(*columns, strict=True)
    if all(_QUOTED.isdisjoint("".join(column)) for column in (header, *columns)):
        return "\n".join([*map(",".join, (header, *rows)), ""]).encode("utf-8")
    return "".join(",".join(map(_field, row)) + "\n" for row in (header, *rows)).encode("utf-8")


def _field(text: str) -> str:
    """As ``csv`` writes it, but for a CR: not every Python quotes one, and none reads it bare."""
    return text if _QUOTED.isdisjoint(text) else '"' + text.replace('"', '""') + '"'
