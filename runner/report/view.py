"""One split of one task of a bundle: its metrics, their rows, and the tests between methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.comparisons import between
from runner.report.words import titled
from runner.verify.documents import Documents

MAX_DRAWN = 25  # rows of one chart; the tables have all


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One split of one task: its metrics and their rows, best first."""

    documents: Documents
    task: str
    split: str
    metric: str  # the one that ranks
    imported: frozenset[str] = field(default=frozenset())  # methods that nobody executed here

    def rows(self, metric: str) -> list[Mapping[str, Any]]:
        """The aggregate rows of a metric, ranked ones first."""
        found = [
            row
            for row in self.documents.results["aggregate"]
            if (row["task"], row["split"], row["metric"]) == (self.task, self.split, metric)
        ]
        return sorted(found, key=lambda row: (row["rank"] is None, row["rank"] or 0, row["method"]))

    @property
    def best(self) -> str | None:
        """The method of rank 1, if any is ranked."""
        first = self.rows(self.metric)[0]
        return None if first["rank"] is None else str(first["method"])

    def name(self, method: str) -> str:
        """A method's name as every figure shows it: an imported one is marked."""
        return titled(method, self.imported)

    def comparison(self, method: str, other: str) -> Mapping[str, Any] | None:
        """The test between two methods, whichever stands first in it; None where there is none."""
        table = (self.task, self.split, self.metric)
        return between(self.documents.results, table, method, other)
