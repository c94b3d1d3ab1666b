"""The best k of many scores, exactly by the tie rule, without sorting them all."""

from __future__ import annotations

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
    for a score that is not finite.
    """
    candidates = np.flatnonzero(matched)
    kept = scores[candidates]
    if not np.isfinite(kept).all():
        raise ValueError("a score is not finite")
    if 0 < k < len(candidates):
        threshold = np.partition(kept, len(kept) - k)[len(kept) - k]
        candidates = candidates[kept >= threshold]
    return ranking(scores[candidates].tolist(), [ids[i] for i in candidates.tolist()], k)


def no_answer(_: Query) -> Ranking:
    """Answer for a corpus without a single word: nothing matches."""
    return []
