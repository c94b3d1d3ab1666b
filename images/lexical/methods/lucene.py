"""BM25 by the bm25s package (its ``lucene`` variant by default), same tokens as ``okapi``.

A document whose score is zero (no word of the query, or weightless ones only) is not in the
ranking. bm25s keeps scores as float32.
"""

from __future__ import annotations

import bm25s
import numpy as np
from sealbench_sdk import Answer, Document, Query, Ranking, Task, run

from methods.text import words
from methods.top import no_answer, top


def prepare(task: Task, corpus: list[Document]) -> Answer:
    """Build the index; ``config``: k1, b, variant (lucene, robertson, atire)."""
    texts = [words(document.content) for document in corpus]
    if not any(texts):
        return no_answer
    model = bm25s.BM25(
        method=str(task.config.get("variant", "lucene")),
        k1=float(task.config.get("k1", 1.5)),
        b=float(task.config.get("b", 0.75)),
    )
    model.index(texts, show_progress=False)
    known = frozenset(token for tokens in texts for token in tokens)
    ids = [document.id for document in corpus]

    def answer(query: Query) -> Ranking:
        tokens = [token for token in words(query.text) if token in known]
        if not tokens:
            return []
        scores = np.asarray(model.get_scores(tokens))
        return top(scores, scores > 0, ids, task.top_k)

    return answer


if __name__ == "__main__":
    run(prepare)
