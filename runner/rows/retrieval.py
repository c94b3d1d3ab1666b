"""Is this line a valid retrieval row, and what does it say?

``quick`` decides for nearly all lines at about 0.2 us a document: it parses a line whose pairs are
joined into one flat list, because seven million two-item lists cost four times the rest. It
answers None whenever it is not sure; the strict way then decides and says why.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import hypot
from typing import Any, NamedTuple

from runner.canonical import MAX_SAFE_INTEGER
from runner.rows.faults import RowRefused
from runner.schema_faults import shown

#: The bounds of schemas/row-retrieval.v1.schema.json; a test compares them.
MAX_ID_LENGTH = 512
MAX_RANKING = 1_000_000
MAX_ERROR_LENGTH = 4096

#: What every row has. A row may have ``evidence`` as well: the strict way looks at that.
_KEYS = {"query_id", "ranking", "latency_ms", "error"}
_NUMBER_TYPES = frozenset({int, float})


class RetrievalRow(NamedTuple):
    """One query's answer as the method wrote it; ``documents[i]`` has ``scores[i]``."""

    query_id: str
    documents: list[str]
    scores: array[float]  # doubles: `numpy.frombuffer` reads them without a copy
    latency_ms: float | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalIds:
    """The ids that rows may name: queries with their positions 0, 1, ... and documents (None
    where nobody can list them).

    ``ValueError`` for an id that no row could name: the loader of a dataset refuses those.
    """

    queries: Mapping[str, int]
    documents: frozenset[str] | None

    def __post_init__(self) -> None:
        for what in (self.queries, self.documents or ()):
            if not all(1 <= len(name) <= MAX_ID_LENGTH for name in what):
                raise ValueError(f"ids have 1 to {MAX_ID_LENGTH} characters")

    @classmethod
    def of(cls, queries: Iterable[str], documents: Iterable[str] | None) -> RetrievalIds:
        """Number the queries in the given order."""
        distinct = dict.fromkeys(queries)
        numbered = dict(zip(distinct, range(len(distinct)), strict=True))
        known = None if documents is None else frozenset(documents)
        return cls(queries=numbered, documents=known)


