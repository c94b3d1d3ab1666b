"""Read the score files of a bundle for the labels in them; whoever wrote them may have lied.

Form is checked as far as labels depend on it. Everything else (order, quoting, numbers, line ends)
is checked to the byte when the files are written again from rows and labels.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn

from runner.datasets import lines
from runner.datasets.lines import MAX_ID_CHARS
from runner.errors import BundleError, DataError, Where
from runner.rows.read import file_lines
from runner.tasks.api import SealedFile, Unavailable

#: A larger score file is of a benchmark whose labels one wants to have anyway.
MAX_BYTES = 256 << 20
_FIX = "get the bundle again from its author"


def oversized(files: Sequence[SealedFile]) -> Unavailable | None:
    """Say which file is too large to be read for labels, if one is."""
    for file in files:
        if file.size > MAX_BYTES:
            limit = f"{MAX_BYTES >> 20} MiB"
            return Unavailable(reason=f"{file.path} has more than {limit}")
    return None


def read_table(file: SealedFile) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, fields) of every row, the header first; all are as wide as the header."""
    width = 0
    with file.open() as stream:
        reader = csv.reader(_lines(stream, file), strict=True)
        try:
            for row in reader:
                width = width or len(row)
                if len(row) != width:
                    refuse(file, f"{len(row)} fields, the header has {width}", reader.line_num)
                yield reader.line_num, row
        except csv.Error as error:
            refuse(file, f"not CSV: {error}", reader.line_num)
    if not width:
        refuse(file, "it has no header")


def header(rows: Iterator[tuple[int, list[str]]]) -> list[str]:
    """Take the first row of a table."""
    return next(rows)[1]


def check_id(file: SealedFile, line: int, what: str, identity: str) -> None:
    """Refuse an id that no loader of data would take."""
    if identity.isprintable() and identity.strip() and len(identity) <= MAX_ID_CHARS:
        return
    try:
        lines.check_id(identity, Path(file.path), line)
    except DataError as error:
        refuse(file, f"{what}: {error.message}", line)


def refuse(file: SealedFile, message: str, line: int | None = None) -> NoReturn:
    """Raise ``BundleError`` for a place in a score file."""
    where = Where(file=file.path, line=line)
    raise BundleError("bundle.sealed-labels", message, fix=_FIX, where=where)


def _lines(stream: BinaryIO, file: SealedFile) -> Iterator[str]:
    for number, line in enumerate(file_lines(stream), 1):
        if not line.endswith(b"\n") or b"\0" in line:
            refuse(file, "a line without an end, or with a NUL byte", number)
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError:
            refuse(file, "it is not UTF-8", number)
