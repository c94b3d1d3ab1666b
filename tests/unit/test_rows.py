"""Reading rows: what is refused and why, what is copied, and that the quick way never guesses."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runner import schemas
from runner.rows import faults as row_faults
from runner.rows import read as rows_module
from runner.rows import retrieval as retrieval_rows
from runner.rows.faults import FaultLog, RowRefused
from runner.rows.read import RetrievalIds, RetrievalRow, RetrievalRows, RowsResult, read_rows
from runner.strict_json import strict_loads

IDS = RetrievalIds.of(["q1", "q2", "q3", "q:4"], ["a", "b", "c", "http://d:1/", "é", "],["])
GOOD = b'{"query_id":"q1","ranking":[["a",2.5],["b",1]],"latency_ms":3.5,"error":null}\n'
ERROR = b'{"query_id":"q2","ranking":[],"latency_ms":null,"error":"gave up"}\n'


def read(data: bytes, **options: Any) -> tuple[RowsResult, list[RetrievalRow]]:
    found: list[RetrievalRow] = []
    result = read_rows(io.BytesIO(data), RetrievalRows(IDS), on_block=found.extend, **options)
    return result, found


def line(**changes: Any) -> bytes:
    return json.dumps({**json.loads(GOOD), **changes}).encode() + b"\n"


# --- what is read --------------------------------------------------------------------------------


def test_rows_are_counted_copied_and_parsed_in_one_pass() -> None:
    copied: list[bytes] = []
    result, rows = read(GOOD + ERROR, sink=copied.append)
    assert b"".join(copied) == GOOD + ERROR
    report = result.report
    assert (report.expected, report.valid, report.missing, report.errors) == (4, 2, 2, 1)
    assert (report.faults, report.fault_count, result.lines) == ((), 0, 2)
    assert rows == [
        RetrievalRow("q1", ["a", "b"], rows[0].scores, 3.5, None),
        RetrievalRow("q2", [], rows[1].scores, None, "gave up"),
    ]
    assert (list(rows[0].scores), list(rows[1].scores)) == ([2.5, 1.0], [])


def test_only_valid_lines_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 2)
    lines = [GOOD, ERROR, line(query_id="q1"), line(query_id="q3"), line(query_id="q:4"), b"{}\n"]
    copied: list[bytes] = []
    result, rows = read(b"".join(lines), sink=copied.append)
    valid = b"".join([GOOD, ERROR, lines[3], lines[4]])
    assert b"".join(copied) == valid
    assert [fault.line for fault in result.report.faults] == [3, 6]
    assert [row.query_id for row in rows] == ["q1", "q2", "q3", "q:4"]


def test_an_empty_file_has_no_rows_and_no_fault() -> None:
    result, rows = read(b"")
    assert (result.lines, rows, result.report.fault_count, result.report.missing) == (0, [], 0, 4)


def test_lines_may_come_from_any_iterable_and_from_an_unbuffered_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(GOOD + ERROR)
    with path.open("rb", buffering=0) as raw:
        from_file = read_rows(raw, RetrievalRows(IDS))
        assert not raw.closed
    assert from_file == read_rows([GOOD, ERROR], RetrievalRows(IDS))
    assert from_file.report.valid == 2


def test_without_known_ids_any_id_will_do_but_only_once() -> None:
    result = read_rows([line(query_id="new"), line(query_id="new"), GOOD], RetrievalRows(None))
    report = result.report
    assert (report.expected, report.valid, report.missing) == (2, 2, 0)
    assert [fault.code for fault in report.faults] == ["rows.duplicate-id"]


def test_an_id_that_no_row_could_name_is_refused_beforehand() -> None:
    for bad in ("", "x" * 513):
        with pytest.raises(ValueError, match="1 to 512"):
            RetrievalIds.of([bad], [])
        with pytest.raises(ValueError, match="1 to 512"):
            RetrievalIds.of([], [bad])


def test_evidence_runs_parallel_to_the_ranking() -> None:
    row = line(evidence={"fts_rank": [1, None], "vector_score": [0.25, -1.5]})
    copied: list[bytes] = []
    result, rows = read(row, sink=copied.append)
    assert (result.report.valid, result.report.fault_count) == (1, 0)
    assert b"".join(copied) == row  # it crosses byte for byte with its row
    assert rows[0].documents == ["a", "b"]


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        ({"fts_rank": [1]}, "rows.evidence-length"),
        ({"fts_rank": [1, 2, 3]}, "rows.evidence-length"),
        ({"fts_rank": [1, "text"]}, "schema.type"),
        ({"Fts rank": [1, 2]}, "schema."),
        ({f"part{number}": [1, 2] for number in range(17)}, "schema."),
        ([1, 2], "schema.type"),
    ],
)
def test_evidence_that_is_no_list_of_numbers_per_document_is_refused(
    evidence: Any, code: str
) -> None:
    result, rows = read(line(evidence=evidence))
    assert (result.report.valid, rows) == (0, [])
    assert result.report.faults[0].code.startswith(code)


# --- what is refused -----------------------------------------------------------------------------

DEEP = b"[" * 100_000
FAULTS: list[tuple[str, bytes, str, str]] = [
    ("half line", GOOD[:40], "rows.half-line", "cut off"),
    ("half line that is whole JSON", GOOD[:-1], "rows.half-line", "cut off"),
    ("blank", b"\n", "rows.blank-line", "blank"),
    ("spaces", b"  \t\n", "rows.blank-line", "blank"),
    ("crlf", GOOD[:-1] + b"\r\n", "rows.crlf", "CR"),
    ("cr inside", GOOD.replace(b",", b",\r", 1), "rows.crlf", "CR"),
    ("bom", b"\xef\xbb\xbf" + GOOD, "rows.bom", "byte order mark"),
    ("latin-1", GOOD.replace(b'"a"', b'"\xe9"'), "rows.utf8", "byte 31"),
    ("overlong", GOOD.replace(b'"a"', b'"\xc0\x80"'), "rows.utf8", "no UTF-8"),
    ("surrogate bytes", GOOD.replace(b'"a"', b'"\xed\xa0\x80"'), "rows.utf8", "no UTF-8"),
    ("surrogate escape", GOOD.replace(b'"a"', rb'"\ud800"'), "rows.surrogate", "half a character"),
    ("surrogate in key", b'{"\\ud800":1}\n', "rows.surrogate", "half a character"),
    ("no json", b"nonsense\n", "rows.json", "character 1"),
    ("two values", GOOD[:-1] + b" {}\n", "rows.json", "Extra data"),
    ("nan", GOOD.replace(b"2.5", b"NaN"), "rows.non-finite", "NaN"),
    ("infinity", GOOD.replace(b"2.5", b"-Infinity"), "rows.non-finite", "-Infinity"),
    ("1e999", GOOD.replace(b"2.5", b"1e999"), "rows.non-finite", "1e999"),
    ("2**53", GOOD.replace(b"2.5", b"9007199254740992"), "rows.unsafe-integer", "2**53"),
    ("-2**53", GOOD.replace(b"2.5", b"-9007199254740992"), "rows.unsafe-integer", "2**53"),
    ("5000 digits", GOOD.replace(b"2.5", b"1" * 5000), "rows.unsafe-integer", "1111"),
    ("deep", DEEP + b"\n", "rows.depth", "deeply"),
    ("duplicate key", GOOD[:-2] + b',"error":null}\n', "rows.duplicate-key", "'error'"),
    ("duplicate by escape", GOOD[:-2] + b',"\\u0065rror":null}\n', "rows.duplicate-key", "'error'"),
    ("not an object", b"[]\n", "schema.type", "$: expected an object"),
    ("unknown key", line(scor=1), "schema.unknown-key", "$.scor"),
    ("missing key", b'{"query_id":"q1","ranking":[],"error":null}\n', "schema.missing-key", "lat"),
    ("id type", line(query_id=1), "schema.type", "$.query_id"),
    ("empty id", line(query_id=""), "schema.bound", "$.query_id"),
    ("long id", line(query_id="x" * 513), "schema.bound", "$.query_id"),
    ("latency", line(latency_ms=-1), "schema.bound", "$.latency_ms"),
    ("latency type", line(latency_ms=True), "schema.type", "$.latency_ms"),
    ("long error", line(ranking=[], error="x" * 4097), "schema.bound", "$.error"),
    ("score type", line(ranking=[["a", True]]), "schema.type", "$.ranking[0][1]"),
    ("score null", line(ranking=[["a", None]]), "schema.type", "$.ranking[0][1]"),
    ("score text", line(ranking=[["a", "1"]]), "schema.type", "$.ranking[0][1]"),
    ("not pairs", line(ranking=[["a", 1, 2]]), "schema.bound", "$.ranking[0]"),
    ("flat", line(ranking=["a", 1, "b", 1]), "schema.type", "and 3 more"),
    ("flat list in a list", line(ranking=[["a", 2, "b", 1]]), "schema.bound", "$.ranking[0]"),
    ("error with ranking", line(error="x"), "rows.error-with-ranking", "documents as well"),
    ("unknown query", line(query_id="q9"), "rows.unknown-id", "query id 'q9'"),
    ("unknown document", line(ranking=[["zz", 1]]), "rows.unknown-document", "'zz'"),
    ("doc twice", line(ranking=[["a", 2], ["a", 1]]), "rows.duplicate-document", "(at 2)"),
]


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(
    ("data", "code", "words"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_each_fault_has_its_code_and_costs_only_its_line(
    data: bytes, code: str, words: str, reference: bool
) -> None:
    result, rows = read(ERROR + data, reference=reference)
    assert [(fault.line, fault.code) for fault in result.report.faults] == [(2, code)]
    assert words in result.report.faults[0].message
    assert len(result.report.faults[0].message) < 500
    assert [row.query_id for row in rows] == ["q2"]
    # A line's fault does not use up its query.
    if data.endswith(b"\n"):
        assert read(data + GOOD, reference=reference)[1][-1].query_id == "q1"


def test_a_second_row_of_a_query_is_refused_even_if_equal() -> None:
    result, rows = read(GOOD + GOOD)
    assert [(f.line, f.code) for f in result.report.faults] == [(2, "rows.duplicate-id")]
    assert len(rows) == 1


@pytest.mark.parametrize("extra", [0, 1, 5, 100])
def test_a_line_that_is_too_long_is_one_fault(extra: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", 100)
    long = b"x" * (100 + extra) + b"\n"
    result, rows = read(long + GOOD + long)
    assert [(f.line, f.code) for f in result.report.faults] == [
        (1, "rows.line-too-long"),
        (3, "rows.line-too-long"),
    ]
    assert (result.lines, len(rows)) == (3, 1)


def test_a_line_of_just_the_allowed_length_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", len(GOOD))
    assert read(GOOD)[0].report.valid == 1
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", len(GOOD) - 1)
    assert read(GOOD)[0].report.faults[0].code == "rows.line-too-long"


@pytest.mark.parametrize("reference", [False, True])
def test_faults_beyond_the_cap_are_counted_and_later_rows_still_read(reference: bool) -> None:
    bad = b"".join([b"[]\n", b"nonsense\n", GOOD.replace(b"2.5", b'"2.5"')]) * 5
    result, rows = read(bad + GOOD, faults=FaultLog(limit=3), reference=reference)
    assert (len(result.report.faults), result.report.fault_count) == (3, 15)
    assert [row.query_id for row in rows] == ["q1"]


def test_a_hopeless_file_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_faults, "MAX_BAD_LINES", 10)
    result, rows = read(GOOD + b"\n" * 1000 + ERROR)
    assert (result.report.fault_count, result.report.whole, result.lines) == (11, False, 12)
    assert [row.query_id for row in rows] == ["q1"]
    assert read(GOOD)[0].report.whole


def test_bytes_in_bad_lines_are_bounded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_faults, "MAX_BAD_BYTES", 1000)
    result, _ = read((b"[" * 400 + b"\n") * 10)
    assert (result.report.fault_count, result.report.whole) == (3, False)


@pytest.mark.parametrize("unit", [b"[]", b"{}", b"1", b'["a",1]'])
@pytest.mark.parametrize("reference", [False, True])
def test_crowded_lines_are_refused_before_they_are_parsed(unit: bytes, reference: bool) -> None:
    data = b'{"query_id":"q1","ranking":[' + b",".join([unit] * 2_100_000) + b"]}"
    tracemalloc.start()
    result, _ = read(data[: rows_module.MAX_LINE_BYTES - 1] + b"\n", reference=reference)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [fault.code for fault in result.report.faults] == ["rows.too-many-values"]
    assert peak < 4 * rows_module.MAX_LINE_BYTES


def test_long_bad_lines_are_refused_without_the_slow_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schemas, "_reference", None)  # would fail if it were asked
    pairs = [[f"d{i}", None] for i in range(20_000)]
    result, _ = read(line(ranking=pairs) + GOOD)
    assert [fault.code for fault in result.report.faults] == ["schema.invalid"]
    assert result.report.valid == 1


def test_validators_that_disagree_refuse_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "fast_check", lambda _: lambda _: False)
    odd = GOOD.replace(b"[", b"[ ")  # no writer's usual form: goes the strict way
    assert [fault.code for fault in read(odd)[0].report.faults] == ["schema.disagreement"]


def test_the_quick_way_has_the_bounds_of_the_schema() -> None:
    schema = schemas.load_schema("row-retrieval")
    ranking, error = schema["properties"]["ranking"], schema["properties"]["error"]
    assert ranking["maxItems"] == retrieval_rows.MAX_RANKING
    assert error["maxLength"] == retrieval_rows.MAX_ERROR_LENGTH
    assert schema["$defs"]["id"]["maxLength"] == retrieval_rows.MAX_ID_LENGTH
    assert schema["$defs"]["id"]["minLength"] == 1
    assert set(schema["required"]) == retrieval_rows._KEYS
    assert set(schema["properties"]) - retrieval_rows._KEYS == {"evidence"}


def test_a_ranking_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval_rows, "MAX_RANKING", 1)
    assert RetrievalRows(IDS).quick(GOOD) is None


# --- the quick way never guesses -----------------------------------------------------------------

QUICK = RetrievalRows(IDS)
ANY = RetrievalRows(None)


@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        ERROR,
        json.dumps(json.loads(GOOD)).encode() + b"\n",
        line(ranking=[["a", 1]]),
        line(ranking=[["http://d:1/", 1], ["c", 0.5], ["a", -1]]),
        GOOD.replace(b'"a"', '"é"'.encode()),
        line(query_id="q:4"),
        line(ranking=[], error="ValueError: bad: worse"),
        line(latency_ms=None),
        line(latency_ms=0),
    ],
)
def test_usual_lines_take_the_quick_way(data: bytes) -> None:
    assert QUICK.quick(data) is not None
    assert ANY.quick(data) is not None


@pytest.mark.parametrize(
    "ranking",
    [
        '[["a"],[",1,"b",2]]',
        '[["a"],["b",1,2]]',
        '[["a",1,"b",2]]',
        '[["a"],[1,"b",2]]',
        '[[["a",1],["b",2]]]',
        '[["a",1],["b",2],[]]',
        '[["a",1],[]]',
        '[[],["a",1]]',
        "[[]]",
        '[["a",1],["b"]]',
        '[["],[",1],["a",0]]',
        '[["a],[",1],["b",0]]',
        '["a",1]',
        '{"a":1}',
        '"a"',
        "[[[],1]]",
        "[[{},1]]",
        '[["a",1]],"ranking":[["b",1]]',
    ],
)
@pytest.mark.parametrize("spaced", [False, True])
def test_odd_structures_are_never_taken_for_pairs(ranking: str, spaced: bool) -> None:
    text = ranking.replace("],[", "], [") if spaced else ranking
    data = f'{{"query_id":"q1","ranking":{text},"latency_ms":1,"error":null}}\n'.encode()
    assert_quick_agrees(data)


def strict(data: bytes, checker: RetrievalRows) -> RetrievalRow | None:
    """The row by the reference alone: strict parser, jsonschema, the task's rules."""
    try:
        document = strict_loads(data)
        if not schemas.is_valid("row-retrieval", document, reference=True):
            return None
        assert isinstance(document, dict)
        return checker.build(document)
    except RowRefused:
        return None


