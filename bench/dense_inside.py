"""Runs inside the dense image: our encoding and search beside their peers, in turns.

Reads ``/in/texts.json`` and ``/in/asked.json`` ({"threads", "batch_size", "rounds"}), writes
``/out/found.json``. Wall times: sentence-transformers' threads spin while they wait, so CPU time
would flatter us.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

asked = json.loads(Path("/in/asked.json").read_bytes())
texts = json.loads(Path("/in/texts.json").read_bytes())

import numpy as np  # noqa: E402
from dense.embed import Embedder, EmbeddingConfig  # noqa: E402
from dense.exact import ExactIndex  # noqa: E402


def in_turns(rounds: int, sides: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median seconds of each side."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, act in sides.items():
            started = time.perf_counter()
            act()
            taken[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in taken.items()}


def encoding() -> dict[str, float]:
    """Ours with the cache's file, checks and fsyncs; theirs with nothing around it."""
    # Ours sets one thread for each of its workers when it loads PyTorch; theirs wants them all.
    ours = Embedder(EmbeddingConfig(batch_size=asked["batch_size"]), threads=asked["threads"])
    ours.embed(texts[:8], texts[:8])
    import torch
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(ours.snapshot.folder), device="cpu", local_files_only=True)
    expected: dict[str, Any] = {}
    number = 0

    def our_side() -> None:
        nonlocal number
        number += 1
        folder = Path(f"/out/cache{number}")
        folder.mkdir()
        with Embedder(
            EmbeddingConfig(batch_size=asked["batch_size"]),
            threads=asked["threads"],
            cache=folder,
            load=lambda *_, **__: ours.encoder,
        ) as embedder:
            expected["ours"] = embedder.embed(texts, texts)

    def their_side() -> None:
        torch.set_num_threads(asked["threads"])
        expected["theirs"] = peer.encode(
            texts, batch_size=asked["batch_size"], show_progress_bar=False
        )
        torch.set_num_threads(1)

    their_side()
    found = in_turns(asked["rounds"], {"ours": our_side, "theirs": their_side})
    found["difference"] = float(np.abs(expected["ours"] - expected["theirs"]).max())
    return found


def searching() -> dict[str, float]:
    """300 queries against 5,183 documents of 384 dimensions, ten best each."""
    random = np.random.default_rng(0)
    documents = random.normal(size=(5183, 384)).astype(np.float32)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    queries = documents[:300] + random.normal(size=(300, 384)).astype(np.float32) * 0.05
    index = ExactIndex(documents, [f"d{number}" for number in range(5183)])

    def plain() -> None:
        scores = queries @ documents.T
        np.argpartition(scores, -10, axis=1)[:, -10:]

    index.top(queries, 10)
    return in_turns(asked["rounds"] * 5, {"ours": lambda: index.top(queries, 10), "plain": plain})


Path("/out/found.json").write_text(
    json.dumps({"encoding": encoding(), "searching": searching(), "cpus": os.cpu_count()})
)
