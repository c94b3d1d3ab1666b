"""Answering BM25 queries: our inverted index against rank_bm25's loop and against bm25s.

5,183 documents of about 200 words and 300 queries of 12 (SciFact's shape), words drawn by Zipf's
law. All sides get the same tokens and return the ten best; building the index is timed apart.
Ours and rank_bm25 must agree, which the run checks. bm25s keeps 32-bit scores and leaves ties as
they fall; ours keeps 64 bits and breaks them by id.
"""

from __future__ import annotations

import random
import sys
from itertools import accumulate as running_sum
from pathlib import Path
from typing import Any

from bench.measure import Stopwatch, print_ratio, scale_of, side

IMAGES = Path(__file__).resolve().parent.parent / "images"
VOCABULARY, DOCUMENTS, WORDS, QUERIES, QUERY_WORDS, TOP = 40_000, 5_183, 200, 300, 12, 10
#: Both fast sides answer the queries so often, because once is over before it can be measured.
ROUNDS = 20
Tokens = list[list[str]]


def texts(count: int, length: int, seed: int) -> Tokens:
    """Return made-up token lists, always the same ones."""
    source = random.Random(seed)  # noqa: S311 - made-up data
    weights = list(running_sum(1 / (rank + 1) for rank in range(VOCABULARY)))
    words = [f"w{number}" for number in range(VOCABULARY)]
    return [
        source.choices(words, cum_weights=weights, k=source.randrange(length // 2, 3 * length // 2))
        for _ in range(count)
    ]


def corpus_and_queries(scale: float) -> tuple[Tokens, Tokens, list[str]]:
    corpus = texts(int(DOCUMENTS * scale), WORDS, 1)
    return corpus, texts(QUERIES, QUERY_WORDS, 2), [f"d{number}" for number in range(len(corpus))]


def ours(watch: Stopwatch, scale: float, what: str) -> Any:
    """Time building (``index``) or answering (``answer``) with the image's own code."""
    sys.path[:0] = [str(IMAGES / "sdk"), str(IMAGES / "lexical")]
    from methods.okapi import okapi_weights
    from methods.postings import Scorer, index
    from methods.top import top

    corpus, queries, ids = corpus_and_queries(scale)
    with watch if what == "index" else Stopwatch():
        postings = index(corpus)
        scorer = Scorer(postings, okapi_weights(postings, k1=1.5, b=0.75, epsilon=0.25))
    with watch if what == "answer" else Stopwatch():
        for _ in range(ROUNDS):
            scored = (scorer.score(query) for query in queries)
            found = [top(scores, matched, ids, TOP) for scores, matched in scored]
    return found


def rank_bm25(watch: Stopwatch, scale: float, what: str) -> Any:
    """The same with rank_bm25's loop over documents."""
    import numpy as np
    from rank_bm25 import BM25Okapi

    corpus, queries, ids = corpus_and_queries(scale)
    with watch if what == "index" else Stopwatch():
        model = BM25Okapi(corpus, k1=1.5, b=0.75, epsilon=0.25)
    with watch if what == "answer" else Stopwatch():
        found = []
        for query in queries:
            scores = model.get_scores(query)
            best = np.argsort(-scores, kind="stable")[:TOP]
            found.append([(ids[number], float(scores[number])) for number in best])
    return found


def bm25s(watch: Stopwatch, scale: float, what: str) -> Any:
    """The same with bm25s (Lucene's variant: other scores, equal work)."""
    import bm25s as package

    corpus, queries, _ = corpus_and_queries(scale)
    with watch if what == "index" else Stopwatch():
        model = package.BM25(method="lucene", k1=1.5, b=0.75)
        model.index(corpus, show_progress=False)
    with watch if what == "answer" else Stopwatch():
        for _ in range(ROUNDS):
            model.retrieve(queries, k=TOP, show_progress=False)
    return None


def check(found: list[Any], expected: list[Any]) -> None:
    """Exit with a message unless every score is rank_bm25's."""
    for query, (ours_, theirs) in enumerate(zip(found, expected, strict=True)):
        pairs = zip(ours_, theirs, strict=True)
        if any(abs(score - other) >= 1e-9 for (_, score), (_, other) in pairs):
            raise SystemExit(f"query {query}: the scores differ from rank_bm25's")


def main(arguments: list[str] | None = None) -> int:
    """Run all sides and print each ratio; exit code 1 if a goal is missed."""
    scale = scale_of(arguments, __doc__ or "")
    met = []
    for what, rounds, loop_goal, peer_goal in (("index", 1, 1.0, 1.5), ("answer", ROUNDS, 80, 1.0)):
        mine = side(ours, scale, what)
        loop, peer = side(rank_bm25, scale, what), side(bm25s, scale, what)
        check(mine.value, loop.value)
        work = f"BM25 {what}"
        seconds, peer_seconds = mine.cpu_seconds / rounds, peer.cpu_seconds / rounds
        met.append(print_ratio(work, seconds, "rank_bm25", loop.cpu_seconds, loop_goal))
        met.append(print_ratio(work, seconds, "bm25s", peer_seconds, peer_goal))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
