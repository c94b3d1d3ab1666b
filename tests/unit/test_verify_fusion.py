"""A hybrid method's scores follow from its own evidence, or the verifier says which do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runner.verify.fusion import fusion_problem, weights_of

CONFIG: dict[str, Any] = {"rrf_k": 60.0, "fts_weight": 1.0, "vector_weight": 2, "model": "x"}


def row() -> dict[str, Any]:
    """Three documents: in both lists, in one, in the other."""
    return {
        "query_id": "1",
        "ranking": [["a", 1 / 61 + 2 / 62], ["b", 2 / 61], ["c", 1 / 63]],
        "evidence": {
            "fts_rank": [1, None, 3],
            "fts_score": [9.5, None, 2.0],
            "vector_rank": [2, 1, None],
            "vector_score": [0.8, 0.9, None],
        },
    }


def evidence(name: str, *values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["evidence"].update({name: list(values)})


def score(place: int, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["ranking"][place].__setitem__(1, value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (evidence("fts_rank", 1, None, 3), None),  # as it is
        (score(1, 2 / 61 * (1 + 1e-12)), None),  # another order of additions
        (score(1, 0.04), "'b' has 0.04, and its ranks give 0.0327"),
        (score(2, 0.0), "'c' has 0.0"),
        (evidence("fts_rank", 1, 5, 3), "'b' has"),
        (evidence("vector_rank", 1, 1, None), "rank 1 in vector, as another one has"),
        (evidence("vector_rank", 0, 1, None), "rank 0 in vector"),
        (evidence("vector_rank", 1.5, 1, None), "rank 1.5 in vector"),
        (evidence("vector_score", 0.95, 0.9, None), "'a' scores higher in vector"),
        (lambda found: found.pop("evidence"), None),  # nothing to go by
        (lambda found: found["evidence"].pop("fts_rank"), None),
        (lambda found: found["evidence"].pop("fts_score"), None),  # ranks are enough
        (lambda found: found.update(ranking=[], evidence={}), None),
    ],
)
def test_scores_are_held_against_ranks(
    change: Callable[[dict[str, Any]], object], words: str | None
) -> None:
    found = row()
    change(found)
    problem = fusion_problem(found, CONFIG)
    assert (problem is None) is (words is None), problem
    assert words is None or words in str(problem)


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        (CONFIG, {"fts": 1.0, "vector": 2}),
        ({"rrf_k": 60}, {}),
        ({"fts_weight": 1.0}, None),
        ({"rrf_k": -1, "fts_weight": 1.0}, None),  # a rank could make it a division by nothing
        ({"rrf_k": "60", "fts_weight": 1.0}, None),
        ({"rrf_k": True, "fts_weight": 1.0}, None),
        ({"rrf_k": 1, "fts_weight": True}, {}),
    ],
)
def test_only_a_config_of_reciprocal_rank_fusion_is_judged(
    config: dict[str, Any], weights: dict[str, float] | None
) -> None:
    assert weights_of(config) == weights
    if not weights:
        assert fusion_problem(row(), config) is None