def assert_quick_agrees(data: bytes) -> None:
    for checker in (QUICK, ANY):
        quick = checker.quick(data)
        if quick is not None:
            expected = strict(data, checker)
            assert quick == expected
            assert expected is not None
            assert quick.scores.tobytes() == expected.scores.tobytes()


TEXTS = st.sampled_from(
    [*(IDS.documents or ()), "q1", "q:4", "],[", "a],[", ":", '"', "\\", "true", ""]
)
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**54), 2**54), st.just(-0.0)
)
PAIRS = st.lists(st.tuples(TEXTS | st.text(max_size=5), NUMBERS).map(list), max_size=5)
ROWS = st.fixed_dictionaries(
    {
        "query_id": TEXTS,
        "ranking": PAIRS | st.lists(st.tuples(TEXTS, NUMBERS).map(list), unique_by=lambda p: p[0]),
        "latency_ms": st.none() | NUMBERS,
        "error": st.none() | TEXTS,
    }
)
TOKENS = [
    *(b'],["', b'], ["', b',"', b"],[", b"[", b"]", b"[]", b"{", b"}", b'"', b",", b":", b"\\"),
    *(b"true", b"null", b"NaN", b"1e999", b"-0", b"0", b"1", b"e", b".", b"\n", b"\r", b" "),
    *(b'"error":null', b'"query_id":"q1",', b"\xff", b"\xef\xbb\xbf", b"\\ud800", b"\\u003a"),
]


