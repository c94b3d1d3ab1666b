"""Read a CSV table of the code layout strictly, and digest it whatever the order of its rows.

UTF-8 without a byte-order mark, a header, LF or CRLF, every row as wide as the header. The digest
is of the rows in sorted order with their columns sorted: shuffled rows are the same table.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import NoReturn

from runner.datasets.lines import (
    BOM,
    MAX_ID_CHARS,
    FileDigest,
    check_id,
    open_inside,
    refuse,
    shown,
)

MAX_TABLE_BYTES = 1 << 30
_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A parsed table: ``rows[i]`` began on line ``lines[i]`` of ``path``.

    ``digest`` does not depend on the order of rows; ``raw_sha256`` is of the bytes on disk.
    """

    path: Path
    columns: tuple[str, ...]
    rows: list[list[str]] = field(repr=False)
    lines: list[int] = field(repr=False)
    digest: FileDigest
    raw_sha256: str

    def column(self, name: str) -> list[str]:
        """Return the values of a column, in row order."""
        position = self.columns.index(name)
        return [row[position] for row in self.rows]

    def ids(self, name: str) -> list[str]:
        """Return a column of ids; ``DataError`` for one that is no usable id or stands twice."""
        found: dict[str, int] = {}
        values = self.column(name)
        for value, line in zip(values, self.lines, strict=True):
            # Nearly all ids pass this at once; the others get the words.
            if not (value.isprintable() and value.strip() and len(value) <= MAX_ID_CHARS):
                check_id(value, self.path, line)
            if value in found:
                message = f"{name} {shown(value)} stands twice, first on line {found[value]}"
                self.refuse("data.duplicate-id", message, "give every row an id of its own", line)
            found[value] = line
        return values

    def refuse(self, code: str, message: str, fix: str, line: int | None = None) -> NoReturn:
        """Raise ``DataError`` for a line of this table."""
        refuse(code, message, fix=fix, path=self.path, line=line)


def read_table(folder: Path, root: Path, name: str, required: Sequence[str]) -> Table:
    """Read ``folder/name``, which may not lie outside ``root`` however links lead.

    ``required`` columns must be there; others may. ``name`` may hold a sub-folder and is what the
    digest is called. Raises ``DataError`` with ``file:line`` for every departure from the form.
    """
    path = folder / name
    fix = f"put the dataset there with {name.rpartition('/')[2]}, and name the data root"
    with open_inside(path, root, fix=f"{fix} with --data-root DIR (make: DATA_ROOT=DIR)") as stream:
        raw = stream.read(MAX_TABLE_BYTES + 1)
    text = _text(raw, path)
    columns, rows, lines = _parse(text, path)
    missing = [column for column in required if column not in columns]
    if missing:
        message = f"column {missing[0]} is missing; there are {', '.join(columns)}"
        refuse("data.missing-column", message, fix=f"add {missing[0]}", path=path, line=1)
    return Table(
        path=path,
        columns=columns,
        rows=rows,
        lines=lines,
        digest=table_digest(name, columns, rows),
        raw_sha256=hashlib.sha256(raw).hexdigest(),
    )


def _text(raw: bytes, path: Path) -> str:
    if len(raw) > MAX_TABLE_BYTES:
        limit = f"{MAX_TABLE_BYTES >> 20} MiB"
        refuse("data.large-table", f"more than {limit}", fix="split the dataset", path=path)
    if raw.startswith(BOM):
        message, fix = "starts with a byte-order mark", "save it as plain UTF-8"
        refuse("data.bom", message, fix=fix, path=path, line=1)
    if b"\0" in raw:
        message, fix = "has a NUL byte: UTF-16, or no text", "save it as plain UTF-8"
        refuse("data.nul", message, fix=fix, path=path)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8: byte {raw[error.start]:#04x}"
        refuse("data.not-utf-8", message, fix="convert the file to UTF-8", path=path, line=line)


def _parse(text: str, path: Path) -> tuple[tuple[str, ...], list[list[str]], list[int]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows, lines = [], []
    begun = 1
    try:
        for row in reader:
            rows.append(row)
            lines.append(begun)
            begun = reader.line_num + 1
    except csv.Error as error:
        message, fix = f"not CSV: {error}", "quote fields that hold commas, quotes or line breaks"
        refuse("data.bad-csv", message, fix=fix, path=path, line=reader.line_num)
    if not rows:
        refuse("data.empty", "no header", fix="add the header and rows", path=path)
    columns = tuple(rows.pop(0))
    lines.pop(0)
    for column in columns:
        if not _COLUMN.match(column) or columns.count(column) > 1:
            message = f"{shown(column)} is no column name, or stands twice"
            fix = "name columns by letters, digits and _"
            refuse("data.bad-column", message, fix=fix, path=path, line=1)
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(columns):
            message = f"{len(row)} fields where the header has {len(columns)}"
            fix = "give every row all columns; remove blank lines"
            refuse("data.ragged-row", message, fix=fix, path=path, line=line)
    return columns, rows, lines


def table_digest(name: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> FileDigest:
    """Digest sorted rows of sorted columns. No field holds a NUL, so that ending each field by one
    and each row by a line feed writes different tables differently."""
    order = sorted(range(len(columns)), key=columns.__getitem__)
    if order == list(range(len(columns))):
        lines = sorted(map("\0".join, rows))
    else:
        pick = itemgetter(*order) if len(order) > 1 else tuple
        lines = sorted("\0".join(pick(row)) for row in rows)
    data = "\0\n".join(["\0".join(sorted(columns)), *lines, ""]).encode("utf-8")
    return FileDigest(name=name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
