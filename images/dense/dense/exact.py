"""The exact best k by dot product: every document is looked at, none is approximated.

A float32 product finds the candidates: all whose score is within the rounding error of the k-th.
Their scores are then summed again in float64, each by itself and in one order. So the result
depends on no BLAS, no number of threads and no place in the matrix, and equal documents tie to the
last bit, where the ids decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dense.vectors import Vectors

#: Rounding of a float32 dot product of n terms is below n * 2**-24 * |a| * |b|, on either side.
_UNIT = 2.0**-24
#: Scores that are held at a time: 64 MiB.
_BLOCK_SCORES = 1 << 24

Hits = list[tuple[str, float]]


class ExactIndex:
    """Documents as the rows of a matrix, with their ids."""

    def __init__(self, vectors: Vectors, ids: Sequence[str]) -> None:
        if vectors.ndim != 2 or len(vectors) != len(ids):
            raise ValueError(f"{len(ids)} ids for vectors of shape {vectors.shape}")
        self._vectors, self._ids = np.ascontiguousarray(vectors, dtype=np.float32), list(ids)
        self._longest = float(np.sqrt(np.einsum("ij,ij->i", vectors, vectors).max(initial=0.0)))
        # The place of each id in string order: ties are decided by comparing numbers.
        self._rank = np.empty(len(ids), dtype=np.int64)
        self._rank[sorted(range(len(ids)), key=self._ids.__getitem__)] = np.arange(len(ids))

    def __len__(self) -> int:
        return len(self._ids)

    def top(self, queries: Vectors, k: int) -> list[Hits]:
        """Return the best ``k`` of each query (one row each): score descending, then id ascending.

        Scores are float64 dot products of the float32 vectors. Fewer than ``k`` where there are
        fewer documents.
        """
        if queries.ndim != 2 or queries.shape[1] != self._vectors.shape[1]:
            raise ValueError(
                f"queries of shape {queries.shape} for vectors of shape {self._vectors.shape}"
            )
        if not self._ids or k < 1:
            return [[] for _ in queries]
        step = max(1, _BLOCK_SCORES // len(self._ids))
        found: list[Hits] = []
        for start in range(0, len(queries), step):
            found += self._block(queries[start : start + step], min(k, len(self._ids)))
        return found

    def _block(self, queries: Vectors, k: int) -> list[Hits]:
        scores = queries @ self._vectors.T
        count = len(self._ids)
        lengths = np.sqrt(np.einsum("ij,ij->i", queries, queries))
        margin = 2 * queries.shape[1] * _UNIT * lengths * self._longest
        kth = np.partition(scores, count - k, axis=1)[:, count - k] if k < count else -np.inf
        # Looking for true values in one flat list is four times faster than in a matrix.
        close = np.flatnonzero(scores >= np.reshape(kth - margin, (-1, 1)))
        asked, documents = np.divmod(close, count)
        exact = np.einsum(
            "ij,ij->i", queries.astype(np.float64)[asked], self._vectors[documents], optimize=False
        )
        order = np.lexsort((self._rank[documents], -exact, asked))
        names, values = documents[order].tolist(), exact[order].tolist()
        ends = np.searchsorted(asked, np.arange(len(queries) + 1)).tolist()
        ids = self._ids
        return [
            [(ids[names[at]], values[at]) for at in range(start, min(start + k, end))]
            for start, end in pairwise(ends)
        ]
