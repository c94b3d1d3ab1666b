"""Every two methods beside each other: their difference, its interval, and whether chance gives it.

Pure. Differences come from shared resamples, p-values from paired permutation tests, corrected by
Holm's method over all comparisons of one task, split and metric. Two methods that the test does not
part are called a tie, whatever their ranks say. Losses are differences too: the sign is the
score's, not the better method's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from runner.metrics.bootstrap import RESAMPLES, percentile_interval
from runner.metrics.permutation import (
    EXACT_BLOCKS,
    PERMUTATIONS,
    Contest,
    Terms,
    bootstrap_p_value,
    holm,
    p_values,
)
from runner.replicates import Replicates
from runner.tasks.api import SplitScore

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

#: A tie is what a test at this level does not part.
LEVEL = 0.05
#: Of more methods, each is compared with the best one only, and with the run's baseline.
MAX_ALL_PAIRS = 25

#: A method's scores: datasets, and of each the repeats.
Scores = Sequence[Sequence[SplitScore]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One split of one task: every method's scores, in plan order."""

    task: str
    split: str
    scores: Mapping[str, Scores]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One metric of a field: the mean score of each eligible method, the best of them, and the one
    that the run names as its baseline."""

    metric: str
    means: Mapping[str, float]
    best: str | None
    baseline: str | None = None


def compare(
    field: Field, metrics: Sequence[Ranked], replicates: Replicates, seed: int
) -> list[dict[str, Any]]:
    """Return the ``comparisons`` of results.json for one field, metric by metric."""
    entries = [_entries(field, ranked, replicates) for ranked in metrics]
    _test([entry for group in entries for entry in group], seed)
    found = []
    for group in entries:
        tested = [entry for entry in group if entry.p_value is not None]
        for entry, value in zip(tested, holm([e.p_value or 0.0 for e in tested]), strict=True):
            entry.p_adjusted = value
        found += [entry.record(field) for entry in group]
    return found


def aggregate_replicates(
    scores: Scores, metric: str, replicates: Replicates
) -> tuple[NDArray[float64] | None, bool]:
    """Return the mean over datasets on each resample (None without), and whether limits are
    interpolated; see ``api.SplitScore``."""
    total, linear = None, False
    for position, repeats in enumerate(scores):
        for score in repeats:
            found = replicates.of(score, metric, position)
            if found is None:
                return None, False
            share = found / (len(repeats) * len(scores))
            total = share if total is None else total + share
            linear = linear or score.linear
    return total, linear


def pairs_of(
    names: Sequence[str], best: str | None, baseline: str | None = None
) -> list[tuple[str, str]]:
    """Return which methods are compared: every two, or of many the best with each other one, and
    ``baseline`` with each other one where it is among them."""
    if len(names) <= MAX_ALL_PAIRS or best is None:
        return list(combinations(names, 2))
    found = [(best, name) for name in names if name != best]
    if baseline is not None and baseline in names and baseline != best:
        found += [(baseline, name) for name in names if name not in (baseline, best)]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfReach:
    """Why no comparison of a field could ever be told apart: so many ``comparisons``, tested over
    ``blocks`` in all exchanges, or else with so many random ``draws``."""

    comparisons: int
    blocks: int | None
    draws: int


def out_of_reach(entries: Sequence[Mapping[str, Any]]) -> OutOfReach | None:
    """Say whether the correction leaves nothing that could be significant, whatever the scores.

    ``entries`` are the ``comparisons`` of one task, split and metric. None: some could be, or
    nothing was tested. Holm's first step multiplies the smallest p-value by their number.
    """
    tested = [entry for entry in entries if entry["test"] is not None]
    if not tested:
        return None
    first = min(tested, key=_smallest_p_value)
    if _smallest_p_value(first) * len(tested) <= LEVEL:
        return None
    draws = RESAMPLES if first["test"] == "bootstrap" else PERMUTATIONS
    return OutOfReach(comparisons=len(tested), blocks=first.get("blocks"), draws=draws)


def _smallest_p_value(entry: Mapping[str, Any]) -> float:
    """Return the least that a comparison's test can give. All exchanged is as extreme as none."""
    if entry["test"] == "bootstrap":
        return 2 / (RESAMPLES + 1)
    blocks = entry.get("blocks")
    return 1 / (PERMUTATIONS + 1) if blocks is None else min(1.0, 2.0 ** (1 - blocks))


def between(
    results: Mapping[str, Any], table: tuple[str, str, str], method: str, other: str
) -> Mapping[str, Any] | None:
    """Return the entry of results.json on two methods, whichever stands first in it, or None.

    ``table`` is (task, split, metric).
    """
    for row in results.get("comparisons", ()):
        alike = (row["task"], row["split"], row["metric"]) == table
        if alike and {row["method"], row["other"]} == {method, other}:
            return dict(row)
    return None


