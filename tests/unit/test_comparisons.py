"""When the correction leaves nothing that any test could part, and how that is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runner.comparisons import OutOfReach, out_of_reach
from runner.metrics.permutation import Contest, Terms, holm, p_values
from runner.report.words import beyond_tests, pointed, scored_head
from runner.verify.comparisons import comparison_faults


def entries(count: int, test: str | None, blocks: int | None = None) -> list[dict[str, Any]]:
    exact = {} if blocks is None else {"blocks": blocks}
    place = {"task": "pair", "split": "all", "metric": "f1"}
    return [{**place, "test": test, **exact} for _ in range(count)]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (entries(45, "permutation", 7), OutOfReach(comparisons=45, blocks=7, draws=9_999)),
        (entries(3, "permutation", 7), None),  # 3 x 2/128 = 0.047
        (entries(4, "permutation", 7), OutOfReach(comparisons=4, blocks=7, draws=9_999)),
        (entries(1, "permutation", 5), OutOfReach(comparisons=1, blocks=5, draws=9_999)),
        (entries(1, "permutation", 6), None),
        (entries(1, "permutation", 1), OutOfReach(comparisons=1, blocks=1, draws=9_999)),
        (entries(500, "permutation"), None),
        (entries(501, "permutation"), OutOfReach(comparisons=501, blocks=None, draws=9_999)),
        (entries(25, "bootstrap"), None),
        (entries(26, "bootstrap"), OutOfReach(comparisons=26, blocks=None, draws=1_000)),
        # One test that could part two is enough; untested ones do not count.
        ([*entries(44, "permutation", 7), *entries(1, "permutation")], None),
        ([*entries(3, "permutation", 7), *entries(9, None)], None),
        (entries(9, None), None),
        ([], None),
    ],
)
def test_out_of_reach(given: list[dict[str, Any]], found: OutOfReach | None) -> None:
    assert out_of_reach(given) == found


@pytest.mark.parametrize(("blocks", "count", "parts"), [(7, 3, True), (7, 4, False)])
def test_the_bound_is_what_the_test_itself_gives(blocks: int, count: int, parts: bool) -> None:
    ones = np.ones(blocks)
    contest = Contest([Terms(ones, ones)], [Terms(ones * 0, ones)])  # the largest difference
    assert contest.blocks() == blocks
    adjusted = holm(p_values([contest] * count, seed=0))
    assert (min(adjusted) <= 0.05) is parts
    assert (out_of_reach(entries(count, "permutation", blocks)) is None) is parts


def test_it_is_said_once_with_its_numbers() -> None:
    results = {"comparisons": entries(45, "permutation", 7)}
    (said,) = beyond_tests(results, "pair", "all", "f1")
    assert said == (
        "with 7 groups or pairs and 45 comparisons no difference can be told apart at 0.05; "
        "intervals are not corrected for the number of comparisons"
    )
    assert beyond_tests(results, "pair", "all", "auroc") == []
    drawn = {"comparisons": entries(30, "bootstrap")}
    assert beyond_tests(drawn, "pair", "all", "f1")[0].startswith("with 1,000 random draws and 30")
    assert beyond_tests({}, "pair", "all", "f1") == []


def test_a_loss_is_called_one_in_the_header() -> None:
    assert scored_head("wkt_loss", "all") == "wkt_loss on all, lower is better"
    assert scored_head("map", "heldout") == "map on heldout"
    assert (pointed("wkt_loss"), pointed("map")) == ("wkt_loss, lower is better", "map")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"blocks": 2}, "none of 2 blocks"),  # 1/4 of four exchanges is one: possible, 1/8 is not
        ({"test": "bootstrap"}, "none of 4 blocks"),
        ({"p_value": 0.0, "p_adjusted": 0.0}, "none of 4 blocks"),
    ],
)
def test_a_number_of_blocks_that_its_p_value_cannot_have(
    change: dict[str, Any], fault: str | None
) -> None:
    place = {"task": "retrieval", "split": "all", "metric": "map"}
    scored = [
        {**place, "method": name, "mean_score": mean, "eligible": True, "rank": rank}
        for name, mean, rank in (("one", 0.75, 1), ("two", 0.25, 2))
    ]
    entry = {
        **place,
        "method": "one",
        "other": "two",
        "difference": 0.5,
        "test": "permutation",
        "blocks": 4,
        "p_value": 0.125,
        "p_adjusted": 0.125,
        **change,
    }
    entry["tie"] = entry["p_adjusted"] > 0.05
    found = [
        one.message
        for one in comparison_faults({"aggregate": scored, "comparisons": [entry]}, None)
    ]
    assert len(found) == (fault is not None)
    assert all(fault in message for message in found if fault)
