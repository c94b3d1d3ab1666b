"""A quick way to write CSV must write what the slow one writes."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.tasks.csv_table import csv_bytes

FIELDS = st.text(alphabet="ab ,\"\r\n'\u00e9\U0001f600", max_size=4)


@given(st.lists(st.tuples(FIELDS, FIELDS, FIELDS), max_size=6))
def test_it_is_what_the_csv_module_writes(rows: list[tuple[str, str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("x", "y", "z"), *rows])
    columns = [[row[at] for row in rows] for at in range(3)]
    assert csv_bytes(("x", "y", "z"), columns) == text.getvalue().encode()


def test_columns_run_in_parallel() -> None:
    assert csv_bytes(("a", "b"), [["1", "2"], ["3", ""]]) == b"a,b\n1,3\n2,\n"
    with pytest.raises(ValueError, match="unequal"):
        csv_bytes(("a", "b"), [["1"], []])
