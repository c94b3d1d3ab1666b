"""Turns a TREC run file into rows, so that an image made for trec_eval runs unchanged.

Six columns: ``query Q0 document rank score tag``. The rank is ignored, as trec_eval does: the score
orders. The lines of a query stand together; one that comes back later is a fault, since waiting
for it would need the whole file in memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import BinaryIO

from runner.rows.faults import MAX_BAD_LINES, FaultLog, RowRefused
from runner.schema_faults import shown

MAX_TREC_LINE = 4096
#: A ranking of more documents would be no valid row.
MAX_TREC_DOCUMENTS = 1_000_000
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def trec_to_rows(stream: BinaryIO, faults: FaultLog) -> Iterator[bytes]:
    """Yield one row line a query; a query with a bad line gets none and ``faults`` says why.

    Reads a seekable file twice: the first time for queries that come back. A fault's line number
    is that of the TREC file. Ends early once ``faults`` is exhausted. Latency is null: TREC files
    have none.
    """
    start = stream.tell()
    scattered = _scattered(stream)
    stream.seek(start)
    group = _Group(None)
    for number, line in enumerate(_lines(stream), 1):
        query = _query(line)
        if query is None:
            group.bad = True  # the line could have been this query's,
        if query is None or query != group.query:
            after_unknown = group.query is None and group.bad
            yield from group.row()
            group = _Group(query)
            group.bad = after_unknown  # or the next one's
        try:
            document, score = _columns(line)
            if query in scattered:
                raise RowRefused("rows.trec-order", "put the lines of a query together")
            group.add(document, score)
        except RowRefused as refused:
            # One line of unknown reading spoils its query's ranking: none is better than a guess.
            group.bad = True
            faults.add(number, refused.code, refused.message, size=len(line))
            if faults.exhausted:
                return
    yield from group.row()


class _Group:
    """The lines of one query; None stands for a line that names no query."""

    def __init__(self, query: str | None) -> None:
        self.query = query
        self.bad = False
        self._pairs: list[tuple[str, float]] = []

    def add(self, document: str, score: float) -> None:
        if len(self._pairs) >= MAX_TREC_DOCUMENTS:
            raise RowRefused("rows.trec-depth", f"more than {MAX_TREC_DOCUMENTS} documents")
        if not self.bad:
            self._pairs.append((document, score))

    def row(self) -> Iterator[bytes]:
        import orjson

        if self.query is not None and not self.bad:
            row = {
                "query_id": self.query,
                "ranking": self._pairs,
                "latency_ms": None,
                "error": None,
            }
            yield orjson.dumps(row) + b"\n"


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield each line, or the first ``MAX_TREC_LINE`` bytes of a longer one, without an LF."""
    while line := stream.readline(MAX_TREC_LINE):
        yield line
        while line and not line.endswith(b"\n"):
            line = stream.readline(MAX_TREC_LINE)


def _query(line: bytes) -> str | None:
    """Return the query that a line is about; None where the line does not tell for certain."""
    fields = line.split(None, 1)
    if not fields or not line.endswith(b"\n"):
        return None
    try:
        return fields[0].decode("utf-8")
    except UnicodeDecodeError:
        return None


def _scattered(stream: BinaryIO) -> set[str]:
    seen: set[str] = set()
    scattered: set[str] = set()
    current: str | None = None
    unknown = 0
    for line in _lines(stream):
        query = _query(line)
        if query is None:
            unknown += 1
            if unknown > MAX_BAD_LINES:
                break  # nor will the second reading come further
            continue
        if query == current:
            continue
        if query in seen:
            scattered.add(query)
        seen.add(query)
        current = query
    return scattered


def _columns(line: bytes) -> tuple[str, float]:
    """Return (document, score) of a whole line."""
    if not line.endswith(b"\n"):
        if len(line) >= MAX_TREC_LINE:
            raise RowRefused("rows.line-too-long", f"a line of more than {MAX_TREC_LINE} bytes")
        raise RowRefused("rows.half-line", "the last line has no end: it may be cut off")
    fields = line.split()
    if len(fields) != 6:
        raise RowRefused("rows.trec-columns", f"{len(fields)} columns where 6 belong")
    text = fields[4]
    if not _NUMBER.fullmatch(text) or not math.isfinite(score := float(text)):
        found = shown(text.decode("ascii", "backslashreplace"))
        raise RowRefused("rows.non-finite", f"score {found} is no finite number")
    try:
        fields[0].decode("utf-8")
        return fields[2].decode("utf-8"), score
    except UnicodeDecodeError as error:
        raise RowRefused("rows.utf8", "an id is no UTF-8") from error
