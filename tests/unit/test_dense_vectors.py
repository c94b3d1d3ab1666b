"""Vectors, the exact search over them, and fusion: what needs numpy and no model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dense.exact import ExactIndex
from dense.fusion import fuse
from dense.texts import MAX_CHARACTERS, Role, text_hash
from dense.vectors import VectorError, check_vectors
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

NAMES = ["d1", "d2", "d3"]


def unit(*rows: list[float]) -> NDArray[np.float32]:
    matrix = np.array(rows, dtype=np.float32)
    return np.asarray(matrix / np.linalg.norm(matrix, axis=1, keepdims=True), dtype=np.float32)


def test_good_vectors_come_back_as_float32() -> None:
    vectors = unit([1, 0], [0, 1], [1, 1]).astype(np.float64)
    checked = check_vectors(vectors, NAMES, 2, normalised=True)
    assert checked.dtype == np.float32
    assert checked.flags.c_contiguous
    assert np.array_equal(checked, vectors.astype(np.float32))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.0, 0.0], "the vector of 'd2' is zero"),
        ([math.nan, 1.0], "the vector of 'd2' is not finite"),
        ([math.inf, 1.0], "the vector of 'd2' is not finite"),
        ([-math.inf, 1.0], "the vector of 'd2' is not finite"),
        ([2.0, 0.0], "the vector of 'd2' has length 2, not 1"),
    ],
)
def test_a_bad_vector_names_its_document(row: list[float], message: str) -> None:
    vectors = np.array([[1.0, 0.0], row, [0.0, 1.0]], dtype=np.float32)
    with pytest.raises(VectorError) as caught:
        check_vectors(vectors, NAMES, 2, normalised=True)
    assert str(caught.value) == message


def test_a_length_is_only_asked_of_models_that_normalise() -> None:
    check_vectors(np.array([[2.0, 0.0]], dtype=np.float32), ["d1"], 2, normalised=False)


@pytest.mark.parametrize(
    ("shape", "message"),
    [((3, 4), "'d1' has 4 dimensions, not 2"), ((3, 0), "'d1' is empty"), ((2, 2), "3 texts")],
)
def test_a_wrong_shape_is_refused(shape: tuple[int, int], message: str) -> None:
    with pytest.raises(VectorError, match=message):
        check_vectors(np.ones(shape, dtype=np.float32), NAMES, 2, normalised=False)


def test_no_documents_have_no_vectors() -> None:
    assert check_vectors(np.empty((0, 0)), [], 5, normalised=True).shape == (0, 5)


@pytest.mark.parametrize("count", [1, 2, 7, 60, 500])
@pytest.mark.parametrize("k", [1, 3, 10, 1000])
def test_the_search_is_exact(count: int, k: int) -> None:
    random = np.random.default_rng(count * 1000 + k)
    documents = random.normal(size=(count, 48)).astype(np.float32)
    queries = random.normal(size=(9, 48)).astype(np.float32)
    ids = [f"d{number}" for number in random.permutation(count)]
    found = ExactIndex(documents, ids).top(queries, k)
    exact = queries.astype(np.float64) @ documents.astype(np.float64).T
    for row, hits in zip(exact, found, strict=True):
        wanted = sorted(zip(ids, row, strict=True), key=lambda pair: (-pair[1], pair[0]))[:k]
        assert [ident for ident, _ in hits] == [ident for ident, _ in wanted]
        assert np.allclose([score for _, score in hits], [score for _, score in wanted], atol=1e-12)


def test_equal_documents_tie_to_the_last_bit_and_ids_decide() -> None:
    random = np.random.default_rng(3)
    one = random.normal(size=(1, 384)).astype(np.float32)
    others = random.normal(size=(50, 384)).astype(np.float32) * 0.01
    documents = np.concatenate([one, others[:25], one, others[25:], one])
    ids = ["z", *(f"o{n}" for n in range(25)), "b", *(f"o{n}" for n in range(25, 50)), "a"]
    (hits,) = ExactIndex(documents, ids).top(one, 2)
    assert [ident for ident, _ in hits] == ["a", "b"]
    assert hits[0][1] == hits[1][1]


def test_a_tie_at_the_cut_is_decided_by_the_ids_among_all_that_tie() -> None:
    documents = np.tile(unit([3, 4, 5]), (100, 1))
    ids = [f"{number:03d}" for number in range(99, -1, -1)]
    (hits,) = ExactIndex(documents, ids).top(unit([1, 1, 1]), 4)
    assert [ident for ident, _ in hits] == ["000", "001", "002", "003"]


def test_a_query_alone_and_among_others_has_one_answer() -> None:
    random = np.random.default_rng(5)
    index = ExactIndex(
        random.normal(size=(333, 384)).astype(np.float32), [str(n) for n in range(333)]
    )
    queries = random.normal(size=(17, 384)).astype(np.float32)
    together = index.top(queries, 10)
    assert together == [index.top(queries[n : n + 1], 10)[0] for n in range(17)]


def test_an_empty_corpus_and_a_single_document_are_fine() -> None:
    assert ExactIndex(np.empty((0, 2), dtype=np.float32), []).top(unit([1, 0]), 10) == [[]]
    (hits,) = ExactIndex(unit([1, 0]), ["only"]).top(unit([1, 0]), 10)
    assert hits == [("only", 1.0)]


def test_ids_that_look_like_numbers_are_ordered_as_strings() -> None:
    (hits,) = ExactIndex(np.tile(unit([1, 0]), (3, 1)), ["9", "10", "1e1"]).top(unit([1, 0]), 3)
    assert [ident for ident, _ in hits] == ["10", "1e1", "9"]


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 ids for vectors of shape"):
        ExactIndex(unit([1, 0]), ["a", "b"])
    with pytest.raises(ValueError, match="queries of shape"):
        ExactIndex(unit([1, 0]), ["a"]).top(unit([1, 0, 0]), 1)


def test_a_text_is_cut_before_its_prefix() -> None:
    role = Role(prefix="query: ")
    assert role.text("\U0001d518" * 800) == "query: " + "\U0001d518" * MAX_CHARACTERS
    assert Role(max_characters=0).text("x" * 5_000_000) == "x" * 5_000_000
    assert Role().text("") == ""


def test_a_hash_is_of_the_text_and_never_fails() -> None:
    assert text_hash("a") != text_hash("a ")
    assert len(text_hash("\ud800 lone, \u202eright to left, \U0001f600")) == 32


def test_fusion_adds_reciprocal_ranks_and_says_from_where() -> None:
    lists = {"fts": [("a", 9.0), ("b", 8.0)], "vector": [("b", 0.9), ("c", 0.8)]}
    fused = fuse(lists, {"fts": 1.0, "vector": 2.0}, k=60.0, top=10)
    assert fused.ranking == [("b", 1 / 62 + 2 / 61), ("c", 2 / 62), ("a", 1 / 61)]
    assert fused.evidence == {
        "fts_rank": [2, None, 1],
        "fts_score": [8.0, None, 9.0],
        "vector_rank": [1, 2, None],
        "vector_score": [0.9, 0.8, None],
    }


def test_fusion_breaks_ties_by_id_and_cuts() -> None:
    lists = {"fts": [("z", 1.0)], "vector": [("a", 1.0)]}
    fused = fuse(lists, {"fts": 1.0, "vector": 1.0}, k=60.0, top=1)
    assert [ident for ident, _ in fused.ranking] == ["a"]
    assert fused.evidence["fts_rank"] == [None]
    assert fuse({"fts": [], "vector": []}, {}, k=60.0, top=5).ranking == []


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), min_size=2, max_size=2),
    st.integers(1, 8),
)
def test_a_fused_score_can_be_added_up_from_its_evidence(lists: list[list[str]], top: int) -> None:
    named = {
        name: [(ident, float(-place)) for place, ident in enumerate(ids)]
        for name, ids in zip(("fts", "vector"), lists, strict=True)
    }
    fused = fuse(named, {"fts": 1.0, "vector": 1.0}, k=60.0, top=top)
    for place, (_, score) in enumerate(fused.ranking):
        ranks = [fused.evidence[f"{name}_rank"][place] for name in named]
        assert score == sum(1.0 / (60.0 + rank) for rank in ranks if rank is not None)
