"""Okapi BM25 as rank_bm25 defines it, over an inverted index; ``backend: rank_bm25`` is the oracle.

The weight of a word that stands in more than half of the documents would be negative; rank_bm25
gives it ``epsilon`` times the mean weight instead, and so does this. Scores are equal to
rank_bm25's to 1e-9 (a test). A document without any word of the query is not in the ranking.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sealbench_sdk import Answer, Document, Query, Ranking, Task, run

from methods.postings import Floats, Postings, Scorer, index
from methods.text import words
from methods.top import no_answer, top


def inverse_document_frequency(postings: Postings, epsilon: float) -> Floats:
    """Return the weight of each word, negative ones lifted to ``epsilon`` times the mean."""
    frequency = postings.document_frequency
    # Two logarithms, not the logarithm of the quotient: the reference's own rounding.
    idf = np.log(len(postings.lengths) - frequency + 0.5) - np.log(frequency + 0.5)
    if len(idf):
        # The mean is over the raw weights, in word order, as the reference sums them.
        idf[idf < 0] = epsilon * (sum(idf.tolist()) / len(idf))
    return np.asarray(idf, dtype=np.float64)


def okapi_weights(postings: Postings, *, k1: float, b: float, epsilon: float) -> Floats:
    """Return what each posting adds to a score."""
    idf = inverse_document_frequency(postings, epsilon)
    mean_length = postings.lengths.mean() if postings.lengths.sum() else 1.0
    norm = k1 * (1 - b + b * postings.lengths / mean_length)
    per_posting = np.repeat(idf, postings.document_frequency)
    counts = postings.counts
    return np.asarray(
        per_posting * (counts * (k1 + 1) / (counts + norm[postings.documents])), dtype=np.float64
    )


def _sparse(corpus: list[Document], top_k: int, config: Mapping[str, Any]) -> Answer:
    postings = index(words(document.content) for document in corpus)
    weights = okapi_weights(
        postings,
        k1=float(config.get("k1", 1.5)),
        b=float(config.get("b", 0.75)),
        epsilon=float(config.get("epsilon", 0.25)),
    )
    scorer = Scorer(postings, weights)
    ids = [document.id for document in corpus]

    def answer(query: Query) -> Ranking:
        scores, matched = scorer.score(words(query.text))
        return top(scores, matched, ids, top_k)

    return answer


def _reference(corpus: list[Document], top_k: int, config: Mapping[str, Any]) -> Answer:
    """Answer with the rank_bm25 package itself: slow, kept to check the other one against."""
    from rank_bm25 import BM25Okapi

    texts = [words(document.content) for document in corpus]
    if not any(texts):
        return no_answer
    model = BM25Okapi(
        texts,
        k1=float(config.get("k1", 1.5)),
        b=float(config.get("b", 0.75)),
        epsilon=float(config.get("epsilon", 0.25)),
    )
    held = [frozenset(tokens) for tokens in texts]
    ids = [document.id for document in corpus]

    def answer(query: Query) -> Ranking:
        tokens = words(query.text)
        wanted = frozenset(tokens)
        matched = np.array([not wanted.isdisjoint(document) for document in held], dtype=np.bool_)
        return top(np.asarray(model.get_scores(tokens)), matched, ids, top_k)

    return answer


_BACKENDS = {"sparse": _sparse, "rank_bm25": _reference}


def prepare(task: Task, corpus: list[Document]) -> Answer:
    """Build the index; ``config``: k1, b, epsilon, backend (``sparse`` or ``rank_bm25``)."""
    backend = _BACKENDS[str(task.config.get("backend", "sparse"))]
    return backend(corpus, task.top_k, task.config)


if __name__ == "__main__":
    run(prepare)
