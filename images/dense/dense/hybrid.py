"""Full text and embeddings together: reciprocal rank fusion of ``fts_only`` and ``vector_only``.

Both parts are the methods themselves, asked for ``depth`` documents each. A row's evidence has the
rank and score of each document in both lists.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from methods import fts5
from sealbench_sdk import Document, Query, Task

from dense.answers import Answer, Found, run
from dense.embed import Embedder, EmbeddingConfig
from dense.fusion import fuse
from dense.vector_only import VectorSearch


@contextmanager
def prepare(task: Task, corpus: list[Document], queries: list[Query]) -> Iterator[Answer]:
    """Build both parts; ``config``: see ``image.toml``."""
    config = task.config
    depth = max(int(config.get("depth", 100)), task.top_k)
    k = float(config.get("rrf_k", 60.0))
    weights = {
        "fts": float(config.get("fts_weight", 1.0)),
        "vector": float(config.get("vector_weight", 1.0)),
    }
    full_text = fts5.prepare(replace(task, top_k=depth), corpus)
    with Embedder(EmbeddingConfig.of(config), threads=task.threads) as embedder:
        search = VectorSearch(embedder, task, corpus, queries)
        print(embedder.summary(), file=sys.stderr, flush=True)

        def answer(query: Query) -> Found:
            lists = {"fts": full_text(query), "vector": search.search(query, depth)}
            fused = fuse(lists, weights, k=k, top=task.top_k)
            return Found(ranking=fused.ranking, evidence=fused.evidence)

        yield answer


if __name__ == "__main__":
    run(prepare)
