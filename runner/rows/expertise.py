"""Is this line a valid expertise row, and what does it say?

A method scores every submission for every reviewer: it does not know which pairs were rated. One
exception: released predictions hold the rated pairs alone, so a row with exactly the papers that
its reviewer rated is whole too. Nothing in between is: a missing score is no zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from runner.canonical import MAX_SAFE_INTEGER
from runner.rows.faults import RowRefused
from runner.schema_faults import shown

_KEYS = {"reviewer_id", "scores", "error"}
_NUMBER_TYPES = frozenset({int, float})


class ExpertiseRow(NamedTuple):
    """One reviewer's scores as the method wrote them; empty with an error."""

    reviewer_id: str
    scores: Mapping[str, float]
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertiseIds:
    """The ids that rows may name: reviewers with positions 0, 1, ..., submissions, rated pairs."""

    reviewers: Mapping[str, int]
    submissions: frozenset[str]
    rated: Mapping[str, frozenset[str]]

    @classmethod
    def of(
        cls,
        reviewers: Iterable[str],
        submissions: Iterable[str],
        ratings: Mapping[str, Iterable[str]],
    ) -> ExpertiseIds:
        """Number the reviewers in the given order."""
        return cls(
            reviewers={who: number for number, who in enumerate(reviewers)},
            submissions=frozenset(submissions),
            rated={who: frozenset(papers) for who, papers in ratings.items()},
        )


class ExpertiseRows:
    """The row checker of the expertise task."""

    kind = "row-expertise"
    key_noun = "reviewer id"

    def __init__(self, ids: ExpertiseIds | None) -> None:
        """Check ids against ``ids``; None accepts any id of valid length (no data at hand)."""
        import orjson

        self._ids = ids
        self.expected = None if ids is None else ids.reviewers
        self._loads: Callable[[bytes], Any] = orjson.loads

    def quick(self, line: bytes) -> ExpertiseRow | None:
        """Return the row of a line that is certainly valid; None to look closer."""
        try:
            row = self._loads(line)
        except ValueError:
            return None
        if type(row) is not dict or row.keys() != _KEYS or row["error"] is not None:
            return None
        who, scores = row["reviewer_id"], row["scores"]
        if type(who) is not str or type(scores) is not dict or not self._whole(who, scores):
            return None
        return ExpertiseRow(who, scores, None) if self._sound(line, scores) else None

    def build(self, document: dict[str, Any]) -> ExpertiseRow:
        """Return the row of a strictly parsed, schema-valid object, or raise ``RowRefused``."""
        who, scores, error = document["reviewer_id"], document["scores"], document["error"]
        if error is not None:
            if scores:
                raise RowRefused("rows.error-with-scores", "a row with an error has scores as well")
        elif self._ids is not None and not self._whole(who, scores):
            self._refuse(scores, self._ids)
        return ExpertiseRow(who, scores, error)

    def _sound(self, line: bytes, scores: dict[str, Any]) -> bool:
        """Tell whether all are plain numbers, and no key certainly stands twice."""
        # Every member has a colon and known ids have none: none is left for one that was dropped.
        if self._ids is None or b"\\" in line or line.count(b":") != len(_KEYS) + len(scores):
            return False
        values = scores.values()
        # Larger ones may be integers that the parser has rounded.
        return _NUMBER_TYPES.issuperset(map(type, values)) and (
            max(map(abs, values), default=0) <= MAX_SAFE_INTEGER
        )

    def _whole(self, who: str, scores: Mapping[str, float]) -> bool:
        if self._ids is None:
            return True
        given = frozenset(scores)
        return given in (self._ids.submissions, self._ids.rated.get(who))

    @staticmethod
    def _refuse(scores: Mapping[str, float], ids: ExpertiseIds) -> None:
        extra = sorted(scores.keys() - ids.submissions)
        if extra:
            raise RowRefused("rows.unknown-paper", f"{shown(extra[0])} is no submission")
        missing = sorted(ids.submissions - scores.keys())
        raise RowRefused(
            "rows.missing-score",
            f"{len(missing)} of {len(ids.submissions)} submissions have no score, such as "
            f"{shown(missing[0])}; a missing score is no zero",
        )
