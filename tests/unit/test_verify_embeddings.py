"""Which embedding scores are computed again, and how they are judged: tables, without an engine."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from runner.model import ImagePin, Limits, MethodPlan, NetworkPolicy
from runner.verify.embeddings import (
    PARTS,
    Listed,
    UnitComparison,
    batches,
    compare_query,
    judge,
    listed,
    sample,
    scores_of,
    unfit,
)

DIGEST = "ab" * 32
QUERIES = [str(number) for number in range(300)]
UNIT = UnitComparison(method="m", dataset="d", repeat=0, queries=("1", "2"), scores=20)


def test_the_sample_follows_from_the_digest_and_a_larger_one_holds_it() -> None:
    found = sample(DIGEST, "scifact", QUERIES, 20)
    assert found == sample(DIGEST, "scifact", reversed(QUERIES), 20)
    assert sample(DIGEST, "scifact", QUERIES, 30)[:20] == found
    assert len(set(found)) == 20
    assert found != sample("cd" * 32, "scifact", QUERIES, 20)
    assert found != sample(DIGEST, "other", QUERIES, 20)
    assert sorted(sample(DIGEST, "scifact", QUERIES, 1000)) == sorted(QUERIES)
    # By hand, so that another program can find the sample again.
    head = f"sealbench/embedding-sample/v1\n{DIGEST}\nscifact\n"
    first = min(QUERIES, key=lambda query: hashlib.sha256((head + query).encode()).digest())
    assert found[0] == first


@pytest.mark.parametrize(
    ("wanted", "most", "parts"),
    [
        ({}, 10, []),
        ({"a": "xy", "b": "yz"}, 6, [["a", "b"]]),
        ({"a": "xy", "b": "yz"}, 5, [["a"], ["b"]]),
        ({"a": "xy", "b": "xy", "c": "xy"}, 4, [["a", "b"], ["c"]]),
        ({"a": "uvwxyz"}, 1, [["a"]]),  # one query is never parted
    ],
)
def test_parts_stay_below_the_bound(wanted: Any, most: int, parts: list[list[str]]) -> None:
    assert batches(wanted, most) == parts


def row(**members: Any) -> dict[str, Any]:
    ranking = [["b", 0.5], ["a", 0.5], ["c", 0.9], ["d", 0.1]]
    return {"query_id": "1", "ranking": ranking, "error": None, **members}


EVIDENCE = {
    "vector_rank": [2, None, 7, 1],
    "vector_score": [0.7, None, 0.2, 0.8],
    "fts_rank": [1, 2, None, 3],
}


def test_what_a_row_says_of_its_documents() -> None:
    assert listed(row(), None, 3) == (("c", 0.9, 1), ("a", 0.5, 2), ("b", 0.5, 3))
    assert listed(row(evidence=EVIDENCE), "vector", 4) == (
        ("d", 0.8, 1), ("b", 0.7, 2), ("c", 0.2, 7), ("a", None, None),
    )  # fmt: skip
    assert listed(row(), "vector", 4) is None
    assert listed(row(ranking=[]), None, 4) == ()
    assert scores_of(row(evidence=EVIDENCE), "vector") == {"d": 0.8, "b": 0.7, "c": 0.2}
    assert scores_of(row(), "vector") is None


SEALED = (Listed("a", 0.9, 1), Listed("b", 0.5, 2), Listed("c", None, None))
SAME = {"a": 0.9, "b": 0.5, "c": 0.2, "x": 0.1}


@pytest.mark.parametrize(
    ("again", "tolerance", "moved", "words"),
    [
        (SAME, 1e-9, 0, []),
        ({**SAME, "a": 0.9 + 1e-12}, 1e-9, 1, []),
        ({**SAME, "a": 0.8}, 1e-9, 1, ["a: sealed 0.9, recomputed 0.8"]),
        ({**SAME, "a": 0.8}, None, 1, []),  # judged by nobody
        ({"b": 0.5, "c": 0.2}, 1e-9, 0, ["a: sealed 0.9, and recomputed it is not among"]),
        ({**SAME, "x": 0.95}, 1e-9, 0, ["a: ranked 1, and 1 documents score higher"]),
        ({**SAME, "c": 0.6}, 1e-9, 0, ["b: ranked 2, and 2 documents score", "c: not ranked"]),
        ({**SAME, "x": 0.6}, 1e-9, 0, ["b: ranked 2, and 2 documents score"]),
        ({**SAME, "x": 0.5}, 1e-9, 0, []),  # a tie is not better
        ({**SAME, "b": 0.5 - 1e-10, "x": 0.5}, 1e-9, 1, []),  # within what both may have moved
    ],
)
def test_bits_first_then_the_tolerance_then_the_order(
    again: dict[str, float], tolerance: float | None, moved: int, words: list[str]
) -> None:
    found = compare_query(SEALED, again, tolerance)
    texts = [f"{problem.document}: {problem.message}" for problem in found.problems]
    assert (found.scores, found.moved) == (2, moved)
    assert all(any(text.startswith(word) for text in texts) for word in words), texts
    assert bool(texts) == bool(words), texts


def test_equal_scores_under_other_ranks_are_seen() -> None:
    swapped = (Listed("b", 0.5, 1), Listed("a", 0.9, 2))
    (first, *_) = compare_query(swapped, SAME, 1e-9).problems
    assert first.document == "a"
    assert first.message == "ranked 2, with 0.9 recomputed; 'b' before it has 0.5"


@pytest.mark.parametrize(
    ("unit", "tolerance", "holds", "words"),
    [
        ({}, 1e-9, True, "2 queries x 1 method, 20 scores recomputed: identical"),
        ({"moved": 3, "largest": 2e-12}, 1e-9, True, "3 moved, by at most 2e-12, within the"),
        ({"moved": 3, "largest": 2e-12}, None, None, "the protocol has no tolerance"),
        ({"moved": 3, "differing": 1}, 1e-9, False, "1 not as sealed"),
        ({"scores": 0}, 1e-9, None, "0 scores recomputed"),
        ({"unmeasured": "timeout"}, 1e-9, None, "m on d: timeout"),
    ],
)
def test_nothing_passes_that_was_not_compared(
    unit: dict[str, Any], tolerance: float | None, holds: bool | None, words: str
) -> None:
    found = judge([UnitComparison(**{**_members(UNIT), **unit})], ["x left out: y"], tolerance)
    assert found.holds is holds
    assert words in found.detail
    assert found.detail.endswith("; x left out: y")
    assert found.as_dict()["units"][0]["queries"] == ["1", "2"]


def _members(unit: UnitComparison) -> dict[str, Any]:
    return {name: getattr(unit, name) for name in UnitComparison.__slots__}


def test_a_method_is_fit_where_its_scores_are_a_matter_of_query_and_document_alone() -> None:
    def method(network: NetworkPolicy | None = None, **declares: Any) -> MethodPlan:
        return MethodPlan(
            name="m", method_id="sha256:" + "0" * 64, image=ImagePin(name="i"), command=("x",),
            config={}, limits=Limits(), declares={"dimensions": 3, **declares}, network=network,
        )  # fmt: skip

    for mode in PARTS:
        assert unfit(method(mode=mode, exact=True)) is None
    assert unfit(method(mode="hybrid", exact=False)) == "it does not declare exact search"
    assert unfit(method(mode="graph", exact=True)) == "it declares mode graph"
    asks = NetworkPolicy(allow=("a:1",))
    assert unfit(method(asks, mode="hybrid", exact=True)) == "it asks hosts on a network"
    own = replace(method(mode="hybrid", exact=True), module="sha256:" + "1" * 64)
    assert unfit(own) == "it runs a module of its author's"
