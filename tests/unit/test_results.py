"""results.json: means, nulls, coverage, ranks and repeats, on cases small enough to do by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import nan
from pathlib import Path

import numpy as np
import pytest

from runner.model import ImagePin, Limits, MethodPlan, Outcome, Plan
from runner.report.words import missing_intervals
from runner.results import Scope, ScoredUnit, Section, build_results, competition_ranks
from runner.tasks.api import SplitScore

PIN = ImagePin(name="x", image_id="sha256:" + "0" * 64)


def plan(*methods: str, repeats: int = 1) -> Plan:
    return Plan(
        run_id="sha256:" + "1" * 64,
        name="t",
        benchmark_id="b",
        protocol_id="sha256:" + "2" * 64,
        splits=("all",),
        seed=1,
        repeats=repeats,
        jobs=1,
        methods=tuple(
            MethodPlan(
                name=name, method_id=f"id-{name}", image=PIN, command=("x",), config={},
                limits=Limits(),
            )
            for name in methods
        ),
        units=(),
    )  # fmt: skip


def scored(
    method: str, values: list[float] | None, *, dataset: str = "d", repeat: int = 0
) -> ScoredUnit:
    samples: Mapping[str, np.ndarray] = {} if values is None else {"m": np.array(values)}
    return ScoredUnit(
        method=method,
        dataset=dataset,
        repeat=repeat,
        outcome=Outcome.TIMEOUT if values is None else Outcome.OK,
        score=SplitScore(
            split="all",
            queries=4,
            scores={"m": None if values is None else float(np.mean(values))},
            reasons={"m": "timeout: over 3 s"} if values is None else {},
            samples=samples,
        ),
    )


def results(made: Plan, units: list[ScoredUnit], datasets: tuple[str, ...] = ("d",)) -> dict:  # type: ignore[type-arg]  # JSON
    section = Section(task="retrieval", metrics=("m",), datasets=datasets)
    return build_results(Scope(plan=made, sections=(section,)), units)


@pytest.mark.parametrize(
    ("scores", "ranks"),
    [
        ({"a": 0.5, "b": 0.5, "c": 0.1}, {"a": 1, "b": 1, "c": 3}),
        ({"a": None, "b": 0.0}, {"a": None, "b": 1}),
        ({"a": None}, {"a": None}),
        ({}, {}),
        ({"a": 0.1, "b": 0.3, "c": 0.2}, {"a": 3, "b": 1, "c": 2}),
    ],
)
def test_competition_ranks(scores: dict[str, float | None], ranks: dict[str, int | None]) -> None:
    assert competition_ranks(scores) == ranks


def test_failed_is_null_and_unranked_never_zero() -> None:
    document = results(plan("good", "late"), [scored("good", [0, 0, 0, 0]), scored("late", None)])
    good, late = document["per_dataset"]
    assert (good["score"], good["eligible"], good["error"]) == (0.0, True, None)
    assert (late["score"], late["eligible"], late["outcome"]) == (None, False, "timeout")
    assert late["error"] == "timeout: over 3 s"
    ranked, unranked = document["aggregate"]
    assert ranked["rank"] == 1
    assert unranked["mean_score"] is None
    assert unranked["rank"] is None
    assert unranked["ci_low"] is None
    assert (unranked["coverage"], unranked["complete_coverage"]) == (0.0, False)


def test_one_missing_dataset_makes_the_mean_null_and_shows_the_coverage() -> None:
    units = [
        scored("a", [1, 0, 1, 0], dataset="d"), scored("a", None, dataset="e"),
        scored("b", [0, 0, 0, 1], dataset="d"), scored("b", [1, 1, 0, 0], dataset="e"),
    ]  # fmt: skip
    a, b = results(plan("a", "b"), units, ("d", "e"))["aggregate"]
    assert (a["mean_score"], a["rank"], a["coverage"], a["dataset_count"]) == (None, None, 0.5, 1)
    assert (b["mean_score"], b["rank"], b["coverage"]) == (0.375, 1, 1.0)


def test_a_failed_repeat_is_not_averaged_away() -> None:
    units = [scored("a", [1, 1, 1, 1]), scored("a", None, repeat=1)]
    row = results(plan("a", repeats=2), units)["per_dataset"][0]
    assert row["score"] is None
    assert row["error"] == "repeat 1: timeout: over 3 s"


def test_repeats_are_averaged_and_the_interval_holds_the_mean() -> None:
    units = [scored("a", [1, 0, 1, 0]), scored("a", [1, 1, 1, 0], repeat=1)]
    document = results(plan("a", repeats=2), units)
    assert document["per_dataset"][0]["score"] == 0.625
    row = document["aggregate"][0]
    assert row["ci_low"] <= 0.625 <= row["ci_high"]
    assert document == results(plan("a", repeats=2), units)  # the seed fixes the interval


def test_a_score_that_is_not_finite_is_null() -> None:
    bad = replace(
        scored("a", [1, 1, 1, 1]), score=SplitScore(split="all", queries=1, scores={"m": nan})
    )
    assert results(plan("a"), [bad])["per_dataset"][0]["score"] is None


def test_replicates_of_the_task_give_the_interval(tmp_path: Path) -> None:
    unit = scored("a", [0, 0, 1, 1])
    own = replace(unit.score, replicates={"m": np.linspace(0, 1, 1001)})
    row = results(plan("a"), [replace(unit, score=own)])["aggregate"][0]
    assert (round(row["ci_low"], 2), round(row["ci_high"], 2)) == (0.03, 0.97)


def test_a_score_without_an_interval_says_why() -> None:
    known = scored("a", [0, 0, 1, 1])
    capped = replace(known.score, samples={}, no_interval={"m": "too many pairs"})
    units = [replace(known, score=capped), scored("b", [0, 0, 0, 1]), scored("c", None)]
    rows = {row["method"]: row for row in results(plan("a", "b", "c"), units)["aggregate"]}
    assert (rows["a"]["mean_score"], rows["a"]["ci_low"]) == (0.5, None)
    assert rows["a"]["ci_reason"] == "d: too many pairs"
    assert "ci_reason" not in rows["b"]
    assert "ci_reason" not in rows["c"]  # it has no score: per_dataset says why
    bare = replace(known, score=replace(capped, no_interval={}))
    (row,) = results(plan("a"), [bare])["aggregate"]
    assert row["ci_reason"] == "d: a resample leaves nothing that the metric could count"
    assert missing_intervals(rows.values()) == ["no interval for a: d: too many pairs"]


def test_tasks_never_share_a_ranking() -> None:
    sections = tuple(
        Section(task=task, metrics=("m",), datasets=(name,))
        for task, name in (("retrieval", "d"), ("pair", "e"))
    )
    units = [
        scored("a", [1, 1, 1, 1]), scored("a", [0, 0, 0, 0], dataset="e"),
        scored("b", [0, 0, 0, 1]), scored("b", [1, 1, 1, 1], dataset="e"),
    ]  # fmt: skip
    rows = build_results(Scope(plan=plan("a", "b"), sections=sections), units)["aggregate"]
    assert [(row["task"], row["method"], row["rank"]) for row in rows] == [
        ("retrieval", "a", 1),
        ("retrieval", "b", 2),
        ("pair", "a", 2),
        ("pair", "b", 1),
    ]
