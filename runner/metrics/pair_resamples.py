"""What resamples of pairs give: each metric on each of them, by group where pairs have groups.

Pairs of one assignment share an original, so they are no independent draws: whole groups are drawn
with replacement. Counts are integers and sums of them exact, so every machine gets equal figures
up to the last additions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from runner.metrics.bootstrap import draw_counts, resampled_sums
from runner.metrics.classification import DECIDED, RANKED

if TYPE_CHECKING:
    from numpy import bool_, float64, intp
    from numpy.typing import NDArray

#: Pairs beyond which average precision and AUROC get no interval: each resample goes through all
#: of them again, and a thousand of those would take longer than the method.
MAX_RANKED = 60_000
#: Ungrouped pairs beyond this are joined to so many blocks: as valid, and drawn in a moment.
MAX_BLOCKS = 4_000
_BLOCK_CELLS = 1 << 21


def own_blocks(count: int) -> NDArray[intp]:
    """Return the blocks of pairs that have no groups: every pair its own, up to ``MAX_BLOCKS``."""
    import numpy as np

    return np.arange(count, dtype=np.intp) % MAX_BLOCKS


class Sample(NamedTuple):
    """Scored pairs; ``block[i]`` is the group of pair i, numbered from 0."""

    scores: NDArray[float64]
    positive: NDArray[bool_]
    block: NDArray[intp]

    @property
    def blocks(self) -> int:
        """Number of groups."""
        return int(self.block.max()) + 1


def replicates(
    sample: Sample, metrics: Iterable[str], threshold: float, *, seed: int, position: int
) -> dict[str, NDArray[float64]]:
    """Return each metric's values on the resamples; a metric without an interval is left out.

    Left out are all metrics where there is one group only, and average precision and AUROC where a
    resample holds one class only or there are more than ``MAX_RANKED`` pairs; see ``why_none``.
    """
    wanted = set(metrics)
    found: dict[str, NDArray[float64]] = {}
    if sample.blocks < 2:
        return found
    if wanted & set(DECIDED):
        found.update(_decided(sample, threshold, seed, position))
    if wanted & set(RANKED) and len(sample.scores) <= MAX_RANKED:
        found.update(_ranked(sample, seed, position))
    return {name: values for name, values in found.items() if name in wanted}


def why_none(sample: Sample, metric: str) -> str:
    """Say why ``replicates`` leaves a metric out."""
    if sample.blocks < 2:
        return "all pairs are of one group, and whole groups are drawn"
    if metric in RANKED and len(sample.scores) > MAX_RANKED:
        return (
            f"{len(sample.scores):,} pairs: beyond {MAX_RANKED:,} the resamples of this metric "
            "would take longer than the method"
        )
    return "a resample of the pairs holds one class only"


def block_counts(sample: Sample, threshold: float) -> NDArray[float64]:
    """Return tp, fp, fn, tn of every block: (blocks, 4)."""
    import numpy as np

    called = sample.scores >= threshold
    kind = np.where(sample.positive, np.where(called, 0, 2), np.where(called, 1, 3))
    cells = np.bincount(sample.block * 4 + kind, minlength=4 * sample.blocks)
    return cells.reshape(-1, 4).astype(np.float64)


def ratio_terms(metric: str, counts: NDArray[float64]) -> tuple[NDArray[float64], ...]:
    """Return (numerators, denominators) whose sums' quotient is a decided metric."""
    tp, fp, fn, tn = counts.T
    return {
        "f1": (2 * tp, 2 * tp + fp + fn),
        "precision": (tp, tp + fp),
        "recall": (tp, tp + fn),
        "accuracy": (tp + tn, tp + fp + fn + tn),
    }[metric]


def _decided(
    sample: Sample, threshold: float, seed: int, position: int
) -> dict[str, NDArray[float64]]:
    import numpy as np

    sums = resampled_sums(block_counts(sample, threshold), seed=seed, position=position)
    found = {}
    for metric in DECIDED:
        part, whole = ratio_terms(metric, sums)
        found[metric] = np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
    return found


def _ranked(sample: Sample, seed: int, position: int) -> dict[str, NDArray[float64]]:
    import numpy as np

    order = np.argsort(-sample.scores, kind="stable")
    scores, positive = sample.scores[order], sample.positive[order]
    block = sample.block[order]
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    parts = []
    for counts in draw_counts(sample.blocks, seed=seed, position=position):
        step = max(1, _BLOCK_CELLS // len(scores))
        for begin in range(0, len(counts), step):
            weights = counts[begin : begin + step, block].astype(np.int64)
            tp = np.cumsum(weights * positive, axis=1)[:, ends]
            drawn = np.cumsum(weights, axis=1)[:, ends]
            parts.append(_weighted(tp, drawn))
    values = np.concatenate(parts)
    if not np.isfinite(values).all():  # a resample of one class has neither
        return {}
    return {"average_precision": values[:, 0], "auroc": values[:, 1]}


def _weighted(tp: NDArray[intp], drawn: NDArray[intp]) -> NDArray[float64]:
    """AP and AUROC of each row from counts at each distinct score, high scores first."""
    import numpy as np

    fp = drawn - tp
    gained = np.diff(tp, axis=1, prepend=0)
    lost = np.diff(fp, axis=1, prepend=0)
    positives, negatives = tp[:, -1], fp[:, -1]
    at_step = np.divide(tp, drawn, out=np.zeros(tp.shape), where=drawn > 0)
    # A positive beats the negatives that come later, and half of those beside it.
    twice = (gained * (2 * negatives[:, None] - 2 * fp + lost)).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = (gained * at_step).sum(axis=1) / positives
        area = twice / (2.0 * positives * negatives)
    one_class = (positives == 0) | (negatives == 0)
    return np.where(one_class[:, None], np.nan, np.stack([precision, area], axis=1))
