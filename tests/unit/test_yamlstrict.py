"""The strict YAML reader: what it accepts, what it refuses, where it points."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runner.canonical import MAX_SAFE_INTEGER, Json, canonical_bytes
from runner.errors import ManifestError
from runner.yamlscalars import ScalarFault, read_plain
from runner.yamlstrict import MAX_BYTES, MAX_DEPTH, MAX_VALUES, YamlDocument, read_yaml


def load_yaml(raw: bytes, file: str) -> YamlDocument:
    """The document without a fault; else its first fault is raised."""
    document = read_yaml(raw, file)
    if document.faults:
        raise document.faults[0]
    return document


def data_of(text: str) -> Json:
    return load_yaml(text.encode(), "m.yaml").data


def refused(raw: bytes | str) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        load_yaml(raw.encode() if isinstance(raw, str) else raw, "m.yaml")
    assert caught.value.where is not None
    assert caught.value.where.file == "m.yaml"
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("0", 0),
        ("-0", 0),
        ("-17", -17),
        ("9007199254740991", MAX_SAFE_INTEGER),
        ("0.5", 0.5),
        ("-1.25e-3", -0.00125),
        ("1e3", 1000.0),
        ("2E+2", 200.0),
        ("30m", "30m"),
        ("4GiB", "4GiB"),
        ("sha256:0123", "sha256:0123"),
        ("1.0.0", "1.0.0"),
        ("linux/amd64", "linux/amd64"),
        ("-", "-"),
        ("--flag", "--flag"),
        ("./x", "./x"),
        ("...x", "...x"),
        ("2024-01", "2024-01"),
        ("2024-01-01-release", "2024-01-01-release"),
        ("12:30:99x", "12:30:99x"),
        ("information", "information"),
        ("nano", "nano"),
        ("1e", "1e"),
        ("=", "="),
        ("truey", "truey"),
    ],
)
def test_plain_scalars(text: str, value: Json) -> None:
    found = read_plain(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("implicit-boolean", "yes no on off y n Y N YES No ON True TRUE False FALSE"),
        ("implicit-null", "~ Null NULL"),
        ("implicit-date", "2024-01-01 2024-1-1 2001-12-14T21:59:43.10-05:00 2001-12-14t21:59:43Z"),
        (
            "ambiguous-number",
            "010 00 -012 0x1F 0o17 0b101 1_000 12:30 1:20:30 190:20:30.15 +1 .5 5. +.5 1_0.5 01e3",
        ),
        ("not-finite", ".nan .NaN NaN nan .inf -.Inf +.INF inf Infinity -infinity"),
        ("unsafe-number", "9007199254740992 -9007199254740992 1e999 -1e999 1e300 1e-999"),
    ],
)
def test_refused_plain_scalars(code: str, texts: str) -> None:
    for text in texts.split():
        found = read_plain(text)
        assert isinstance(found, ScalarFault), text
        assert found.code == code, text
        assert found.fix
        # The fix works: quoted, it is text.
        assert data_of(f'a: "{text}"') == {"a": text}


def test_thousands_of_digits_are_refused_without_conversion() -> None:
    assert refused("a: " + "9" * 5000).code == "manifest.unsafe-number"


def test_values_of_every_kind_and_their_places() -> None:
    text = (
        "# comment\n"
        "name: first   # trailing\n"
        "list:\n"
        "  - a\n"
        '  - "b: c"\n'
        "  - {k: 1.5, 'deep': [true, null]}\n"
        "folded: >-\n"
        "  two\n"
        "  lines\n"
        "literal: |\n"
        "  keep no\n"
    )
    document = load_yaml(text.encode(), "m.yaml")
    assert document.data == {
        "name": "first",
        "list": ["a", "b: c", {"k": 1.5, "deep": [True, None]}],
        "folded": "two lines",
        "literal": "keep no\n",
    }
    places = document.places
    assert str(places.where("name")) == "m.yaml:2:7 at $.name"
    assert str(places.where_key("name")) == "m.yaml:2:1 at $.name"
    assert str(places.where("list", 1)) == "m.yaml:5:5 at $.list[1]"
    assert str(places.where("list", 2, "deep", 1)) == "m.yaml:6:29 at $.list[2].deep[1]"
    assert str(places.where_key("list", 2, "deep")) == "m.yaml:6:14 at $.list[2].deep"
    # What is not there is told by what holds it.
    assert places.where("list", 2, "absent", 0).line == 6
    assert places.where("nowhere").line == 2


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("a: 1\nb: 2\na: 3\n", "duplicate-key", 3, 1),
        ("a: {x: 1, x: 2}", "duplicate-key", 1, 11),
        ("a: 1\n'a': 2", "duplicate-key", 2, 1),
        ("a: &x 1", "anchor", 1, 4),
        ("a: 1\nb: *a", "alias", 2, 4),
        ("a: !!str 1", "tag", 1, 4),
        ("a: !<x> 1", "tag", 1, 4),
        ("a: ! 1", "tag", 1, 4),
        ("%YAML 1.1\n---\na: 1", "directive", 1, 1),
        ("%FOO bar\n---\na: 1", "directive", 1, 1),
        ("<<: {a: 1}", "merge-key", 1, 1),
        ("a: 1\n---\nb: 2", "several-documents", 2, 1),
        ("a: 1\n...\nb: 2", "syntax", 3, 1),
        ("1: a", "bad-key", 1, 1),
        ("null: a", "bad-key", 1, 1),
        ("true: a", "bad-key", 1, 1),
        ("on: a", "implicit-boolean", 1, 1),
        ("? [a]\n: 1", "bad-key", 1, 3),
        ("? {a: 1}\n: 1", "bad-key", 1, 3),
        ("a:\n  b:\n", "implicit-null", 2, 5),
        ("a: [1, , 2]", "syntax", 1, 8),
        ("a: yes", "implicit-boolean", 1, 4),
        ("a: 2024-01-01", "implicit-date", 1, 4),
        ("a:\n\tb: 1", "tab", 2, 1),
        ("a: 1 \t# x", "tab", 1, 6),
        ("a: b: c", "syntax", 1, 5),
        ("a: 1\n b: 2", "syntax", 2, 3),
        ("a: [1, 2", "syntax", 1, 9),
        ("a: 'open", "syntax", 1, 9),
        ("a: @b", "syntax", 1, 4),
        ("a:\n- b\n-c\n", "syntax", 4, 1),
        ('a: "\\xZZ"', "syntax", 1, 7),
        ("a: \x00", "control-character", 1, 4),
        ("a: b\x1b[31m", "control-character", 1, 5),
        ("a: \u0085b", "control-character", 1, 4),
        ("x: 1\na: \u2028b", "control-character", 2, 4),
        ("a: \ufeffb", "control-character", 1, 4),
        ('a: "\\0"', "control-character", 1, 4),
        ('a: "\\ud800"', "half-character", 1, 4),
        ('a: "\\x1b"', "control-character", 1, 4),
        ("", "empty", 1, 1),
        ("# only a comment\n", "empty", 1, 1),
        ("---\n", "implicit-null", 2, 1),
        ("\ufeff", "empty", 1, 1),
    ],
)
def test_refused_documents_point_to_the_place(text: str, code: str, line: int, column: int) -> None:
    error = refused(text)
    assert error.code == f"manifest.{code}"
    assert error.where is not None
    assert (error.where.line, error.where.column) == (line, column)


def test_an_escape_beyond_unicode_is_a_syntax_error() -> None:
    for escape in ("\\UFFFFFFFF", "\\U00110000"):
        assert refused(f'a: "{escape}"').code == "manifest.syntax"


def test_fixes_say_what_to_do() -> None:
    assert "double quotes" in refused("a:\t1").fix
    assert 'quote it for text: "no"' in refused("country: no").fix
    assert "first on line 1" in refused("a: 1\na: 2").message
    assert "space after the colon" in refused("a: 1\nb:2\n").fix


@pytest.mark.parametrize(
    ("raw", "code", "line", "column"),
    [
        (b"a: \xff", "not-utf8", 1, 4),
        ("é: 1\nü: ".encode() + b"\xc3", "not-utf8", 2, 4),
        ("a: x".encode("utf-16"), "not-utf8", 1, 1),
        ("a: x".encode("utf-16-be"), "control-character", 1, 1),
    ],
)
def test_not_utf8(raw: bytes, code: str, line: int, column: int) -> None:
    error = refused(raw)
    assert error.code == f"manifest.{code}"
    assert error.where is not None
    assert (error.where.line, error.where.column) == (line, column)


def test_a_leading_byte_order_mark_and_crlf_change_nothing() -> None:
    document = load_yaml(b"\xef\xbb\xbfa: 1\r\nb: [x,\r\n  yy]\r\n", "m.yaml")
    assert document.data == {"a": 1, "b": ["x", "yy"]}
    assert str(document.places.where("b", 1)) == "m.yaml:3:3 at $.b[1]"
    assert document.places.where("a").column == 4


def test_json_is_accepted() -> None:
    value = {"a": [1, 2.5, "x\ny", {"b": None, "c": True}], "d": {}, "e": []}
    assert data_of(json.dumps(value)) == value
    assert data_of(json.dumps(value, indent=2)) == value


def test_all_faults_of_values_are_told_at_once_in_file_order() -> None:
    document = read_yaml(b"a: yes\nb: 010\na: 2\nc: ~\n", "m.yaml")
    assert [(fault.code, fault.where and fault.where.line) for fault in document.faults] == [
        ("manifest.implicit-boolean", 1),
        ("manifest.ambiguous-number", 2),
        ("manifest.duplicate-key", 3),
        ("manifest.implicit-null", 4),
    ]


def test_faults_are_counted_to_a_hundred() -> None:
    assert len(read_yaml(b"- yes\n" * 500, "m.yaml").faults) == 100


def test_size_depth_and_number_of_values_are_bounded() -> None:
    assert refused(b"#" * (MAX_BYTES + 1)).code == "manifest.too-large"
    assert refused("[" * 5000).code == "manifest.too-deep"
    assert refused("- " * 5000 + "a").code == "manifest.too-deep"
    assert refused("\n".join(" " * n + f"k{n}:" for n in range(100))).code == "manifest.too-deep"
    assert data_of("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert refused("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2)).code == "manifest.too-deep"
    assert refused("- 1\n" * (MAX_VALUES + 1)).code == "manifest.too-large"


def test_alias_bombs_stop_at_the_first_anchor() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 30)]
    error = refused("\n".join(lines))
    assert error.code == "manifest.anchor"
    assert error.where is not None
    assert error.where.line == 1


def test_odd_keys_have_a_json_path() -> None:
    places = load_yaml(b'"a b": {"c.d": 1}', "m.yaml").places
    assert str(places.where("a b", "c.d")) == "m.yaml:1:16 at $['a b']['c.d']"


# --- properties ---------------------------------------------------------------------------------

ALPHABET = st.sampled_from(
    list("ab: -?[]{},#|>&*!%@`'\"\\\n\r\t0123456789.eExX_+~=<yes no\0é\ufeff\x85")
)


def is_json(value: Json, depth: int = 0) -> bool:
    assert depth <= MAX_DEPTH + 1
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_json(v, depth + 1) for k, v in value.items())
    if isinstance(value, list):
        return all(is_json(item, depth + 1) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int | bool)


@settings(max_examples=400, deadline=None)
@example(b'"\\UFFFFFFFF"')
@example(b"? ")
@example(b"- - -")
@example(b": :")
@example(b"|")
@example(b"> 9")
@example(b"a: |9\n x")
@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.text(ALPHABET, max_size=80).map(str.encode),
    )
)
def test_any_bytes_give_json_or_a_manifest_error(raw: bytes) -> None:
    try:
        data = load_yaml(raw, "m.yaml").data
    except ManifestError as error:
        assert error.code.startswith("manifest.")
        assert error.fix
        assert error.where is not None
        assert error.where.file == "m.yaml"
        assert error.where.line is None or error.where.line >= 1
    else:
        assert is_json(data)
        canonical_bytes([data])  # every value that is accepted has canonical bytes


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
    | st.floats(-1e15, 1e15).filter(lambda x: abs(x) > 1e-300 or x == 0)
    | st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(JSON_VALUES)
def test_what_a_careful_yaml_writer_writes_is_read_back(value: Json) -> None:
    assert data_of(json.dumps(value, ensure_ascii=False)) == value


@settings(max_examples=300, deadline=None)
@given(st.text(ALPHABET, min_size=1, max_size=12))
def test_what_we_take_for_text_is_text_to_yaml_11_too(text: str) -> None:
    """Our text is never something else to PyYAML's own resolver: nothing implicit is left."""
    found = read_plain(text)
    resolver = yaml.SafeLoader("")
    # PyYAML's stubs leave this method untyped.
    tag = resolver.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    if isinstance(found, str) and text not in {
        "=",
        "<<",
        "!",
        "&",
        "*",
    }:  # no plain scalars, or text in YAML 1.2
        assert tag == "tag:yaml.org,2002:str"


def test_the_reader_never_builds_objects(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    assert refused(f"!!python/object/apply:pathlib.Path.touch ['{marker}']").code == "manifest.tag"
    assert not marker.exists()


@pytest.mark.parametrize(
    ("text", "by_escape"), [('a: "\\e[31m"', False), ("a: \x1b", False), ("a: \u2028", True)]
)
def test_an_escape_is_advised_only_where_one_is_taken(text: str, by_escape: bool) -> None:
    assert ("escape" in refused(text).fix) == by_escape
