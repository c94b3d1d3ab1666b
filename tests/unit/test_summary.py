"""Latency and result summaries."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.metrics.ranks import RankedBlock
from runner.metrics.summary import SummaryBuilder, latency_summary, nearest_rank
from runner.rows.retrieval import RetrievalRow


def row(
    query: str, names: Sequence[str], latency: float | None = None, error: str | None = None
) -> RetrievalRow:
    scores = array("d", [float(len(names) - i) for i in range(len(names))])
    return RetrievalRow(query, list(names), scores, latency, error)


@pytest.mark.parametrize(
    ("values", "p50", "p95"),
    [
        ([1.0], 1.0, 1.0),
        ([1.0, 2.0], 1.0, 2.0),
        ([float(i) for i in range(1, 21)], 10.0, 19.0),
        ([float(i) for i in range(1, 101)], 50.0, 95.0),
        ([float(i) for i in range(1, 102)], 51.0, 96.0),
    ],
)
def test_percentiles_by_nearest_rank(values: list[float], p50: float, p95: float) -> None:
    assert (nearest_rank(values, 50), nearest_rank(values, 95)) == (p50, p95)


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_latency_summary_is_of_the_values(values: list[float]) -> None:
    found = latency_summary(values)
    assert found is not None
    assert (found.count, found.max) == (len(values), max(values))
    assert found.p50 <= found.p95 <= found.max
    assert {found.p50, found.p95} <= set(values)
    assert found.mean == math.fsum(values) / len(values)


def test_no_latency_is_none_not_zero() -> None:
    assert latency_summary([]) is None


def test_summary_of_a_run() -> None:
    builder = SummaryBuilder(["a", "b", "c", "d", "e"], top_k=2)
    tied = RetrievalRow("c", ["z", "y", "x"], array("d", [1.0, 1.0, 1.0]), 4.0, None)
    builder.add(RankedBlock.of([row("a", ["x", "y", "w"], 1.0), row("b", [], None, "gave up")]))
    builder.add(RankedBlock.of([tied, row("d", ["y"], 2.0), row("elsewhere", ["q"], 99.0)]))
    found = builder.result()
    assert (found.queries, found.missing, found.failures) == (5, 1, 1)
    assert found.result_counts == {0: 1, 1: 1, 2: 2}
    assert found.unique_documents == 2  # w and z stand below the protocol's depth
    assert (found.top_document, found.top_document_queries) == ("x", 2)
    assert found.latency is not None
    assert (found.latency.count, found.latency.mean, found.latency.max) == (3, 7 / 3, 4.0)
    assert json.loads(json.dumps(found.as_dict()))["result_counts"] == {"0": 1, "1": 1, "2": 2}


def test_summary_of_nothing_has_nulls_for_what_there_is_not() -> None:
    found = SummaryBuilder(["a"], top_k=None).result()
    assert (found.missing, found.latency, found.top_document) == (1, None, None)
    assert found.top_document_queries == 0


def test_of_equally_frequent_top_documents_the_smallest_id() -> None:
    builder = SummaryBuilder(["a", "b"], top_k=None)
    builder.add(RankedBlock.of([row("a", ["z"]), row("b", ["k"])]))
    assert builder.result().top_document == "k"
