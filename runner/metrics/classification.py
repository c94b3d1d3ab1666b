"""Metrics of pair classification on arrays: equal to scikit-learn's to 1e-12, and much faster.

Positives and negatives are sorted apart. What a positive is worth then follows from two counts:
how many positives and how many negatives score at least as high. Tied scores count as one step for
average precision and as half for AUROC. Nothing here knows files or protocols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from runner.metrics.pair_names import DECIDED, METRICS, RANKED

__all__ = [
    "DECIDED",
    "METRICS",
    "RANKED",
    "Classes",
    "Confusion",
    "all_metrics",
    "all_positive_f1",
    "base_rate",
    "best_threshold",
    "classes",
    "confusion",
    "decided",
    "placements",
    "precisions",
    "ranked",
]

if TYPE_CHECKING:
    from numpy import bool_, float64, int64
    from numpy.typing import NDArray


class Classes(NamedTuple):
    """Scores of the positives and of the negatives, each ascending."""

    positives: NDArray[float64]
    negatives: NDArray[float64]

    @property
    def both(self) -> bool:
        """False for one-class data, which have no average precision and no AUROC."""
        return bool(len(self.positives)) and bool(len(self.negatives))


class Confusion(NamedTuple):
    """Counts at an operating point: true and false positives, false and true negatives."""

    tp: int
    fp: int
    fn: int
    tn: int


def classes(scores: NDArray[float64], positive: NDArray[bool_]) -> Classes:
    """Return the two classes; ``scores`` are finite and parallel to ``positive``."""
    import numpy as np

    return Classes(np.sort(scores[positive]), np.sort(scores[~positive]))


def ranked(found: Classes) -> tuple[float, float] | tuple[None, None]:
    """Return (average precision, AUROC), which share their look-ups; None for one-class data."""
    if not found.both:
        return None, None
    below = _below(found.negatives, found.positives)
    area = int(_twice_below(found.negatives, found.positives, below).sum())
    pairs = 2 * len(found.positives) * len(found.negatives)
    return float(_precisions(found, found.positives, below).mean()), area / pairs


def precisions(found: Classes, scores: NDArray[float64]) -> NDArray[float64]:
    """Return, of each positive's score, the precision at that score; AP is their mean.

    Ascending ``scores`` are fastest, any order is right.
    """
    return _precisions(found, scores, _below(found.negatives, scores))


def placements(found: Classes, scores: NDArray[float64]) -> NDArray[float64]:
    """Return, of each positive's score, the share of negatives below (ties 1/2); AUROC is their
    mean."""
    below = _below(found.negatives, scores)
    return _twice_below(found.negatives, scores, below) / (2.0 * len(found.negatives))


def _below(ordered: NDArray[float64], scores: NDArray[float64]) -> NDArray[int64]:
    import numpy as np

    return np.searchsorted(ordered, scores, side="left")


def _precisions(
    found: Classes, scores: NDArray[float64], below: NDArray[int64]
) -> NDArray[float64]:
    import numpy as np

    positives = found.positives
    if scores is positives and bool((positives[1:] > positives[:-1]).all()):
        lower = np.arange(len(positives))  # without ties there is nothing to look up
    else:
        lower = _below(positives, scores)
    tp, fp = len(positives) - lower, len(found.negatives) - below
    return np.asarray(tp / (tp + fp), dtype=np.float64)


def _twice_below(
    negatives: NDArray[float64], scores: NDArray[float64], below: NDArray[int64]
) -> NDArray[int64]:
    import numpy as np

    # Looking up the other side costs as much again, and only tied scores need it.
    last = len(negatives) - 1
    tied = negatives[np.minimum(below, last)] == scores
    tied &= below <= last
    twice: NDArray[int64] = 2 * below
    if tied.any():
        at = np.flatnonzero(tied)
        twice[at] += np.searchsorted(negatives, scores[at], side="right") - below[at]
    return twice


def confusion(found: Classes, threshold: float) -> Confusion:
    """Return the counts where a score of ``threshold`` or more is called positive."""
    import numpy as np

    fn = int(np.searchsorted(found.positives, threshold, side="left"))
    tn = int(np.searchsorted(found.negatives, threshold, side="left"))
    return Confusion(len(found.positives) - fn, len(found.negatives) - tn, fn, tn)


def decided(counts: Confusion) -> dict[str, float]:
    """Return F1, precision, recall and accuracy; 0 / 0 is 0."""
    tp, fp, fn, tn = counts
    return {
        "f1": _share(2 * tp, 2 * tp + fp + fn),
        "precision": _share(tp, tp + fp),
        "recall": _share(tp, tp + fn),
        "accuracy": _share(tp + tn, tp + fp + fn + tn),
    }


def all_metrics(found: Classes, threshold: float) -> dict[str, float | None]:
    """Return all six metrics by name."""
    precision, area = ranked(found)
    return {
        "average_precision": precision,
        "auroc": area,
        **decided(confusion(found, threshold)),
    }


def base_rate(found: Classes) -> float:
    """Return the share of positives."""
    return _share(len(found.positives), len(found.positives) + len(found.negatives))


def all_positive_f1(found: Classes) -> float:
    """Return the F1 of calling every pair positive: what any threshold has to beat."""
    return decided(Confusion(len(found.positives), len(found.negatives), 0, 0))["f1"]


def best_threshold(found: Classes) -> float:
    """Return the threshold with the best (F1, precision, recall, accuracy, highest threshold).

    Candidates are the distinct scores, the midpoints between them and the two ends. A midpoint
    decides as the score above it does and is lower, so only scores and the upper end can win.
    """
    import numpy as np

    every = np.concatenate([found.positives, found.negatives])
    highest = np.nextafter(every.max(), np.inf)
    candidates = np.append(np.unique(every), highest)
    fn = np.searchsorted(found.positives, candidates, side="left")
    tn = np.searchsorted(found.negatives, candidates, side="left")
    tp, fp = len(found.positives) - fn, len(found.negatives) - tn
    keys = (
        candidates,
        (tp + tn) / len(every),
        _shares(tp, tp + fn),
        _shares(tp, tp + fp),
        _shares(2 * tp, 2 * tp + fp + fn),
    )
    return float(candidates[np.lexsort(keys)[-1]])


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _shares(part: NDArray[int64], whole: NDArray[int64]) -> NDArray[float64]:
    import numpy as np

    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