@st.composite
def written_rows(draw: st.DrawFn) -> bytes:
    """Rows as different writers put them down."""
    value = draw(ROWS)
    style = draw(st.integers(0, 3))
    if style == 0:
        try:
            return orjson.dumps(value) + b"\n"
        except TypeError:  # beyond 64 bits
            pass
    separators = [None, (",", ":"), (" , ", " : ")][style - 1]
    return json.dumps(value, separators=separators, ensure_ascii=style == 1).encode() + b"\n"


@st.composite
def mutated_rows(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(written_rows()))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.integers(0, 3))
        data[start:end] = draw(st.sampled_from([b"", *TOKENS]) | st.binary(max_size=2))
    return bytes(data)


@settings(max_examples=200, deadline=None)
@given(written_rows())
def test_quick_agrees_with_the_reference_on_rows(data: bytes) -> None:
    assert_quick_agrees(data)


@settings(max_examples=700, deadline=None)
@given(mutated_rows())
@example(b'{"query_id":"q1","ranking":[],"ranking":[],"latency_ms":1,"error":null}\n')
@example(b'{"query_id":"q1","ranking":[["\\u003a",1]],"latency_ms":1,"error":null,"error":null}\n')
def test_quick_agrees_with_the_reference_on_mutated_rows(data: bytes) -> None:
    assert_quick_agrees(data)


