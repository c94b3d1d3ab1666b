"""A quick way to write CSV must write what the slow one writes."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.tasks.csv_table import csv_bytes

PLAIN = st.text(alphabet="ab ,\"\n'\u00e9\U0001f600", max_size=4)
FIELDS = st.text(alphabet="ab ,\"\r\n'\u00e9\U0001f600", max_size=4)


@given(st.lists(st.tuples(PLAIN, PLAIN, PLAIN), max_size=6))
def test_it_is_what_the_csv_module_writes(rows: list[tuple[str, str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("x", "y", "z"), *rows])
    assert _written(rows) == text.getvalue()


@given(st.lists(st.tuples(FIELDS, FIELDS, FIELDS), max_size=6))
def test_what_was_written_can_be_read_again(rows: list[tuple[str, str, str]]) -> None:
    found = csv.reader(io.StringIO(_written(rows), newline=""), strict=True)
    assert [tuple(row) for row in found] == [("x", "y", "z"), *rows]


def test_a_bare_carriage_return_is_quoted_by_every_python() -> None:
    assert _written([("a\rb", "", "c")]) == 'x,y,z\n"a\rb",,c\n'


def _written(rows: list[tuple[str, str, str]]) -> str:
    columns = [[row[at] for row in rows] for at in range(3)]
    return csv_bytes(("x", "y", "z"), columns).decode()


def test_columns_run_in_parallel() -> None:
    assert csv_bytes(("a", "b"), [["1", "2"], ["3", ""]]) == b"a,b\n1,3\n2,\n"
    with pytest.raises(ValueError, match="unequal"):
        csv_bytes(("a", "b"), [["1"], []])
