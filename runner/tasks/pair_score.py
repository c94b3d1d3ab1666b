"""Scores of pairs -> metrics of every split, a summary of each, and the score artifact.

A pair without a score leaves its split unmeasured: a missing similarity is no zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.datasets.lines import FileDigest
from runner.metrics.classification import (
    DECIDED,
    RANKED,
    all_metrics,
    all_positive_f1,
    base_rate,
    classes,
    placements,
    precisions,
)
from runner.metrics.pair_resamples import (
    Sample,
    block_counts,
    own_blocks,
    ratio_terms,
    replicates,
    why_none,
)
from runner.model import RowsReport
from runner.protocol.load import Protocol
from runner.rows.pair import PairRow, PairRows
from runner.tasks.api import Ratio, SplitScore, UnitScores
from runner.tasks.csv_table import csv_bytes
from runner.tasks.pair_dataset import Pairs
from runner.tasks.pair_policies import FIXED, threshold_of
from runner.tasks.pair_splits import ALL, asked_ids, ids_of

if TYPE_CHECKING:
    from numpy import float64, intp
    from numpy.typing import NDArray

ONE_CLASS = "the pairs are of one class"
FITTED = "the threshold was fitted on part of these pairs"


class UnitScorer:
    """Scores the rows of one unit; give ``checker()`` and ``add`` to ``rows.read.read_rows``."""

    def __init__(
        self,
        dataset: Pairs,
        protocol: Protocol,
        splits: Sequence[str],
        *,
        artifact: Path | None = None,
    ) -> None:
        """Score for the run's ``splits``; ``artifact`` names a new file for the score artifact.

        Raises ``ProtocolError`` for a split that does not exist.
        """
        self._dataset, self._protocol, self._artifact = dataset, protocol, artifact
        self._asked = asked_ids(dataset, splits)
        self._splits = {name: ids_of(dataset, name) for name in splits}
        self._metrics = protocol.metrics_of("pair")
        self._place = {pair: place for place, pair in enumerate(dataset.ids)}
        self._scores = np.full(len(dataset.ids), np.nan)
        self._failed = np.zeros(len(dataset.ids), dtype=np.bool_)
        self._positive = np.array(dataset.column("labels"), dtype=np.int8) > 0

    def __enter__(self) -> UnitScorer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is held open."""

    def checker(self) -> PairRows:
        """Return the checker of rows that this scorer can take."""
        return PairRows(self._asked)

    def add(self, rows: Sequence[PairRow]) -> None:
        """Take in checked rows, in any order, each pair once."""
        for pair, score, _ in rows:
            if score is None:
                self._failed[self._place[pair]] = True
            else:
                self._scores[self._place[pair]] = score

    def result(self, report: RowsReport) -> UnitScores:
        """Return the scores, and write the artifact; ``report`` is that of the rows' reader.

        A fault, a missing row or a row with an error leaves every metric of the split unmeasured.
        """
        faults = report.fault_count
        why = f"{faults} faults in the rows" if faults else None
        return UnitScores(
            splits=tuple(self._split(name, why) for name in self._splits),
            artifact=None if self._artifact is None else self._save(self._artifact),
        )

    def _split(self, name: str, why: str | None) -> SplitScore:
        places = np.array([self._place[pair] for pair in sorted(self._splits[name])], dtype=np.intp)
        why = why or self._gap(places) or self._gap(self._validation())
        failures = int(self._failed[places].sum())
        found = classes(np.zeros(len(places)), self._positive[places])
        summary: dict[str, Any] = {
            "pairs": len(places),
            "failures": failures,
            "missing": int(np.isnan(self._scores[places]).sum()) - failures,
            "base_rate": base_rate(found),
            "all_positive_f1": all_positive_f1(found),
            "threshold": None,
        }
        if why is not None:
            return SplitScore(
                split=name,
                queries=len(places),
                scores=dict.fromkeys(self._metrics),
                reasons=dict.fromkeys(self._metrics, why),
                summary=summary,
            )
        return self._measured(name, places, summary)

    def _measured(self, name: str, places: NDArray[intp], summary: dict[str, Any]) -> SplitScore:
        threshold = self._threshold()
        sample = Sample(
            self._scores[places], self._positive[places], _blocks(self._groups(places), len(places))
        )
        found = classes(sample.scores, sample.positive)
        values = all_metrics(found, threshold)
        reasons = {} if found.both else dict.fromkeys(RANKED, ONE_CLASS)
        if name == ALL and not self._fixed and self._dataset.has_validation:
            reasons |= dict.fromkeys(DECIDED, FITTED)
        reasons = {metric: why for metric, why in reasons.items() if metric in self._metrics}
        measured = [metric for metric in self._metrics if metric not in reasons]
        drawn = replicates(
            sample, measured, threshold, seed=self._protocol.seed, position=self._position()
        )
        return SplitScore(
            split=name,
            queries=len(places),
            scores={name: None if name in reasons else values[name] for name in self._metrics},
            reasons=reasons,
            replicates=drawn,
            no_interval={
                metric: why_none(sample, metric) for metric in measured if metric not in drawn
            },
            ratios=_ratios(sample, measured, threshold),
            summary={**summary, "threshold": threshold},
        )

    def _gap(self, places: NDArray[intp]) -> str | None:
        """Why these pairs cannot be scored; None when each has a score."""
        failed = int(self._failed[places].sum())
        if failed:
            return f"{failed} of {len(places)} pairs have an error instead of a score"
        missing = int(np.isnan(self._scores[places]).sum())
        return f"{missing} of {len(places)} pairs have no row" if missing else None

    @property
    def _fixed(self) -> bool:
        return bool(self._protocol.rules["threshold_policy"]["type"] == FIXED)

    def _validation(self) -> NDArray[intp]:
        """Where the pairs stand that choose the threshold; none where it is fixed."""
        pairs = () if self._fixed else self._dataset.part_ids(validation=True)
        return np.array([self._place[pair] for pair in pairs], dtype=np.intp)

    def _threshold(self) -> float:
        places = self._validation()
        return threshold_of(self._protocol.rules, self._scores[places], self._positive[places])

    def _position(self) -> int:
        names = [one.name for one in self._protocol.datasets if one.task == "pair"]
        return names.index(self._dataset.name)

    def _groups(self, places: NDArray[intp]) -> list[tuple[str, ...]]:
        fields = self._protocol.rules["split_policy"]["group_fields"]
        columns = [self._dataset.group_column(field) for field in fields]
        return [tuple(column[place] for column in columns) for place in places.tolist()]

    def _save(self, path: Path) -> FileDigest:
        dataset = self._dataset
        names = list(dataset.group_names)
        columns = [dataset.column(name) for name in ("ids", "left", "right")]
        columns.append([str(label) for label in dataset.column("labels")])
        columns += [dataset.group_column(name) for name in names]
        # Every pair is asked, so rows and columns run in parallel.
        columns.append(["" if isnan(score) else repr(score) for score in self._scores.tolist()])
        data = csv_bytes(("pair_id", "left_id", "right_id", "label", *names, "score"), columns)
        with path.open("xb") as target:
            target.write(data)
        return FileDigest(name=path.name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def _blocks(groups: list[tuple[str, ...]], count: int) -> NDArray[intp]:
    """Number the groups in sorted order; without group columns every pair is its own."""
    if not groups or not groups[0]:
        return own_blocks(count)
    number = {group: index for index, group in enumerate(sorted(set(groups)))}
    return np.array([number[group] for group in groups], dtype=np.intp)


def _ratios(sample: Sample, metrics: Sequence[str], threshold: float) -> dict[str, Ratio]:
    """Each metric as a quotient of sums over groups."""
    found = classes(sample.scores, sample.positive)
    counts = block_counts(sample, threshold)
    block = sample.block[sample.positive]
    ratios: dict[str, Ratio] = {}
    for metric in metrics:
        if metric in DECIDED:
            ratios[metric] = Ratio(*ratio_terms(metric, counts))
            continue
        share = precisions if metric == "average_precision" else placements
        worth = share(found, sample.scores[sample.positive])
        ratios[metric] = Ratio(_sums(block, sample.blocks, worth), _sums(block, sample.blocks))
    return ratios


def _sums(
    block: NDArray[intp], blocks: int, weights: NDArray[float64] | None = None
) -> NDArray[float64]:
    return np.bincount(block, weights=weights, minlength=blocks).astype(np.float64)
