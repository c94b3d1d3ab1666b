"""Retrieval by embeddings alone: the exact best documents by dot product.

Documents and queries are embedded before the first answer; a query that was not embedded then is
refused, never embedded in some other way. ``latency_ms`` is the exact search with the embedding at
hand; with ``query_encoding: timed`` it is that and the encoding of the query.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sealbench_sdk import Document, Query, Task

from dense.answers import Answer, Found, run
from dense.embed import Embedder, EmbeddingConfig
from dense.exact import ExactIndex, Hits
from dense.texts import MAX_CHARACTERS, Role, text_hash
from dense.vectors import Vectors, check_vectors


class UnknownQueryError(LookupError):
    """A query was asked whose text is not among those that were embedded."""


class VectorSearch:
    """The documents' vectors, and those of the queries by the hash of their text."""

    def __init__(
        self, embedder: Embedder, task: Task, corpus: Sequence[Document], queries: Sequence[Query]
    ) -> None:
        config = task.config
        cut = int(config.get("max_characters", MAX_CHARACTERS))
        documents = Role(prefix=str(config.get("document_prefix", "")), max_characters=cut)
        self._role = Role(prefix=str(config.get("query_prefix", "")), max_characters=cut)
        self._embedder = embedder
        self._timed = str(config.get("query_encoding", "before")) == "timed"
        ids = [document.id for document in corpus]
        self._index = ExactIndex(
            embedder.embed([documents.text(document.content) for document in corpus], ids), ids
        )
        texts = [self._role.text(query.text) for query in queries]
        vectors = embedder.embed(texts, [query.id for query in queries])
        self._known = {
            text_hash(text): vector[None, :] for text, vector in zip(texts, vectors, strict=True)
        }

    def search(self, query: Query, k: int) -> Hits:
        """Return the best ``k`` documents; ``UnknownQueryError`` for a text not embedded before."""
        text = self._role.text(query.text)
        vector = self._known.get(text_hash(text))
        if vector is None:
            raise UnknownQueryError(f"query {query.id!r} was not embedded with the others")
        if self._timed:
            vector = self._encode(text, query.id)
        return self._index.top(vector, k)[0]

    def _encode(self, text: str, name: str) -> Vectors:
        """Encode one query now: its vector is the stored one again, whatever was beside it then."""
        encoder, snapshot = self._embedder.encoder, self._embedder.snapshot
        ((_, vectors),) = encoder.encode(encoder.tokenise([text]))
        return check_vectors(vectors, [name], snapshot.dimension, normalised=snapshot.normalised)


@contextmanager
def prepare(task: Task, corpus: list[Document], queries: list[Query]) -> Iterator[Answer]:
    """Embed everything; ``config``: see ``image.toml``."""
    with Embedder(EmbeddingConfig.of(task.config), threads=task.threads) as embedder:
        search = VectorSearch(embedder, task, corpus, queries)
        print(embedder.summary(), file=sys.stderr, flush=True)
        yield lambda query: Found(ranking=search.search(query, task.top_k))


if __name__ == "__main__":
    run(prepare)
