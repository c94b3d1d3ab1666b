"""Write the score artifact of a unit: which documents it ranked where, and what they are worth.

``query_id,document_id,relevance,score``: ranked order, cut at the protocol's depth, queries in the
order of split ``all``, LF, floats as Python's ``repr``. Ids and numbers only, never a text.
"""

from __future__ import annotations

import csv
import hashlib
import io
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import TYPE_CHECKING

from runner.datasets.lines import FileDigest

if TYPE_CHECKING:
    from runner.metrics.ranks import RankedBlock

HEADER = "query_id,document_id,relevance,score\n"
_NOT_SEEN = -1
#: Characters for which CSV needs quotes; ids have no line ends.
_QUOTED = frozenset(',"')


class ScoreArtifact:
    """Takes rows as they come and writes them in query order; memory holds two numbers a query.

    Rows wait in an unnamed file beside the artifact, because methods answer in any order.
    """

    def __init__(
        self,
        path: Path,
        queries: Sequence[str],
        qrels: Mapping[str, Mapping[str, int]],
        top_k: int,
        *,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """Write to ``path``, which must not exist yet, in the order of ``queries``.

        ``names`` maps ids of queries and documents to those that are written, where they differ.
        """
        self._names = names or {}
        self._path, self._qrels, self._top_k = path, qrels, top_k
        self._index = {query: position for position, query in enumerate(queries)}
        self._starts = array("q", [_NOT_SEEN]) * len(queries)
        self._sizes = array("q", [0]) * len(queries)
        self._waiting = TemporaryFile(dir=path.parent)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> ScoreArtifact:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._waiting.close()

    def add(self, block: RankedBlock) -> None:
        """Take in the rows of a block; each query comes once and is one of ``queries``."""
        end = self._waiting.tell()
        for position, row in enumerate(block.rows):
            data = self._lines(row.query_id, block.top(position, self._top_k))
            query = self._index[row.query_id]
            self._starts[query], self._sizes[query] = end, len(data)
            self._waiting.write(data)
            end += len(data)

    def save(self) -> FileDigest:
        """Write the artifact and return its digest; ``OSError`` where that fails."""
        header = HEADER.encode()
        digest, size = hashlib.sha256(header), len(header)
        with self._path.open("xb") as target:
            target.write(header)
            for start, length in zip(self._starts, self._sizes, strict=True):
                if start != _NOT_SEEN:
                    self._waiting.seek(start)
                    data = self._waiting.read(length)
                    digest.update(data)
                    size += target.write(data)
        return FileDigest(name=self._path.name, sha256=digest.hexdigest(), size=size)

    def _lines(self, query: str, ranking: list[tuple[str, float]]) -> bytes:
        grades, names = self._qrels[query], self._names
        asked = names.get(query, query)
        fields = [
            (names.get(document, document), grades.get(document, 0), score)
            for document, score in ranking
        ]
        # A million rows cost as much to quote as to read; few ids need quoting.
        if _QUOTED.isdisjoint("".join((asked, *(field[0] for field in fields)))):
            start = f"{asked},"
            lines = [f"{start}{name},{grade},{score!r}\n" for name, grade, score in fields]
            return "".join(lines).encode("utf-8")
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            (asked, name, grade, repr(score)) for name, grade, score in fields
        )
        return text.getvalue().encode("utf-8")
