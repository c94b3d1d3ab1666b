"""What the judges said, laid out for scoring.

Only documents of grade 1 or more matter to a metric: unjudged and lower grades have no gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Qrels:
    """The positive judgments of the queries that are scored.

    ``positives[i]`` maps the relevant documents of ``query_ids[i]`` to their grades (>= 1).
    """

    query_ids: tuple[str, ...]
    positives: tuple[Mapping[str, int], ...]

    @classmethod
    def of(cls, judgments: Mapping[str, Mapping[str, int]]) -> Qrels:
        """Take ``{query: {document: grade}}`` in the mapping's order; grades are integers."""
        return cls(
            query_ids=tuple(judgments),
            positives=tuple(
                {name: grade for name, grade in graded.items() if grade > 0}
                for graded in judgments.values()
            ),
        )

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each query id."""
        return {query: position for position, query in enumerate(self.query_ids)}

    @cached_property
    def relevant(self) -> NDArray[int64]:
        """Number of relevant documents of each query."""
        import numpy as np

        return np.array([len(graded) for graded in self.positives], dtype=np.int64)

    @cached_property
    def ideal(self) -> tuple[NDArray[int64], NDArray[int64], NDArray[float64]]:
        """The best possible rankings, flat: (query position, rank from 1, grade)."""
        import numpy as np

        grades = [sorted(graded.values(), reverse=True) for graded in self.positives]
        counts = self.relevant
        owner = np.repeat(np.arange(len(counts)), counts)
        starts = np.cumsum(counts) - counts
        rank = np.arange(len(owner)) - starts[owner] + 1
        flat = np.array([grade for graded in grades for grade in graded], dtype=np.float64)
        return owner, rank, flat
