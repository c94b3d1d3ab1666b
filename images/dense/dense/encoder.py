"""Tokens -> vectors with PyTorch on the CPU, so that a text's vector depends on the text alone.

Texts are encoded longest first in batches of *equal* token length: nothing is padded, so no text
sees how long its neighbours are. Each batch is computed by one thread; more threads compute more
batches at a time. Then a row of a matrix product comes out the same whatever the number of rows,
and a run that was killed and goes on gives the same bits as one that was not (a test in the image
compares a batch with its texts one by one). Splitting one batch among threads does not have that
property.

Importing this module imports no PyTorch: a run whose texts are all in the cache never does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from dense.adapter import put_adapter
from dense.snapshot import ModelError, Snapshot
from dense.vectors import Vectors

#: Set before PyTorch is loaded: its threads are ours, one batch each. Nothing asks a hub.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


#: A product of few rows (below 16, seen with AVX-512) is computed by other code, in another order:
#: a short text alone would get other bits than among others. So no batch has fewer tokens.
MIN_TOKENS = 64
#: Batches after which freed memory goes back to the system.
TRIM_EVERY = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Texts of one token length, by their places in the list that was given."""

    places: tuple[int, ...]
    tokens: int


def plan_batches(lengths: Sequence[int], batch_size: int) -> list[Batch]:
    """Group texts by token count, longest first, at most ``batch_size`` a batch. Pure.

    Longest first: what does not fit into memory fails at once and not after an hour.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, and must be at least 1")
    order = sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))
    batches: list[Batch] = []
    held: list[int] = []
    for place in order:
        if held and (lengths[held[0]] != lengths[place] or len(held) == batch_size):
            batches.append(Batch(places=tuple(held), tokens=lengths[held[0]]))
            held = []
        held.append(place)
    if held:
        batches.append(Batch(places=tuple(held), tokens=lengths[held[0]]))
    return batches


def filled(ids: list[Any]) -> list[Any]:
    """Return a batch with its texts repeated until it has ``MIN_TOKENS`` tokens. Pure."""
    return ids * -(-MIN_TOKENS // (len(ids) * len(ids[0])))


class Encoder:
    """A transformer encoder from a snapshot. ``threads`` batches are computed at a time."""

    def __init__(self, snapshot: Snapshot, *, threads: int, batch_size: int) -> None:
        os.environ.update(_ENVIRONMENT)
        import torch
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(mode=True)
        self._torch, self.snapshot = torch, snapshot
        self._threads, self._batch_size = threads, batch_size
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(
                snapshot.folder, local_files_only=True
            )
            self._model: Any = AutoModel.from_pretrained(
                snapshot.folder, local_files_only=True, dtype=torch.float32
            )
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise ModelError(
                f"the files in {snapshot.folder} cannot be loaded ({type(error).__name__}):"
                " they are incomplete or of a kind that this image does not have"
            ) from error
        if snapshot.adapter is not None:
            put_adapter(self._model, snapshot.adapter)
        self._model.eval()
        self._pool = {"cls": _first, "mean": _mean, "max": _most}[snapshot.pooling]

    def tokenise(self, texts: Sequence[str], *, pairs: Sequence[str] | None = None) -> list[Any]:
        """Return the token ids (with special tokens, truncated) of each text."""
        if not texts:
            return []
        encoded = self._tokenizer(
            list(texts),
            None if pairs is None else list(pairs),
            truncation=True,
            max_length=self.snapshot.max_tokens,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        return list(encoded["input_ids"])

    def encode(self, tokens: Sequence[Any]) -> Iterator[tuple[Batch, Vectors]]:
        """Yield each batch with its vectors, in the order of ``plan_batches``."""
        batches = plan_batches([len(ids) for ids in tokens], self._batch_size)
        pool = ThreadPoolExecutor(
            self._threads, initializer=self._torch.set_num_threads, initargs=(1,)
        )
        try:
            work = [[tokens[place] for place in batch.places] for batch in batches]
            done = pool.map(self._one, work)
            for number, (batch, vectors) in enumerate(zip(batches, done, strict=True), 1):
                yield batch, vectors
                if number % TRIM_EVERY == 0:
                    _give_back_memory()
        finally:
            # A run that is stopped must not first compute all that was planned.
            pool.shutdown(wait=True, cancel_futures=True)

    def _one(self, ids: list[Any]) -> Vectors:
        torch, asked = self._torch, len(ids)
        with torch.inference_mode():
            batch = torch.tensor(filled(ids))
            states = self._model(
                input_ids=batch, attention_mask=torch.ones_like(batch)
            ).last_hidden_state
            pooled = self._pool(states[:asked])
            if self.snapshot.normalised:
                pooled = torch.nn.functional.normalize(pooled, p=2, dim=1)
            return np.asarray(pooled.numpy(), dtype=np.float32)


def _give_back_memory() -> None:
    """Every batch has a shape of its own, and the C library keeps what it freed of each: without
    this, encoding 5,000 abstracts takes 1.2 GB instead of 0.6."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc has it
        trim(0)


def _first(states: Any) -> Any:
    return states[:, 0]


def _mean(states: Any) -> Any:
    return states.mean(dim=1)


def _most(states: Any) -> Any:
    return states.max(dim=1).values