class RetrievalRows:
    """The row checker of the retrieval task."""

    kind = "row-retrieval"
    key_noun = "query id"

    def __init__(self, ids: RetrievalIds | None, *, whole: bool = False) -> None:
        """Check ids against ``ids``; None accepts any id of valid length (no data at hand).

        ``whole``: a row without an error must rank every document.
        """
        import orjson

        self._whole = whole

        self.expected = None if ids is None else ids.queries
        self._documents = None if ids is None else ids.documents
        self._loads: Callable[[bytes], Any] = orjson.loads

    def quick(self, line: bytes) -> RetrievalRow | None:
        """Return the row of a line that is certainly valid; None to look closer."""
        parsed = self._parse_flat(line)
        if parsed is None:
            return None
        row, documents, numbers = parsed
        if (
            (documents and not self._sound(documents, numbers))
            or not _sound_scalars(row, documents)
            or self._lacks(documents, row["error"])
            or not _no_duplicate_key(line, row, documents)
        ):
            return None
        scores = array("d", numbers)
        return RetrievalRow(row["query_id"], documents, scores, row["latency_ms"], row["error"])

    def _parse_flat(self, line: bytes) -> tuple[dict[str, Any], list[Any], list[Any]] | None:
        """Return (row, documents, scores) of a line whose ranking is surely a list of pairs.

        Why the flat list proves the nested one: a newline replaces each ``],["`` between two
        pairs. Inside a string a newline is an error, so only structure was replaced. If text and
        number alternate in the flat list (`_sound` checks it) and each text but the first has
        lost one bracket pair, then the line held two-item lists and nothing else.
        """
        compact = line.replace(b'],["', b'\n,"')
        joints = len(line) - len(compact)
        if not joints and b'], ["' in line:  # as Python's json writes by default
            compact = line.replace(b'], ["', b'\n,"')
            joints = (len(line) - len(compact)) // 2
        try:
            row = self._loads(compact)
        except ValueError:
            return None
        if type(row) is not dict or row.keys() != _KEYS or type(row["ranking"]) is not list:
            return None
        ranking = row["ranking"]
        if not ranking:
            return row, [], []
        flat = ranking[0]
        if len(ranking) != 1 or type(flat) is not list or len(flat) != 2 * (joints + 1):
            return None
        return row, flat[::2], flat[1::2]

    def build(self, document: dict[str, Any]) -> RetrievalRow:
        """Return the row of a strictly parsed, schema-valid object, or raise ``RowRefused``."""
        ranking, error = document["ranking"], document["error"]
        if error is not None and ranking:
            raise RowRefused("rows.error-with-ranking", "a row with an error has documents as well")
        for part, values in document.get("evidence", {}).items():
            if len(values) != len(ranking):
                message = f"evidence {part} has {len(values)} values for {len(ranking)} documents"
                raise RowRefused("rows.evidence-length", message)
        seen: set[str] = set()
        for position, (name, _) in enumerate(ranking, 1):
            if name in seen:
                raise RowRefused(
                    "rows.duplicate-document",
                    f"document {shown(name)} stands twice in the ranking (at {position})",
                )
            if self._documents is not None and name not in self._documents:
                raise RowRefused(
                    "rows.unknown-document", f"document {shown(name)} is not in the corpus"
                )
            seen.add(name)
        if self._documents is not None and self._lacks([name for name, _ in ranking], error):
            raise RowRefused(
                "rows.incomplete-ranking",
                f"{len(ranking)} of {len(self._documents)} documents are ranked; all must be",
            )
        return RetrievalRow(
            document["query_id"],
            [name for name, _ in ranking],
            array("d", (score for _, score in ranking)),
            document["latency_ms"],
            error,
        )

    def _lacks(self, documents: list[str], error: str | None) -> bool:
        """Tell whether distinct known documents are fewer than there must be."""
        known = self._documents
        return self._whole and error is None and known is not None and len(documents) != len(known)

    def _sound(self, documents: list[Any], numbers: list[Any]) -> bool:
        """Tell whether all are distinct known ids beside plain finite numbers."""
        count = len(documents)
        if not _NUMBER_TYPES.issuperset(map(type, numbers)) or count > MAX_RANKING:
            return False
        # No number exceeds their norm. Larger ones may be integers that the parser has rounded.
        if hypot(*numbers) > MAX_SAFE_INTEGER:
            return False
        try:
            distinct = set(documents)
            if self._documents is not None:
                # A known id is text of valid length.
                return len(distinct) == count and distinct <= self._documents
            joined = "".join(documents)
        except TypeError:  # something else where an id belongs
            return False
        return (
            len(distinct) == count
            and all(documents)
            and (len(joined) <= MAX_ID_LENGTH or max(map(len, documents)) <= MAX_ID_LENGTH)
        )


def _sound_scalars(row: dict[str, Any], documents: list[str]) -> bool:
    query, latency, error = row["query_id"], row["latency_ms"], row["error"]
    if type(query) is not str or not 1 <= len(query) <= MAX_ID_LENGTH:
        return False
    if latency is not None and not (
        type(latency) in _NUMBER_TYPES and 0 <= latency <= MAX_SAFE_INTEGER
    ):
        return False
    return error is None or (
        type(error) is str and len(error) <= MAX_ERROR_LENGTH and not documents
    )


def _no_duplicate_key(line: bytes, row: dict[str, Any], documents: list[str]) -> bool:
    """Tell whether the four keys certainly stand once each.

    Every member of an object has a colon outside strings. Four parsed keys and four colons in all
    leave none for a key that was dropped. Without escapes, colons inside ids can be subtracted: a
    dropped value could only hide more of them, and then the count comes out too high.
    """
    colons = line.count(b":")
    if colons == len(_KEYS):
        return True
    if b"\\" in line:
        return False
    inside = "".join((*documents, row["query_id"], row["error"] or "")).count(":")
    return colons - inside == len(_KEYS)
