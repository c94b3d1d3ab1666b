"""Run methods of our own: a source is prepared once, batches go to all processes granted.

Processes are forked after the sources are prepared, so these are shared and not copied.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

from similarity.hashing import StaticHash
from similarity.tiling import Tiling
from similarity.winnowing import Winnowing

METHODS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "winnowing": Winnowing,
    "gst": Tiling,
    "static-hash": StaticHash,
}
_SMALL = 256  # pairs that are not worth a second process
_state: dict[str, Any] = {}


class Own:
    """A scorer of batches of pairs of texts."""

    batch = 4096

    def __init__(self, name: str, threads: int, config: dict[str, Any]) -> None:
        self._method = METHODS[name](config)
        self._threads = threads
        self._prepared: dict[str, Any] = {}
        self._pool: Any = None

    def learn(self, texts: Sequence[str]) -> None:
        """Prepare texts before the processes are forked."""
        for text in texts:
            if text not in self._prepared:
                self._prepared[text] = self._method.prepare(text)
        self._keys = {text: number for number, text in enumerate(self._prepared)}
        _state["method"], _state["prepared"] = self._method, list(self._prepared.values())

    def similarities(self, left: Sequence[str], right: Sequence[str]) -> list[float]:
        """Return one score a pair of texts that were learnt."""
        keys = self._keys
        work = [(keys[one], keys[other]) for one, other in zip(left, right, strict=True)]
        if self._threads == 1 or len(work) < _SMALL:
            return _compare(work)
        if self._pool is None:
            self._pool = multiprocessing.get_context("fork").Pool(self._threads)
        size = -(-len(work) // (4 * self._threads))
        parts = [work[at : at + size] for at in range(0, len(work), size)]
        return [score for part in self._pool.map(_compare, parts, chunksize=1) for score in part]

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool.join()


def _compare(work: list[tuple[int, int]]) -> list[float]:
    method, prepared = _state["method"], _state["prepared"]
    return [method.compare(prepared[one], prepared[other]) for one, other in work]
