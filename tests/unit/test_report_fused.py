"""Whether a hybrid method beats its parts is said, and a tie is no win."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from runner.model import Limits, MethodPlan
from runner.report.fused import fused_notes, parts_of

METRIC, SPLIT = "ndcg_at_10", "heldout"


def method(name: str, mode: str, **config: float) -> MethodPlan:
    return MethodPlan(
        name=name, method_id=f"sha256:{name}", image=None, command=("x",), config=config,
        limits=Limits(), declares={"mode": mode},
    )  # fmt: skip


FUSED = method("fused", "hybrid", rrf_k=60.0, fts_weight=1.0, vector_weight=1.0)
TEXT, VECTORS = method("text", "fts_only"), method("vectors", "vector_only")
METHODS = (method("okapi", "lexical"), TEXT, VECTORS, FUSED)


def results(scores: Mapping[str, float | None], ties: Mapping[str, bool | None]) -> dict[str, Any]:
    """Results with scores of methods, and whether each of some ties with ``fused``."""
    same = {"task": "retrieval", "split": SPLIT, "metric": METRIC}
    compared = []
    for place, (name, tie) in enumerate(ties.items()):
        pair = ("fused", name) if place % 2 else (name, "fused")  # either may come first
        difference = (scores[pair[0]] or 0.0) - (scores[pair[1]] or 0.0)
        names = {"method": pair[0], "other": pair[1]}
        compared.append({**same, **names, "difference": difference, "tie": tie})
    rows = [{**same, "method": name, "mean_score": score} for name, score in scores.items()]
    return {"aggregate": rows, "comparisons": compared}


@pytest.mark.parametrize(
    ("scores", "ties", "said"),
    [
        (
            {"fused": 0.7, "text": 0.6, "vectors": 0.5},
            {"text": False, "vectors": False},
            (
                "fused beats both of its parts in nDCG@10 on heldout (0.700000); "
                "beside text (0.600000): better; beside vectors (0.500000): better"
            ),
        ),
        (
            {"fused": 0.681148, "text": 0.681162, "vectors": 0.610663},
            {"text": True, "vectors": False},
            (
                "fused does not beat both of its parts in nDCG@10 on heldout (0.681148); "
                "beside text (0.681162): tie; beside vectors (0.610663): better"
            ),
        ),
        (
            {"fused": 0.7, "text": 0.9, "vectors": 0.699},
            {"text": False, "vectors": True},  # above it, yet a tie
            (
                "fused does not beat both of its parts in nDCG@10 on heldout (0.700000); "
                "beside text (0.900000): worse; beside vectors (0.699000): tie"
            ),
        ),
        (
            {"fused": 0.7, "text": 0.6, "vectors": None},  # one part failed: it is not beaten
            {"text": False},
            (
                "fused does not beat both of its parts in nDCG@10 on heldout (0.700000); "
                "beside text (0.600000): better; beside vectors (null): not compared"
            ),
        ),
        (
            {"fused": 0.7, "text": 0.6, "vectors": 0.5},
            {"text": None},
            (
                "fused does not beat both of its parts in nDCG@10 on heldout (0.700000); "
                "beside text (0.600000): not tested; beside vectors (0.500000): not compared"
            ),
        ),
    ],
)
def test_to_beat_is_to_be_better_than_every_part(
    scores: dict[str, float | None], ties: dict[str, bool | None], said: str
) -> None:
    assert fused_notes(METHODS, results(scores, ties), SPLIT, METRIC) == [said]


def test_nothing_is_said_of_a_method_without_a_score_or_without_parts() -> None:
    assert fused_notes(METHODS, results({"fused": None, "text": 0.6}, {}), SPLIT, METRIC) == []
    assert fused_notes(METHODS, results({"fused": 0.7, "okapi": 0.6}, {}), SPLIT, METRIC) == []
    assert fused_notes(METHODS, results({"fused": 0.7, "text": 0.6}, {}), "all", METRIC) == []


def test_parts_follow_from_the_lists_that_a_config_weighs() -> None:
    assert parts_of(FUSED, METHODS) == ["text", "vectors"]
    assert parts_of(TEXT, METHODS) == []
    assert parts_of(replace(FUSED, config={"rrf_k": 60.0, "fts_weight": 2.0}), METHODS) == ["text"]
    assert parts_of(replace(FUSED, config={"fts_weight": 1.0}), METHODS) == []  # no such fusion
