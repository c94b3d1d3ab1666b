"""Scores of one unit -> loss, accuracies, metrics at k, ties, and the score artifact.

Only the scores of rated pairs are kept: a number a rating. Resamples are drawn from the protocol's
seed and the number of reviewers alone, so every version and every method gets the same ones.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy import float64
from numpy.typing import NDArray

from runner.datasets.lines import FileDigest
from runner.datasets.reviewers import ExpertiseDataset
from runner.metrics.kendall import RatedPapers, replicates
from runner.metrics.top_papers import Judge
from runner.model import RowsReport
from runner.protocol.load import Protocol
from runner.protocol.splits import split_ids, union_of
from runner.rows.expertise import ExpertiseIds, ExpertiseRow, ExpertiseRows
from runner.tasks.api import Ratio, SplitScore, UnitScores
from runner.tasks.expertise_sealed import SealedReviewers

HEADER = ("reviewer_id", "paper_id", "rating", "score")


class UnitScorer:
    """Scores the rows of one unit; give ``checker()`` and ``add`` to ``rows.read.read_rows``."""

    def __init__(
        self,
        dataset: ExpertiseDataset | SealedReviewers,
        protocol: Protocol,
        splits: Sequence[str],
        *,
        artifact: Path | None = None,
    ) -> None:
        """Score for the run's ``splits``; ``artifact`` names a new file for the score artifact.

        Raises ``ProtocolError`` for a split or metric that does not exist.
        """
        self._dataset, self._protocol, self._artifact = dataset, protocol, artifact
        every = split_ids(dataset.profiles.keys(), protocol.calibration)
        self._asked = union_of(every, splits)
        self._splits = {name: every[name] for name in splits}
        self._metrics = protocol.metrics_of("expertise")
        self._scores: dict[str, NDArray[float64]] = {}  # in the order of a reviewer's ratings
        self._failed: set[str] = set()

    def __enter__(self) -> UnitScorer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is held open."""

    def checker(self) -> ExpertiseRows:
        """Return the checker of rows that this scorer can take."""
        dataset = self._dataset
        return ExpertiseRows(ExpertiseIds.of(self._asked, dataset.submissions, dataset.ratings))

    def add(self, rows: Sequence[ExpertiseRow]) -> None:
        """Take in checked rows, in any order, each reviewer once."""
        for row in rows:
            if row.error is not None:
                self._failed.add(row.reviewer_id)
                continue
            rated = self._dataset.ratings[row.reviewer_id]
            self._scores[row.reviewer_id] = np.array(
                [row.scores[paper] for paper in rated], dtype=float64
            )

    def result(self, report: RowsReport) -> UnitScores:
        """Return the scores, and write the artifact; ``report`` is that of the rows' reader.

        A fault, a missing row or a row with an error leaves every metric of the split unmeasured:
        a missing score is no zero.
        """
        faults = report.fault_count
        why = f"{faults} faults in the rows" if faults else None
        return UnitScores(
            splits=tuple(self._split(name, why) for name in self._splits),
            artifact=None if self._artifact is None else self._save(self._artifact),
        )

    def _split(self, name: str, why: str | None) -> SplitScore:
        people = sorted(self._splits[name])  # one order for every version: draws are paired
        failed = sum(who in self._failed for who in people)
        missing = sum(who not in self._scores for who in people) - failed
        if missing:
            why = why or f"{missing} of {len(people)} reviewers have no row"
        if failed:
            why = why or f"{failed} of {len(people)} reviewers have an error instead of scores"
        if why is not None:
            return _unmeasured(name, len(people), self._metrics, why)
        papers = RatedPapers.of([self._dataset.ratings[who] for who in people])
        judge = Judge.of(papers, self._metrics)
        scores = np.concatenate([self._scores[who] for who in people])
        ratios = judge.ratios(scores)
        values = {metric: ratio.value() for metric, ratio in ratios.items()}
        measured = {name: ratio for name, ratio in ratios.items() if values[name] is not None}
        return SplitScore(
            split=name,
            queries=len(people),
            scores=values,
            reasons={
                metric: "the ratings have no pair or paper that it could count"
                for metric, value in values.items()
                if value is None
            },
            replicates=replicates(measured, seed=self._protocol.seed),
            linear=True,
            ratios={name: Ratio(*ratio) for name, ratio in measured.items()},
            shared_blocks=True,
            summary={"ties": judge.ties(scores)},
        )

    def _save(self, path: Path) -> FileDigest:
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(HEADER)
        for who in self._asked:
            found = self._scores.get(who)
            if found is not None:
                rated = self._dataset.ratings[who]
                table.writerows(_lines(who, rated, found.tolist()))
        data = text.getvalue().encode("utf-8")
        with path.open("xb") as target:
            target.write(data)
        return FileDigest(name=path.name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def _lines(
    who: str, rated: Mapping[str, float], scores: Sequence[float]
) -> list[tuple[str, str, str, str]]:
    return [
        (who, paper, repr(rating), repr(score))
        for (paper, rating), score in zip(rated.items(), scores, strict=True)
    ]


def _unmeasured(split: str, people: int, metrics: Sequence[str], why: str) -> SplitScore:
    return SplitScore(
        split=split,
        queries=people,
        scores=dict.fromkeys(metrics),
        reasons=dict.fromkeys(metrics, why),
    )
