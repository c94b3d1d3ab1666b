"""Is this line a valid pair row, and what does it say?

Scores are similarities from 0 to 1: the frozen threshold means nothing on another scale, so 1.07 is
a fault of the method and not a better score.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from runner.rows.faults import RowRefused

_KEYS = {"pair_id", "score", "error"}
_NUMBER_TYPES = frozenset({int, float})

#: A row as writers write it by default: it needs no parser. Every such line is a valid JSON object.
_USUAL = re.compile(
    rb'\{"pair_id": ?"([A-Za-z0-9]{1,64})", ?'
    rb'"score": ?((?:0|[1-9])(?:\.[0-9]{1,24})?(?:[eE]-?[0-9]{1,3})?), ?"error": ?null\}\n'
)


class PairRow(NamedTuple):
    """One pair's score as the method wrote it; None with an error."""

    pair_id: str
    score: float | None
    error: str | None


class PairRows:
    """The row checker of the pair task."""

    kind = "row-pair"
    key_noun = "pair id"

    def __init__(self, pairs: Iterable[str] | None) -> None:
        """Number the pairs that rows may name; None accepts any id of valid length."""
        import orjson

        self.expected: Mapping[str, int] | None = (
            None if pairs is None else {pair: number for number, pair in enumerate(pairs)}
        )
        self._loads: Callable[[bytes], Any] = orjson.loads

    def quick(self, line: bytes) -> PairRow | None:
        """Return the row of a line that is certainly valid; None to look closer."""
        usual = _USUAL.fullmatch(line)
        if usual is not None and self.expected is not None:
            pair, score = usual[1].decode(), float(usual[2])
            return PairRow(pair, score, None) if pair in self.expected and score <= 1 else None
        return self._parsed(line)

    def _parsed(self, line: bytes) -> PairRow | None:
        # Every member has a colon; with three in all, none is left for a key that stands twice.
        if b"\\" in line or line.count(b":") != len(_KEYS):
            return None
        try:
            row = self._loads(line)
        except ValueError:
            return None
        if type(row) is not dict or row.keys() != _KEYS or row["error"] is not None:
            return None
        pair, score = row["pair_id"], row["score"]
        known = self.expected is not None and type(pair) is str and pair in self.expected
        if not known or type(score) not in _NUMBER_TYPES or not 0 <= score <= 1:
            return None
        return PairRow(pair, float(score), None)

    def build(self, document: dict[str, Any]) -> PairRow:
        """Return the row of a strictly parsed, schema-valid object, or raise ``RowRefused``."""
        score, error = document["score"], document["error"]
        if error is not None and score is not None:
            raise RowRefused("rows.error-with-score", "a row with an error has a score as well")
        if error is None and score is None:
            raise RowRefused("rows.no-score", "neither a score nor an error")
        return PairRow(document["pair_id"], None if score is None else float(score), error)
