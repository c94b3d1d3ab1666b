"""Edit distances and token ratios by rapidfuzz, on whole batches and as many threads as granted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rapidfuzz import fuzz, process
from rapidfuzz.distance import Indel, Jaro, JaroWinkler, LCSseq, Levenshtein

#: Method -> (rapidfuzz's scorer, what its scores are out of).
SCORERS: dict[str, tuple[Callable[..., Any], float]] = {
    "levenshtein": (Levenshtein.normalized_similarity, 1.0),
    "lcs": (LCSseq.normalized_similarity, 1.0),
    "indel": (Indel.normalized_similarity, 1.0),
    "jaro": (Jaro.normalized_similarity, 1.0),
    "jaro-winkler": (JaroWinkler.normalized_similarity, 1.0),
    "token-set": (fuzz.token_set_ratio, 100.0),
    "token-sort": (fuzz.token_sort_ratio, 100.0),
}


class Edit:
    """A scorer of batches of pairs of texts."""

    batch = 4096

    def __init__(self, name: str, threads: int, config: dict[str, Any]) -> None:
        self._scorer, self._whole = SCORERS[name]
        self._threads = threads
        self._options = dict(config)

    def similarities(self, left: Sequence[str], right: Sequence[str]) -> list[float]:
        """Return one score a pair."""
        found = process.cpdist(
            left,
            right,
            scorer=self._scorer,
            scorer_kwargs=self._options,
            dtype=np.float64,
            workers=self._threads,
        )
        scores: list[float] = (found / self._whole).tolist()
        return scores
