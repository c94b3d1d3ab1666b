"""Is this a vector that scores can be computed with? Whoever has a bad one is named."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]

#: How far the length of a normalised float32 vector may be from 1.
LENGTH_TOLERANCE = 1e-3


class VectorError(ValueError):
    """A vector is unusable; the message names the document or query and says why."""


def check_vectors(
    vectors: npt.NDArray[np.floating], names: Sequence[str], dimension: int, *, normalised: bool
) -> Vectors:
    """Return ``vectors`` (one row a name) as contiguous float32, or raise ``VectorError``.

    Refused: no numbers at all, another dimension, anything not finite, all zeros, and a length
    other than 1 where the model is said to normalise.
    """
    if vectors.ndim != 2 or len(vectors) != len(names):
        raise VectorError(f"{len(names)} texts have vectors of shape {vectors.shape}")
    if not len(names):
        return np.empty((0, dimension), dtype=np.float32)
    found = vectors.shape[1]
    if found == 0:
        raise VectorError(f"the vector of {names[0]!r} is empty")
    if found != dimension:
        raise VectorError(f"the vector of {names[0]!r} has {found} dimensions, not {dimension}")
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise VectorError(f"the vector of {names[int(np.argmin(finite))]!r} is not finite")
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    if not lengths.all():
        raise VectorError(f"the vector of {names[int(np.argmin(lengths))]!r} is zero")
    off = np.abs(lengths - 1.0)
    if normalised and off.max() > LENGTH_TOLERANCE:
        worst = int(np.argmax(off))
        raise VectorError(f"the vector of {names[worst]!r} has length {lengths[worst]:.6g}, not 1")
    return np.ascontiguousarray(vectors, dtype=np.float32)
