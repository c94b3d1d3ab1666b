"""Greedy string tiling: cover both token sequences with the longest common pieces first.

A tile is a common piece of at least ``minimum`` tokens that no earlier tile overlaps; of equally
long ones the left-most in the first text, then in the second, is taken. The similarity is twice the
covered tokens by all tokens of both. Instead of searching again after every tile, all maximal
matches are found once and wait in a heap; one that a tile has cut comes back as what is left of it.

Wise: String Similarity via Greedy String Tiling and Running Karp-Rabin Matching, 1993.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from similarity.text import tokens

Match = tuple[int, int, int]  # (-length, start in the first, start in the second)


class Tiling:
    """The method with its settings."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._minimum = int(config["minimum"])

    def prepare(self, text: str) -> list[str]:
        """Return the tokens of a text."""
        return tokens(text)

    def compare(self, left: list[str], right: list[str]) -> float:
        """Return the share of tokens that tiles cover; 1 for two texts without tokens."""
        total = len(left) + len(right)
        if not total:
            return 1.0
        return 2 * covered(left, right, self._minimum) / total


def covered(left: Sequence[str], right: Sequence[str], minimum: int) -> int:
    """Return how many tokens of either sequence the tiles cover."""
    waiting = list(maximal_matches(left, right, minimum))
    heapq.heapify(waiting)
    free_left, free_right = bytearray(b"\1" * len(left)), bytearray(b"\1" * len(right))
    count = 0
    while waiting:
        negative, at, to = heapq.heappop(waiting)
        length = -negative
        pieces = list(_free_pieces(free_left, free_right, (at, to, length)))
        if pieces == [(0, length)]:
            free_left[at : at + length] = bytes(length)
            free_right[to : to + length] = bytes(length)
            count += length
            continue
        for begin, size in pieces:
            if size >= minimum:
                heapq.heappush(waiting, (-size, at + begin, to + begin))
    return count


def maximal_matches(left: Sequence[str], right: Sequence[str], minimum: int) -> Iterator[Match]:
    """Yield every common piece of at least ``minimum`` tokens that neither end can grow."""
    places: dict[tuple[str, ...], list[int]] = {}
    for to in range(len(right) - minimum + 1):
        places.setdefault(tuple(right[to : to + minimum]), []).append(to)
    for at in range(len(left) - minimum + 1):
        for to in places.get(tuple(left[at : at + minimum]), ()):
            if at and to and left[at - 1] == right[to - 1]:
                continue  # a part of the match that began earlier
            length = minimum
            room = min(len(left) - at, len(right) - to)
            while length < room and left[at + length] == right[to + length]:
                length += 1
            yield -length, at, to


def _free_pieces(
    left: bytearray, right: bytearray, match: tuple[int, int, int]
) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of the pieces of a match that no tile has covered yet."""
    at, to, length = match
    begin = None
    for offset in range(length):
        if left[at + offset] and right[to + offset]:
            if begin is None:
                begin = offset
        elif begin is not None:
            yield begin, offset - begin
            begin = None
    if begin is not None:
        yield begin, length - begin
