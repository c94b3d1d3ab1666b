"""Winnowing: fingerprints that two texts must share wherever they share enough tokens.

Every ``k`` tokens are hashed; of every ``window`` hashes in a row the smallest is kept, the
right-most where several are. The similarity is the Jaccard index of the two sets. A text of fewer
tokens than ``k`` has no fingerprint; two such texts are similar only if they are equal.

Schleimer, Wilkerson, Aiken: Winnowing: Local Algorithms for Document Fingerprinting, SIGMOD 2003.
"""

from __future__ import annotations

import hashlib
from typing import Any

from similarity.text import tokens

Print = tuple[frozenset[int], str]


class Winnowing:
    """The method with its settings."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._k, self._window = int(config["k"]), int(config["window"])

    def prepare(self, text: str) -> Print:
        """Return the fingerprints of a text, and the text for when there are none."""
        hashes = k_gram_hashes(tokens(text), self._k)
        return frozenset(winnow(hashes, self._window)), text if not hashes else ""

    def compare(self, left: Print, right: Print) -> float:
        """Return the Jaccard index of two sets of fingerprints."""
        union = len(left[0] | right[0])
        if not union:
            return float(left[1] == right[1])
        return len(left[0] & right[0]) / union


def k_gram_hashes(words: list[str], k: int) -> list[int]:
    """Return a 64-bit hash of every ``k`` tokens in a row."""
    return [
        int.from_bytes(
            hashlib.blake2b("\x1f".join(words[at : at + k]).encode(), digest_size=8).digest(), "big"
        )
        for at in range(len(words) - k + 1)
    ]


def winnow(hashes: list[int], window: int) -> set[int]:
    """Return the smallest hash of every window, of a short text the smallest of all."""
    if not hashes:
        return set()
    last = max(1, len(hashes) - window + 1)
    # Which of several equal hashes is kept makes no difference to the set, only to positions.
    return {min(hashes[at : at + window]) for at in range(last)}