def note() -> str:
    """What the comparisons in results.json are."""
    return (
        "comparisons: paired permutation tests over queries, groups, pairs or people (bootstrap "
        f"where a metric has no such parts), Holm-adjusted; a tie is p_adjusted above {LEVEL}"
    )


@dataclass(slots=True, kw_only=True)
class _Entry:
    metric: str
    method: str
    other: str
    difference: float
    interval: tuple[float | None, float | None]
    resampled: NDArray[float64] | None
    contest: Contest | None
    p_value: float | None = None
    p_adjusted: float | None = None

    def record(self, field: Field) -> dict[str, Any]:
        test, exact = None, dict[str, int]()
        if self.p_value is not None:
            test = "bootstrap" if self.contest is None else "permutation"
            blocks = 0 if self.contest is None else self.contest.blocks()
            exact = {"blocks": blocks} if 0 < blocks <= EXACT_BLOCKS else {}
        return {
            "task": field.task,
            "split": field.split,
            "metric": self.metric,
            "method": self.method,
            "other": self.other,
            "difference": self.difference,
            "ci_low": self.interval[0],
            "ci_high": self.interval[1],
            "test": test,
            **exact,
            "p_value": self.p_value,
            "p_adjusted": self.p_adjusted,
            "tie": None if self.p_adjusted is None else self.p_adjusted > LEVEL,
        }


def _entries(field: Field, ranked: Ranked, replicates: Replicates) -> list[_Entry]:
    names = list(ranked.means)
    pairs = pairs_of(names, ranked.best, ranked.baseline)
    metric = ranked.metric
    drawn = {name: aggregate_replicates(field.scores[name], metric, replicates) for name in names}
    terms = {name: _terms(field.scores[name], metric) for name in names}
    found = []
    for one, other in pairs:
        first, second = drawn[one], drawn[other]
        apart = None if first[0] is None or second[0] is None else first[0] - second[0]
        found.append(
            _Entry(
                metric=metric,
                method=one,
                other=other,
                difference=ranked.means[one] - ranked.means[other],
                interval=(None, None)
                if apart is None
                else percentile_interval(apart, linear=first[1]),
                resampled=apart,
                contest=_contest(terms[one], terms[other], shared=_shared(field.scores[one])),
            )
        )
    return found


def _test(entries: Sequence[_Entry], seed: int) -> None:
    """Set p-values; contests over the same blocks share their permutations."""
    alike: dict[tuple[bool, tuple[int, ...]], list[_Entry]] = {}
    for entry in entries:
        if entry.contest is not None:
            sizes = tuple(len(terms.numerators) for terms in entry.contest.first)
            alike.setdefault((entry.contest.shared, sizes), []).append(entry)
        elif entry.resampled is not None:
            entry.p_value = bootstrap_p_value(entry.resampled)
    for group in alike.values():
        contests = [entry.contest for entry in group if entry.contest is not None]
        for entry, value in zip(group, p_values(contests, seed=seed), strict=True):
            entry.p_value = value


def _contest(
    first: list[Terms] | None, second: list[Terms] | None, *, shared: bool
) -> Contest | None:
    if first is None or second is None:
        return None
    sizes = [[len(terms.numerators) for terms in side] for side in (first, second)]
    if sizes[0] != sizes[1] or (shared and len(set(sizes[0])) != 1):
        return None
    return Contest(first, second, shared)


def _shared(scores: Scores) -> bool:
    return all(score.shared_blocks for repeats in scores for score in repeats)


def _terms(scores: Scores, metric: str) -> list[Terms] | None:
    """A method's terms on every dataset, the mean of its repeats; None where there are none."""
    import numpy as np

    found = []
    for repeats in scores:
        each = [_one(score, metric) for score in repeats]
        present = [terms for terms in each if terms is not None]
        if len(present) != len(each) or len({len(t.numerators) for t in present}) != 1:
            return None
        found.append(
            Terms(
                np.mean([t.numerators for t in present], axis=0),
                np.mean([t.denominators for t in present], axis=0),
            )
        )
    return found


def _one(score: SplitScore, metric: str) -> Terms | None:
    import numpy as np

    ratio = score.ratios.get(metric)
    if ratio is not None:
        return Terms(ratio.numerators, ratio.denominators)
    sample = score.samples.get(metric)
    if sample is None or not len(sample):
        return None
    return Terms(np.asarray(sample, dtype=np.float64), np.ones(len(sample)))