@settings(max_examples=150, deadline=None)
@given(st.lists(mutated_rows() | written_rows() | st.just(GOOD), max_size=6), st.booleans())
def test_whatever_is_read_ends_in_rows_or_faults(lines: list[bytes], cut: bool) -> None:
    data = b"".join(lines)[: -1 if cut else None]
    copied: list[bytes] = []
    result, rows = read(data, sink=copied.append)
    assert result.lines == result.report.valid + result.report.fault_count
    assert result.report.valid == len(rows)
    assert read(b"".join(copied))[0].report.fault_count == 0
    copied_again: list[bytes] = []
    again, same = read(data, reference=True, sink=copied_again.append)
    assert (same, copied_again) == (rows, copied)
    assert [f.line for f in again.report.faults] == [f.line for f in result.report.faults]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    assert read(data)[0].report.valid == 0


# --- strict JSON ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"9007199254740991", 2**53 - 1),
        (b"-9007199254740991", 1 - 2**53),
        (b"1e22", 1e22),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\u0000"', "\x00"),
        (b'{"a":{"a":[]}}', {"a": {"a": []}}),
        (b" 1 ", 1),
    ],
)
def test_sound_json_is_read(text: bytes, value: object) -> None:
    assert strict_loads(text) == value


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53) + 1, 2**53 - 1)
        | st.text()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_is_written_is_read_back(value: object) -> None:
    assert strict_loads(json.dumps(value).encode()) == value


# --- memory --------------------------------------------------------------------------------------


def many_rows(count: int) -> Iterator[bytes]:
    ranking = ",".join(f'["d{i}",{100 - i}.5]' for i in range(50))
    for number in range(count):
        yield (
            f'{{"query_id":"{number}","ranking":[{ranking}],"latency_ms":1.5,"error":null}}\n'
        ).encode()


def test_memory_does_not_grow_with_rows() -> None:
    ids = RetrievalIds.of(map(str, range(6_000)), [f"d{i}" for i in range(50)])
    peaks = []
    for count in (2_000, 6_000):
        tracemalloc.start()
        result = read_rows(many_rows(count), RetrievalRows(ids), on_block=len, sink=len)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert result.report.valid == count
    assert peaks[1] < peaks[0] * 1.1 + 6_000
