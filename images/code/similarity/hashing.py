"""A hashing vector baseline: tokens and pairs of tokens counted in buckets, compared by cosine.

A declared baseline and no embedding model: nothing is learnt, and equal counts mean equal texts to
it. Buckets come from blake2b, so no seed of the interpreter changes them.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

from similarity.text import tokens

Vector = dict[int, float]


class StaticHash:
    """The method with its settings."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._dimensions = int(config["dimensions"])

    def prepare(self, text: str) -> Vector:
        """Return the vector of a text, of length 1; empty for a text without tokens."""
        words = tokens(text)
        grams = [*words, *(f"{one}\x1f{two}" for one, two in pairwise(words))]
        counts = Counter(_bucket(gram, self._dimensions) for gram in grams)
        norm = math.sqrt(sum(count * count for count in counts.values()))
        return {bucket: count / norm for bucket, count in counts.items()}

    def compare(self, left: Vector, right: Vector) -> float:
        """Return the cosine; 1 for two texts without tokens."""
        if not left and not right:
            return 1.0
        if len(right) < len(left):
            left, right = right, left
        products = [value * right[bucket] for bucket, value in left.items() if bucket in right]
        # fsum is exact, whatever the order; the last bit may still lift equal vectors above 1.
        return min(1.0, math.fsum(products))


@cache
def _bucket(gram: str, dimensions: int) -> int:
    return (
        int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8).digest(), "big") % dimensions
    )
