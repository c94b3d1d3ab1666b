"""The best k of many scores, exactly by the tie rule, without sorting them all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sealbench_sdk import Query, Ranking, ranking


def top(
    scores: npt.NDArray[np.floating[Any]],
    matched: npt.NDArray[np.bool_],
    ids: Sequence[str],
    k: int,
) -> list[tuple[str, float]]:
    """Return the best ``k`` matched documents: score descending, id ascending.

    ``scores`` and ``matched`` have one entry a document. Every document that ties with the k-th
    score stays a candidate, so that the ids decide and not the partition's order. ``ValueError``
    for a score that is not finite. A document that did not match has score 0.
    """
    if not math.isfinite(scores.sum()):
        raise ValueError("a score is not finite")
    candidates = matched
    if 0 < k < len(scores):
        # A document that did not match has score 0, which is above a negative one that did.
        kept = scores if scores.min() >= 0 else np.where(matched, scores, -np.inf)
        threshold = np.partition(kept, len(kept) - k)[len(kept) - k]
        candidates = matched & (kept >= threshold)
    places = np.flatnonzero(candidates)
    return ranking(scores[places].tolist(), [ids[place] for place in places.tolist()], k)


def no_answer(_: Query) -> Ranking:
    """Answer for a corpus without a single word: nothing matches."""
    return []
