"""The lexical methods: equal to their references, exact in ties, unmoved by odd inputs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from methods import fts5, lucene, okapi, tfidf
from methods.postings import Scorer, index
from methods.text import words
from methods.top import top
from rank_bm25 import BM25Okapi
from sealbench_sdk import Document, Query, Ranking, Task

METHODS = [okapi, lucene, tfidf, fts5]
ODD_QUERIES = ["", " ", "!!!", "_", "zzz", '" OR * NEAR( ^', "a AND b", "x\0y", "🦑", "w " * 3000]

texts = st.lists(st.sampled_from(["ab", "cd", "ef", "gh", "ij"]), max_size=8).map(" ".join)


def answers(
    method: ModuleType, documents: dict[str, str], *queries: str, top_k: int = 10, **config: Any
) -> list[Ranking]:
    corpus = [Document(ident, "", text) for ident, text in documents.items()]
    task = Task(
        task="retrieval",
        dataset="tiny",
        seed=0,
        top_k=top_k,
        config=config,
        options={},
        queries=len(queries),
        documents=len(corpus),
        threads=1,
    )
    answer = method.prepare(task, corpus)
    return [answer(Query(f"q{n}", text)) for n, text in enumerate(queries)]


def test_words() -> None:
    assert words("Don't STOP_it, Ünïcode 42!") == ["don", "t", "stop_it", "ünïcode", "42"]


@settings(max_examples=200, deadline=None)
@given(st.lists(texts, min_size=1, max_size=8), texts)
def test_okapi_scores_are_rank_bm25s(documents: list[str], query: str) -> None:
    tokens = [words(text) for text in documents]
    if not any(tokens):
        return
    postings = index(tokens)
    weights = okapi.okapi_weights(postings, k1=1.5, b=0.75, epsilon=0.25)
    scores, matched = Scorer(postings, weights).score(words(query))
    expected = BM25Okapi(tokens).get_scores(words(query))
    assert np.allclose(scores, expected, rtol=0, atol=1e-9)
    wanted = set(words(query))
    assert matched.tolist() == [bool(wanted & set(document)) for document in tokens]


@pytest.mark.parametrize("dense_bytes", [0, 8 * 40, 1 << 20])
def test_rows_for_frequent_words_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, dense_bytes: int
) -> None:
    source = np.random.default_rng(1)
    tokens = [[f"w{w}" for w in source.zipf(1.5, size=30) if w < 200] for _ in range(20)]
    postings = index(tokens)
    weights = okapi.okapi_weights(postings, k1=1.5, b=0.75, epsilon=0.25)
    plain = Scorer(postings, weights)
    monkeypatch.setattr("methods.postings.DENSE_BYTES", dense_bytes)
    other = Scorer(postings, weights)
    for query in tokens:
        assert plain.score(query)[0].tobytes() == other.score(query)[0].tobytes()
        assert plain.score(query)[1].tolist() == other.score(query)[1].tolist()


def test_weights_that_cancel_still_match() -> None:
    postings = index([["a", "b"], ["c"]])
    weights = np.array([1.0, -1.0, 1.0])
    scores, matched = Scorer(postings, weights).score(["a", "b"])
    assert scores.tolist() == [0.0, 0.0]
    assert matched.tolist() == [True, False]


@settings(max_examples=50, deadline=None)
@given(st.lists(texts, max_size=8), st.lists(texts, min_size=1, max_size=4))
def test_both_backends_of_okapi_give_one_ranking(documents: list[str], queries: list[str]) -> None:
    named = {f"d{n}": text for n, text in enumerate(documents)}
    sparse = answers(okapi, named, *queries, backend="sparse")
    reference = answers(okapi, named, *queries, backend="rank_bm25")
    for ours, theirs in zip(sparse, reference, strict=True):
        assert [ident for ident, _ in ours] == [ident for ident, _ in theirs]
        assert [s for _, s in ours] == pytest.approx([s for _, s in theirs], abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "documents",
    [
        {},
        {"only": ""},
        {"only": "squid ink"},
        {"a": "", "b": "", "c": "squid"},
        {"a": "...", "b": "\0", "c": '"'},
    ],
)
def test_no_corpus_and_no_query_crashes_a_method(
    method: ModuleType, documents: dict[str, str]
) -> None:
    for ranking in answers(method, documents, *ODD_QUERIES, "squid"):
        assert {ident for ident, _ in ranking} <= documents.keys()
        assert all(np.isfinite(score) for _, score in ranking)


@pytest.mark.parametrize("method", METHODS)
def test_only_documents_with_a_word_of_the_query_are_ranked(method: ModuleType) -> None:
    documents = {"a": "squid ink pasta", "b": "octopus", "c": "squid", "d": "", "e": "bread here"}
    found, nothing, shouted = answers(method, documents, "squid", "unknown words", "SQUID?!")
    assert sorted(ident for ident, _ in found) == ["a", "c"]
    assert found[0][0] == "c", "the shorter document is the better match"
    assert nothing == []
    assert shouted == found


@pytest.mark.parametrize("method", METHODS)
def test_equal_documents_are_ranked_by_id_and_cut_at_k(method: ModuleType) -> None:
    documents = dict.fromkeys(("9", "10", "b", "a", "B"), "squid ink")
    documents |= {f"z{n}": "other things entirely" for n in range(20)}
    (ranking,) = answers(method, documents, "squid ink", top_k=3)
    assert [ident for ident, _ in ranking] == ["10", "9", "B"]
    assert len({score for _, score in ranking}) == 1


@given(
    st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 1.0, 1.5, 2.0]), st.booleans()), max_size=30),
    st.integers(1, 12),
)
def test_top_is_a_full_sort_cut_at_k(entries: list[tuple[float, bool]], k: int) -> None:
    ids = [f"d{(7 * n) % 31}" for n in range(len(entries))]
    scores = np.array([score * flag for score, flag in entries])
    matched = np.array([flag for _, flag in entries], dtype=np.bool_)
    kept = [(ids[n], s) for n, (s, flag) in enumerate(entries) if flag]
    assert top(scores, matched, ids, k) == sorted(kept, key=lambda p: (-p[1], p[0]))[:k]


def test_top_does_not_hide_a_nan() -> None:
    with pytest.raises(ValueError, match="finite"):
        top(np.array([1.0, np.nan, 3.0]), np.ones(3, dtype=np.bool_), ["a", "b", "c"], 1)


@pytest.mark.parametrize("variant", ["lucene", "robertson", "atire"])
def test_variants_of_bm25s(variant: str) -> None:
    documents = {"a": "squid ink", "b": "bread", "c": "wine"}
    assert [[i for i, _ in r] for r in answers(lucene, documents, "squid", variant=variant)] == [
        ["a"]
    ]


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(KeyError):
        answers(okapi, {"a": "x"}, "x", backend="fast")


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("", ""),
        ("a b", '"a" OR "b"'),
        ('a" OR "b', '"a" OR "or" OR "b"'),
        ("col:x -y (z)*", '"col" OR "x" OR "y" OR "z"'),
    ],
)
def test_no_query_is_read_as_fts5_syntax(text: str, expression: str) -> None:
    assert fts5.match_expression(text) == expression


def test_the_tokenizer_of_fts5_can_be_chosen() -> None:
    documents = {"a": "running shoes", "b": "other"}
    assert answers(fts5, documents, "run", tokenizer="porter")[0][0][0] == "a"
    assert answers(fts5, documents, "run") == [[]]
