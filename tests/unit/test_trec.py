"""TREC run files as rows: what converts, and that a doubtful line never shortens a ranking."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import trec
from runner.rows import faults as row_faults
from runner.rows.faults import FaultLog
from runner.rows.read import RetrievalIds, RetrievalRows, read_rows, trec_to_rows


def convert(data: bytes) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    faults = FaultLog()
    rows = [json.loads(line) for line in trec_to_rows(io.BytesIO(data), faults)]
    return (
        {row["query_id"]: row["ranking"] for row in rows},
        [(fault.line, fault.code) for fault in faults.kept],
    )


def test_lines_become_rows_in_order_of_the_file() -> None:
    data = b"q1 Q0 d1 1 2.5 tag\nq1\tQ0\td2  2 -1e-3 tag\r\n\xc3\xa9 0 d1 7 3 x\n"
    rows, faults = convert(data)
    assert rows == {"q1": [["d1", 2.5], ["d2", -0.001]], "é": [["d1", 3.0]]}
    assert faults == []


def test_rows_are_complete_and_valid_for_the_reader() -> None:
    data = b"q1 Q0 d1 1 2.5 t\nq1 Q0 d2 2 1 t\nq2 Q0 d9 1 1 t\nq3 Q0 d1 1 1 t\nq3 Q0 d1 2 0 t\n"
    log = FaultLog()
    ids = RetrievalIds.of(["q1", "q2", "q3"], ["d1", "d2"])
    result = read_rows(trec_to_rows(io.BytesIO(data), log), RetrievalRows(ids), faults=log)
    assert result.report.valid == 1
    codes = [fault.code for fault in result.report.faults]
    assert codes == ["rows.unknown-document", "rows.duplicate-document"]


def test_an_empty_file_has_no_rows() -> None:
    assert convert(b"") == ({}, [])


A, B, C = b"qa Q0 d1 1 1 t\n", b"qb Q0 d1 1 1 t\n", b"qc Q0 d1 1 1 t\n"


@pytest.mark.parametrize(
    ("data", "survivors", "faults"),
    [
        (A + b"qa Q0 d2 2 t\n" + B, {"qb"}, [(2, "rows.trec-columns")]),
        (A + b"qb Q0 d2 2 t\n" + B + C, {"qa", "qc"}, [(2, "rows.trec-columns")]),
        (A + b"qa Q0 d2 2 nan t\n" + B, {"qb"}, [(2, "rows.non-finite")]),
        (A + b"qa Q0 d2 2 1_0 t\n" + B, {"qb"}, [(2, "rows.non-finite")]),
        (A + b"qa Q0 d2 2 0x1p3 t\n" + B, {"qb"}, [(2, "rows.non-finite")]),
        (A + b"qa Q0 d2 2 1e999 t\n" + B, {"qb"}, [(2, "rows.non-finite")]),
        (A + b"qa Q0 d2 2 \xff t\n" + B, {"qb"}, [(2, "rows.non-finite")]),
        (A + b"qa Q0 \xff 2 1 t\n" + B, {"qb"}, [(2, "rows.utf8")]),
        # Who knows whose line it was: neither neighbour keeps its row.
        (A + b"\n" + B + C, {"qc"}, [(2, "rows.trec-columns")]),
        (A + b"\xff Q0 d2 2 1 t\n" + B + C, {"qc"}, [(2, "rows.utf8")]),
        (A + b"\n" + A + C, {"qc"}, [(2, "rows.trec-columns")]),
        (A + B + b"qb Q0 d2 2 1 t", {"qa"}, [(3, "rows.half-line")]),
        (A + B + b"q", {"qa"}, [(3, "rows.half-line")]),
        # A query that comes back has no complete ranking anywhere.
        (A + B + A + C, {"qb", "qc"}, [(1, "rows.trec-order"), (3, "rows.trec-order")]),
    ],
)
def test_a_bad_line_costs_its_query_and_no_other(
    data: bytes, survivors: set[str], faults: list[tuple[int, str]]
) -> None:
    rows, found = convert(data)
    assert (set(rows), found) == (survivors, faults)


@pytest.mark.parametrize("extra", [0, 1, 4096, 10_000])
def test_a_long_line_is_one_fault(extra: int) -> None:
    data = A + b"qb " + b"x" * (trec.MAX_TREC_LINE + extra) + b"\n" + C + B
    rows, found = convert(data)
    assert found == [(2, "rows.line-too-long")]
    assert set(rows) == {"qb"}  # the line's query is not read off a part of it


def test_depth_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trec, "MAX_TREC_DOCUMENTS", 1)
    assert convert(A + b"qa Q0 d2 2 1 t\n" + B)[1] == [(2, "rows.trec-depth")]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([A, B, C, b"qa Q0 d2 2 1 t\n", b"\n", b"qa", b"\xff ", b"q Q0 d 1 x t\n"])
        | st.binary(max_size=8),
        max_size=12,
    )
)
def test_no_bytes_crash_the_converter(lines: list[bytes]) -> None:
    log = FaultLog()
    rows = list(trec_to_rows(io.BytesIO(b"".join(lines)), log))
    result = read_rows(rows, RetrievalRows(None))
    assert "rows.duplicate-id" not in {fault.code for fault in result.report.faults}
    assert result.lines == len(rows)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_scores_are_read_to_the_last_bit(score: float) -> None:
    rows, faults = convert(f"q Q0 d 1 {score!r} t\n".encode())
    assert (rows["q"], faults) == ([["d", score]], [])


def test_a_hopeless_file_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_faults, "MAX_BAD_LINES", 10)
    monkeypatch.setattr(trec, "MAX_BAD_LINES", 10)
    stream = io.BytesIO(A + b"\n" * 100_000 + B)
    log = FaultLog()
    assert list(trec_to_rows(stream, log)) == []
    assert (log.count, log.exhausted) == (11, True)
    assert stream.tell() < 100
