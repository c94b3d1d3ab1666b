"""The quick reading of plain lines agrees with the strict one, or leaves the line to it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.datasets import lines

KEYS = st.sampled_from(["_id", "text", "a:b", ":", ""])
VALUES = st.one_of(
    st.text(max_size=8), st.sampled_from(["x:y", "::", "\\u003a", '"']), st.integers(), st.none()
)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=5), st.booleans())
def test_what_the_quick_way_accepts_is_what_the_strict_way_reads(
    pairs: list[tuple[str, object]], ascii_only: bool
) -> None:
    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=ascii_only)

    line = "{" + ", ".join(f"{text(key)}: {text(value)}" for key, value in pairs) + "}"
    quick = lines._plain_object(line)
    twice = len({key for key, _ in pairs}) < len(pairs)
    assert quick is None or not twice
    if quick is not None:
        assert quick == json.loads(line)


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ('{"_id": "1", "text": "a: b"}', True),
        ('{"_id": "1", "_id": "2"}', False),
        ('{"a": "\\u003a", "a": "b"}', False),  # an escaped colon must not pay for a second key
        ('{"a": ":", "a": ""}', False),
        ('{"a": 1}', False),
        ('{"a": {"b": "c"}}', False),
        ('["a"]', False),
        ('{"a": "b"', False),
        ("{}", True),
    ],
)
def test_which_lines_are_plain(line: str, plain: bool) -> None:
    assert (lines._plain_object(line) is not None) is plain
