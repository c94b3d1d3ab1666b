"""Rows, scores and ranks of two executions: which verdict they give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.canonical import canonical_bytes
from runner.compare import (
    RankDifference,
    Tolerances,
    UnitComparison,
    UnitSide,
    Verdict,
    compare_runs,
    compare_unit,
    rows_matter,
    worst,
)
from runner.compare_rows import RowsComparison, compare_rows, first_difference, shortened
from runner.errors import ProtocolError
from runner.model import Outcome, Unit
from runner.protocol.load import parse_protocol
from runner.rows.form import RowsDigest, key_field, parse_row, row_digest, shape_of
from runner.schemas import kinds
from tests.unit.beir_files import write_beir
from tests.unit.protocol_samples import frozen

KIND = "row-retrieval"
OK = UnitSide(outcome=Outcome.OK, reason="done")


def row(query: str, *ranking: tuple[str, float], latency: float | None = 1.0) -> bytes:
    document = {
        "query_id": query,
        "ranking": [list(pair) for pair in ranking],
        "latency_ms": latency,
        "error": None,
    }
    return json.dumps(document).encode() + b"\n"


def lines(*rows: bytes) -> Callable[[], tuple[bytes, ...]]:
    return lambda: rows


FIRST = row("q1", ("a", 2.0), ("b", 1.0))
SECOND = row("q2", ("b", 0.5))


@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind.startswith("row-")])
def test_every_kind_of_row_is_told_apart_by_an_id(kind: str) -> None:
    assert key_field(kind).endswith("_id")


def test_measured_times_spelling_and_order_of_rows_do_not_count() -> None:
    other = b'{"error":null,"latency_ms":7,"ranking":[["a",2.0],["b",1.0]],"query_id":"q1"}\n'
    found = compare_rows(lines(FIRST, SECOND), lines(SECOND, other), KIND, 1e-9)
    assert found == RowsComparison(compared=2, differing=0, beyond=0, largest=None, first=())
    one, same = RowsDigest(KIND), RowsDigest(KIND)
    one.add(FIRST + SECOND)
    same.add_lines((SECOND, other))
    assert one.hexdigest() == same.hexdigest()


def test_a_whole_number_is_not_the_same_bytes_as_a_float_but_the_same_value() -> None:
    whole = row("q1", ("a", 2), ("b", 1.0))
    found = compare_rows(lines(FIRST), lines(whole), KIND, 0.0)
    assert (found.differing, found.beyond, found.largest) == (1, 0, 0.0)


@pytest.mark.parametrize(
    ("tolerance", "beyond"), [(1e-9, 1), (0.01, 0), (None, 0)], ids=["exact", "wide", "any"]
)
def test_numbers_within_the_tolerance(tolerance: float | None, beyond: int) -> None:
    moved = row("q1", ("a", 2.005), ("b", 1.0))
    found = compare_rows(lines(FIRST, SECOND), lines(moved, SECOND), KIND, tolerance)
    assert (found.compared, found.differing, found.beyond) == (2, 1, beyond)
    assert found.largest == pytest.approx(0.005)
    (shown,) = found.first
    assert (shown.key, shown.place) == ("q1", "ranking[0]")
    assert (shown.original, shown.reproduction) == ('["a", 2.0]', '["a", 2.005]')


def test_near_ties_that_change_places_are_compared_by_id() -> None:
    one = row("q1", ("a", 1.0000000001), ("b", 1.0))
    other = row("q1", ("b", 1.0000000001), ("a", 1.0))
    found = compare_rows(lines(one), lines(other), KIND, 1e-9)
    assert (found.differing, found.beyond) == (1, 0)


def test_another_document_is_beyond_any_tolerance() -> None:
    found = compare_rows(lines(FIRST), lines(row("q1", ("a", 2.0), ("c", 1.0))), KIND, None)
    assert found.beyond == 1
    assert found.first[0].place == "ranking[1]"


def test_rows_that_only_one_side_has_are_shown_with_nothing_beside_them() -> None:
    found = compare_rows(lines(FIRST), lines(SECOND), KIND, None)
    assert (found.compared, found.differing, found.beyond) == (2, 2, 2)
    assert [(one.key, one.original is None) for one in found.first] == [("q1", False), ("q2", True)]
    assert found.first[0].reproduction is None


def test_only_the_first_differing_rows_are_shown_and_texts_are_short() -> None:
    before = [row(f"q{i:03d}", ("d" * 400, 1.0)) for i in range(50)]
    after = [row(f"q{i:03d}", ("e" * 400, 1.0)) for i in range(50)]
    found = compare_rows(lines(*before), lines(*reversed(after)), KIND, 1e-9)
    assert found.beyond == 50
    assert [one.key for one in found.first] == [f"q{i:03d}" for i in range(5)]
    assert all(len(one.original or "") == 300 for one in found.first)
    assert shortened("x" * 10, 5) == "xx..."


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "a.b"),
        ({"a": [1, 2]}, {"a": [1]}, "a[1]"),
        ({"a": 1}, {"a": 1, "c": 0}, "c"),
        ({"a": 1}, None, "row"),
        ({"s": [[1, 2, 3]]}, {"s": [[1, 2, 4]]}, "s[0][2]"),
    ],
)
def test_where_two_values_differ_first(one: Any, other: Any, place: str) -> None:
    assert first_difference(one, other)[0] == place


def test_the_numbers_of_a_row_are_taken_in_the_order_of_ids() -> None:
    shape = shape_of(parse_row(row("q1", ("b", 1.0), ("a", 2.0))))
    assert list(shape.numbers) == [2.0, 1.0]
    assert shape.digest == shape_of(parse_row(FIRST)).digest
    assert row_digest(parse_row(FIRST)) == row_digest(parse_row(row("q1", ("a", 2.0), ("b", 1.0))))


def unit(method: str = "m", dataset: str = "d", repeat: int = 0) -> Unit:
    return Unit(
        unit_id=f"{method}/{dataset}/{repeat}",
        method=method,
        method_id="sha256:" + "0" * 64,
        dataset=dataset,
        repeat=repeat,
        seed=0,
    )


def rows(differing: int = 0, beyond: int = 0) -> RowsComparison:
    return RowsComparison(
        compared=9, differing=differing, beyond=beyond, largest=0.5 if differing else None, first=()
    )


def side(outcome: Outcome) -> UnitSide:
    return UnitSide(outcome=outcome, reason="because")


@pytest.mark.parametrize(
    ("original", "again", "found", "verdict"),
    [
        (OK, OK, rows(), Verdict.IDENTICAL),
        (OK, OK, rows(2), Verdict.EQUIVALENT),
        (OK, OK, rows(2, 1), Verdict.DIFFERENT),
        (OK, side(Outcome.TIMEOUT), None, Verdict.DIFFERENT),
        (side(Outcome.CRASHED), side(Outcome.CRASHED), None, Verdict.IDENTICAL),
        (side(Outcome.CRASHED), OK, None, Verdict.DIFFERENT),
        (side(Outcome.CANCELLED), OK, None, Verdict.NOT_COMPARABLE),
        (OK, side(Outcome.ENGINE_ERROR), None, Verdict.NOT_COMPARABLE),
        (side(Outcome.NOT_STARTED), side(Outcome.NOT_STARTED), None, Verdict.NOT_COMPARABLE),
    ],
)
def test_the_verdict_on_one_unit(
    original: UnitSide, again: UnitSide, found: RowsComparison | None, verdict: Verdict
) -> None:
    assert rows_matter(original, again) == (found is not None)
    made = compare_unit(unit(), original, again, found)
    assert made.verdict is verdict
    assert made.reason


def test_the_worst_verdict_counts() -> None:
    assert worst([]) is Verdict.IDENTICAL
    assert worst([Verdict.IDENTICAL, Verdict.EQUIVALENT]) is Verdict.EQUIVALENT
    assert worst([Verdict.NOT_COMPARABLE, Verdict.EQUIVALENT]) is Verdict.NOT_COMPARABLE
    assert worst([Verdict.DIFFERENT, Verdict.NOT_COMPARABLE]) is Verdict.DIFFERENT


def results(score: float | None, rank: int | None = 1) -> dict[str, Any]:
    place = {"method": "m", "split": "all", "metric": "ndcg_at_10"}
    return {
        "per_dataset": [{**place, "dataset": "d", "score": score}],
        "aggregate": [{**place, "task": "retrieval", "rank": rank}],
    }


def same() -> UnitComparison:
    return compare_unit(unit(), OK, OK, rows())


@pytest.mark.parametrize(
    ("then", "now", "verdict"),
    [(0.5, 0.5, "identical"), (0.5, 0.5 + 1e-12, "equivalent"), (0.5, 0.6, "different")],
)
def test_scores_are_held_against_the_tolerance_of_their_metric(
    then: float, now: float, verdict: str
) -> None:
    made = compare_runs([same()], results(then), results(now), Tolerances())
    assert made.verdict.value == verdict
    wide = Tolerances(metrics={"ndcg_at_10": 0.2})
    assert compare_runs([same()], results(then), results(now), wide).verdict in (
        Verdict.IDENTICAL,
        Verdict.EQUIVALENT,
    )


def test_a_changed_rank_is_a_difference_however_little_moved() -> None:
    made = compare_runs([same()], results(0.5, 1), results(0.5, 2), Tolerances())
    assert made.verdict is Verdict.DIFFERENT
    assert made.ranks == (
        RankDifference(
            method="m", task="retrieval", split="all", metric="ndcg_at_10", original=1,
            reproduction=2,
        ),
    )  # fmt: skip
    assert made.reason == "1 ranks changed"


def test_tolerances_come_from_the_protocol_and_are_exact_without() -> None:
    assert Tolerances.of({}) == Tolerances(row_score=1e-9, metric=1e-9, metrics={})
    declared = {"tolerances": {"row_score": None, "metrics": {"map": 0.001}}}
    found = Tolerances.of(declared)
    assert found.row_score is None
    assert (found.for_metric("map"), found.for_metric("mrr")) == (0.001, 1e-9)


def test_a_benchmark_declares_tolerances_and_they_are_part_of_its_identity(tmp_path: Path) -> None:
    write_beir(tmp_path / "toy")
    declared = {"row_score": 0.5, "metrics": {"mrr": 1e-6}}
    plain, wide = frozen(tmp_path), frozen(tmp_path, tolerances=declared)
    assert "tolerances" not in plain.document
    assert plain.protocol_id != wide.protocol_id
    found = Tolerances.of(wide.document)
    assert (found.row_score, found.for_metric("mrr"), found.for_metric("map")) == (0.5, 1e-6, 1e-9)
    document = {**wide.document, "tolerances": {"metrics": {"recall_at_5": 0.1}}}
    with pytest.raises(ProtocolError) as caught:
        parse_protocol(canonical_bytes(document), Path("p.json"))
    assert "a tolerance for recall_at_5" in caught.value.message
