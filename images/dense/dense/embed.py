"""Texts -> checked vectors, out of the cache where they are known, else by the model.

The model is loaded only when a text is unknown, so a warm run starts without PyTorch.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from dense.encoder import Batch, Encoder
from dense.snapshot import Snapshot, read_snapshot
from dense.store import EmbeddingStore
from dense.texts import text_hash
from dense.vectors import Vectors, check_vectors

CACHE = Path("/cache")
#: Texts that are tokenised together and, once embedded, surely on the disk.
CHUNK = 4096
TELL_S = 10.0
#: What decides the bits of a vector beside model and text.
PACKAGES = ("torch", "transformers", "tokenizers")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingConfig:
    """The part of a method's config that says how texts are embedded."""

    model: str = "minilm"
    token_pooling: str = "auto"  # noqa: S105 - how tokens become one vector
    max_tokens: int = 0
    batch_size: int = 32
    adapter: str = ""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> EmbeddingConfig:
        """Take one's own settings out of a task's config."""
        return cls(
            model=str(config.get("model", "minilm")),
            token_pooling=str(config.get("token_pooling", "auto")),
            max_tokens=int(config.get("max_tokens", 0)),
            batch_size=int(config.get("batch_size", 32)),
            adapter=str(config.get("adapter", "")),
        )


class Reader(Protocol):
    """What embeds: ``dense.encoder.Encoder``, or another that gives a text the same bits always."""

    def tokenise(self, texts: Sequence[str]) -> list[Any]:
        """Return what ``encode`` takes of each text."""

    def encode(self, tokens: Sequence[Any]) -> Iterator[tuple[Batch, Vectors]]:
        """Yield batches of texts, by their places in ``tokens``, with a vector each."""


class Embedder:
    """Embeds texts with one model. Use as a context manager: it holds the cache's file.

    ``cache`` None keeps vectors in memory only; by default ``/cache`` is used where it is mounted.
    ``load`` and ``snapshot`` are for models that are no encoder of the BERT family.
    """

    def __init__(
        self,
        config: EmbeddingConfig,
        *,
        threads: int,
        cache: Path | None = CACHE,
        load: Callable[..., Reader] = Encoder,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.snapshot = snapshot or read_snapshot(
            config.model,
            pooling=config.token_pooling,
            max_tokens=config.max_tokens,
            adapter=config.adapter,
        )
        self.known = self.computed = 0
        self._config, self._threads, self._load = config, threads, load
        self._encoder: Reader | None = None
        # Where nothing is mounted, /cache is a folder of the read-only image.
        folder = cache if cache is not None and os.access(cache, os.W_OK) else None
        self.store = EmbeddingStore(folder, store_settings(self.snapshot), self.snapshot.dimension)
        if self.store.dropped:
            _tell(f"cache: {self.store.dropped} bytes were torn or damaged and are left out")

    def __enter__(self) -> Embedder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.store.__exit__(kind, error, trace)

    def embed(self, texts: Sequence[str], names: Sequence[str]) -> Vectors:
        """Return one checked vector a text; ``VectorError`` names the first that is unusable."""
        keys = [text_hash(text) for text in texts]
        wanted = dict(zip(keys, zip(texts, names, strict=True), strict=True))
        missing = [(key, *pair) for key, pair in wanted.items() if key not in self.store]
        self.known += len(wanted) - len(missing)
        self._compute(missing)
        return check_vectors(
            self.store.take(keys),
            names,
            self.snapshot.dimension,
            normalised=self.snapshot.normalised,
        )

    @property
    def encoder(self) -> Reader:
        """The model, loaded at the first call."""
        if self._encoder is None:
            started = time.monotonic()
            self._encoder = self._load(
                self.snapshot, threads=self._threads, batch_size=self._config.batch_size
            )
            _tell(f"model loaded in {time.monotonic() - started:.1f} s")
        return self._encoder

    def _compute(self, missing: Sequence[tuple[bytes, str, str]]) -> None:
        if not missing:
            return
        started = told = time.monotonic()
        tokens = []
        for start in range(0, len(missing), CHUNK):
            tokens += self.encoder.tokenise([text for _, text, _ in missing[start : start + CHUNK]])
        done = 0
        for batch, vectors in self.encoder.encode(tokens):
            chosen = [missing[place] for place in batch.places]
            names = [name for _, _, name in chosen]
            # Before it is stored: a bad vector must not be there to be found next time.
            checked = check_vectors(
                vectors, names, self.snapshot.dimension, normalised=self.snapshot.normalised
            )
            self.store.append([key for key, _, _ in chosen], checked)
            done += len(chosen)
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                _tell(f"embedded {done} of {len(missing)} texts")
        self.computed += done
        seconds = time.monotonic() - started
        _tell(
            f"embedded {done} texts in {seconds:.1f} s ({done / max(seconds, 1e-9):.0f} a second)"
        )

    def summary(self) -> str:
        """Return one line that says with what and how much was embedded."""
        snapshot = self.snapshot
        return (
            f"model {snapshot.digest}, {snapshot.dimension} dimensions, {snapshot.pooling} pooling,"
            f" {'' if snapshot.normalised else 'not '}normalised, {snapshot.max_tokens} tokens,"
            f" batch size {self._config.batch_size}, {self._threads} threads:"
            f" {self.known} texts from the cache, {self.computed} embedded"
        )


def store_settings(snapshot: Snapshot) -> dict[str, Any]:
    """Return all that decides a vector beside the text: the key of the cache's file.

    Batch size and threads are not in it: they decide no bit (see ``dense.encoder``). The CPU's
    features are: PyTorch's kernels follow them.
    """
    return {
        "model": snapshot.digest,
        "pooling": snapshot.pooling,
        "normalised": snapshot.normalised,
        "max_tokens": snapshot.max_tokens,
        "dtype": "float32",
        "packages": {name: _version(name) for name in PACKAGES},
        "cpu": _cpu_features(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_features() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return platform.machine()
    flags = next(
        (line for line in text.splitlines() if line.lower().startswith(("flags", "features"))), ""
    )
    return hashlib.sha256(flags.encode()).hexdigest()[:16]


def _tell(line: str) -> None:
    """Progress goes to stderr, which is kept as a log. No text of the data is ever in it."""
    print(line, file=sys.stderr, flush=True)
