"""``python3 -m similarity METHOD``: answer whichever of the two tasks is asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from sealbench_sdk import ranking

from similarity.data import (
    batches,
    load_asked,
    load_pairs,
    load_texts,
    pair_lines,
    ranking_line,
    write_rows,
)
from similarity.text import normalised


class Scorer(Protocol):
    """What both families of methods offer."""

    batch: int

    def similarities(self, left: Sequence[str], right: Sequence[str]) -> list[float]: ...


def scorer_of(name: str, threads: int, config: dict[str, Any], texts: Sequence[str]) -> Scorer:
    """Return a method by name, ready for these texts."""
    from similarity.own import METHODS, Own

    if name in METHODS:
        own = Own(name, threads, config)
        own.learn(texts)
        return own
    from similarity.edit import Edit  # numpy and rapidfuzz: only for those that use them

    return Edit(name, threads, config)


def answer_pairs(name: str, threads: int, config: dict[str, Any]) -> Iterator[bytes]:
    """Yield the rows of the pair task."""
    texts = {source: normalised(text) for source, text in load_texts("sources.jsonl").items()}
    scorer = scorer_of(name, threads, config, list(texts.values()))
    for batch in batches(load_pairs(), scorer.batch):
        left = [texts[pair.left] for pair in batch]
        right = [texts[pair.right] for pair in batch]
        yield pair_lines([pair.id for pair in batch], scorer.similarities(left, right))


def answer_queries(name: str, threads: int, config: dict[str, Any]) -> Iterator[bytes]:
    """Yield the rows of the retrieval task: every document, best first."""
    corpus = {document: normalised(text) for document, text in load_texts("corpus.jsonl").items()}
    queries = {query: normalised(text) for query, text in load_texts("queries.jsonl").items()}
    ids, documents = list(corpus), list(corpus.values())
    scorer = scorer_of(name, threads, config, [*documents, *queries.values()])
    for query, text in queries.items():
        started = time.perf_counter_ns()
        scores = scorer.similarities([text] * len(documents), documents)
        ranked = ranking(scores, ids, len(ids))
        yield ranking_line(query, ranked, (time.perf_counter_ns() - started) / 1e6)


def main(name: str) -> None:
    """Answer what ``/in`` asks."""
    asked = load_asked()
    answer = answer_pairs if asked.task == "pair" else answer_queries
    write_rows(answer(name, asked.threads, asked.config))


if __name__ == "__main__":
    main(sys.argv[1])
