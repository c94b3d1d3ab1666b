"""The schema loader, and the rules that every published schema obeys."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import jsonschema
import pytest

from runner import schemas
from runner.errors import BundleError, ManifestError
from runner.schema_faults import has_more_values, json_path, not_json, shown

IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas")
GOOD_ROW: dict[str, Any] = {
    "query_id": "q1",
    "ranking": [["a", 1.5], ["b", 1]],
    "latency_ms": 3.25,
    "error": None,
}


# --- rules for every schema file -----------------------------------------------------------------


def subschemas(schema: Any, place: str = "#", closed: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield (place, subschema); a branch inside a closed object is marked ``in-place``."""
    if not isinstance(schema, dict):
        return
    yield (f"{place} (in-place)" if closed else place), schema
    sealed = is_closed(schema)
    for key in ("$defs", "properties", "patternProperties", "dependentSchemas"):
        for name, part in schema.get(key, {}).items():
            yield from subschemas(part, f"{place}/{key}/{name}")
    for key in ("items", "additionalProperties", "unevaluatedProperties", "propertyNames"):
        yield from subschemas(schema.get(key), f"{place}/{key}")
    for index, part in enumerate(schema.get("prefixItems", [])):
        yield from subschemas(part, f"{place}/prefixItems/{index}")
    for key in IN_PLACE:
        part = schema.get(key)
        for index, branch in enumerate(part if isinstance(part, list) else [part]):
            yield from subschemas(branch, f"{place}/{key}/{index}", closed=sealed or closed)


def is_closed(schema: dict[str, Any]) -> bool:
    if schema.get("unevaluatedProperties") is False:
        return True
    extra = schema.get("additionalProperties")
    return extra is False or (isinstance(extra, dict) and bool(extra))


def types_of(schema: dict[str, Any]) -> set[str]:
    found = schema.get("type", [])
    return {found} if isinstance(found, str) else set(found)


def faults_of(schema: dict[str, Any]) -> Iterator[str]:
    for place, part in subschemas(schema):
        types = types_of(part)
        is_object = "object" in types or "properties" in part
        if is_object and not is_closed(part) and "(in-place)" not in place:
            yield f"{place}: an object that is not closed"
        yield from string_faults(place, part, types)
        ref = part.get("$ref", part.get("$dynamicRef"))
        if ref is not None and not ref.startswith(("#", schemas.BASE_URI)):
            yield f"{place}: {ref} leaves the package"
        choices = [*part.get("enum", []), *([part["const"]] if "const" in part else [])]
        if any(isinstance(choice, int | float) for choice in choices) and not types:
            # jsonschema-rs takes true for 1 in a const without a type.
            yield f"{place}: a numeric choice needs a type beside it"
        if part.get("uniqueItems") and "object" in json.dumps(part.get("items", {})):
            yield f"{place}: uniqueItems on objects is quadratic"


def string_faults(place: str, part: dict[str, Any], types: set[str]) -> Iterator[str]:
    patterns = [*part.get("patternProperties", ())]
    pattern = part.get("pattern")
    if pattern is not None:
        patterns.append(pattern)
    for text in patterns:
        if not text.startswith("^") or not text.endswith(r"$(?!\n)"):
            yield rf"{place}: pattern {text} is not anchored by ^ and $(?!\n)"
    if "string" in types and not {"maxLength", "enum", "const"} & part.keys():
        body = re.sub(r"\\.|\[[^\]]*\]", "x", pattern or "*").removesuffix("(?!x)")
        if re.search(r"[*+]|,\}", body):
            yield f"{place}: a string without bound"


@pytest.mark.parametrize("kind", schemas.kinds())
def test_every_schema_is_closed_bounded_and_local(kind: str) -> None:
    schema = json.loads(schemas.schema_bytes(kind))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"https://sealbench.invalid/schemas/{kind}.v1.schema.json"
    assert list(faults_of(schema)) == []


@pytest.mark.parametrize("kind", schemas.kinds())
def test_both_validators_compile_every_schema_and_refuse_junk(kind: str) -> None:
    junks: tuple[object, ...] = ({"no-such-key": 1}, [], None, 1, "x")
    for junk in junks:
        for reference in (False, True):
            assert not schemas.is_valid(kind, junk, reference=reference)
            faults = list(schemas.iter_faults(kind, junk, reference=reference))
            assert faults
            assert "schema.disagreement" not in {fault.code for fault in faults}


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "object"}, "not closed"),
        ({"type": "object", "additionalProperties": True}, "not closed"),
        ({"type": "object", "additionalProperties": {}}, "not closed"),
        ({"properties": {}}, "not closed"),
        ({"type": "string"}, "without bound"),
        ({"type": "string", "pattern": r"^a+$(?!\n)"}, "without bound"),
        ({"type": "string", "pattern": "^a$"}, "not anchored"),
        ({"type": "string", "maxLength": 3, "pattern": r"a$(?!\n)"}, "not anchored"),
        ({"$ref": "https://example.com/x"}, "leaves the package"),
        ({"const": 1}, "numeric choice"),
        ({"type": "array", "uniqueItems": True, "items": {"type": "object"}}, "quadratic"),
        ({"items": {"type": "string"}}, "without bound"),
        ({"allOf": [{"properties": {}}]}, "not closed"),
    ],
)
def test_the_rules_catch_what_they_are_for(schema: dict[str, Any], fault: str) -> None:
    assert any(fault in found for found in faults_of(schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": False},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "string", "pattern": r"^sha256:[0-9a-f]{64}$(?!\n)"},
        {"type": "string", "enum": ["a"]},
        {"type": "object", "unevaluatedProperties": False, "allOf": [{"properties": {}}]},
        {"$ref": "#/$defs/x"},
    ],
)
def test_the_rules_let_sound_schemas_pass(schema: dict[str, Any]) -> None:
    assert list(faults_of(schema)) == []


# --- loading -------------------------------------------------------------------------------------


def test_digest_and_bytes_are_those_of_the_file() -> None:
    data = (schemas.SCHEMA_FOLDER / "row-retrieval.v1.schema.json").read_bytes()
    assert schemas.schema_bytes("row-retrieval") == data
    assert schemas.schema_sha256("row-retrieval") == hashlib.sha256(data).hexdigest()
    assert "row-retrieval" in schemas.kinds()


@pytest.mark.parametrize("kind", ["no-such", "../pyproject", "", "row-retrieval.v1"])
def test_an_unknown_kind_is_a_programming_error(kind: str) -> None:
    with pytest.raises(LookupError):
        schemas.schema_bytes(kind)


@pytest.mark.parametrize(
    "uri",
    ["https://example.com/a.v1.schema.json", "file:///etc/passwd", "row-retrieval.v1.schema.json"],
)
def test_no_reference_leaves_the_package(uri: str) -> None:
    with pytest.raises(LookupError):
        schemas._own_schema(uri)


def test_references_between_own_schemas_resolve() -> None:
    own = schemas._own_schema(schemas.BASE_URI + "row-retrieval.v1.schema.json")
    assert own is schemas.load_schema("row-retrieval")


@pytest.mark.parametrize("remote", ["https://example.com/x.json", "http://127.0.0.1:1/x.json"])
def test_a_remote_reference_fails_in_both_validators(
    remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(kind: str) -> dict[str, Any]:
        return {"$id": f"{schemas.BASE_URI}{kind}.v1.schema.json", "$ref": remote}

    monkeypatch.setattr(schemas, "load_schema", poisoned)
    fast, reference = schemas._fast.__wrapped__, schemas._reference.__wrapped__
    with pytest.raises(ValueError, match=r"retrieving it failed|outside"):
        fast("poisoned").is_valid({})
    with pytest.raises(Exception, match=r"x\.json"):
        list(reference("poisoned").iter_errors({}))


# --- reports -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", [False, True])
def test_a_good_document_has_no_fault(reference: bool) -> None:
    assert schemas.is_valid("row-retrieval", GOOD_ROW, reference=reference)
    assert list(schemas.iter_faults("row-retrieval", GOOD_ROW, reference=reference)) == []
    schemas.validate(
        "row-retrieval", GOOD_ROW, where_file="x", error_class=BundleError, reference=reference
    )


class Word(StrEnum):
    A = "a"


@pytest.mark.parametrize("reference", [False, True])
def test_tuples_and_string_enums_are_what_they_serialise_to(reference: bool) -> None:
    row = {**GOOD_ROW, "ranking": ((Word.A, 1.0),)}
    assert schemas.is_valid("row-retrieval", row, reference=reference)


DEEP: Any = []
for _ in range(5_000):
    DEEP = [DEEP]

BAD: list[tuple[Any, str, str, str]] = [
    ({**GOOD_ROW, "latencyms": 1}, "schema.unknown-key", "$.latencyms", "'latency_ms'?"),
    ({**GOOD_ROW, "x y": 1}, "schema.unknown-key", "$['x y']", "unknown key 'x y'"),
    ({"query_id": "q"}, "schema.missing-key", "$", "'ranking' is missing"),
    ({**GOOD_ROW, "query_id": 1}, "schema.type", "$.query_id", "expected a string, found 1"),
    ({**GOOD_ROW, "query_id": ""}, "schema.bound", "$.query_id", "at least 1"),
    (
        {**GOOD_ROW, "query_id": "x" * 5130},
        "schema.bound",
        "$.query_id",
        "5,130 characters, and at most 512 are allowed",
    ),
    ({**GOOD_ROW, "latency_ms": -1}, "schema.bound", "$.latency_ms", "at least 0"),
    ({**GOOD_ROW, "latency_ms": math.nan}, "schema.non-finite", "$.latency_ms", "no JSON"),
    ({**GOOD_ROW, "latency_ms": math.inf}, "schema.non-finite", "$.latency_ms", "no JSON"),
    ({**GOOD_ROW, "latency_ms": True}, "schema.type", "$.latency_ms", "found true"),
    ({**GOOD_ROW, "error": "\ud800"}, "schema.surrogate", "$.error", "lone surrogate"),
    ({**GOOD_ROW, "error": b"x"}, "schema.not-json", "$.error", "type bytes"),
    ({**GOOD_ROW, 3: 1}, "schema.not-json", "$", "key 3"),
    ({**GOOD_ROW, "error": DEEP}, "schema.depth", "$.error" + "[0]" * 63, "nested deeper"),
    ({**GOOD_ROW, "ranking": [["a"]]}, "schema.bound", "$.ranking[0]", "at least 2"),
    ({**GOOD_ROW, "ranking": [["a", "1"]]}, "schema.type", "$.ranking[0][1]", "a number"),
    ([], "schema.type", "$", "expected an object, found an array of 0 items"),
]


@pytest.mark.parametrize(
    ("document", "code", "path", "words"),
    [pytest.param(*case, id=f"{case[2][:20]}-{case[1]}") for case in BAD],
)
@pytest.mark.parametrize("reference", [False, True])
def test_what_is_wrong_is_said_with_place_and_fix(
    document: Any, code: str, path: str, words: str, reference: bool
) -> None:
    with pytest.raises(ManifestError) as caught:
        schemas.validate(
            "row-retrieval",
            document,
            where_file="rows.jsonl",
            error_class=ManifestError,
            reference=reference,
        )
    error = caught.value
    assert (error.code, error.where and error.where.json_path) == (code, path)
    assert words in error.message
    assert error.fix
    assert str(error).startswith(f"rows.jsonl at {path}: ")
    assert not schemas.is_valid("row-retrieval", document, reference=reference)


def test_a_misspelt_key_is_named_before_the_missing_one() -> None:
    row: dict[str, Any] = {"query_id": "q", "rankin": [], "latency_ms": None, "error": None}
    faults = list(schemas.iter_faults("row-retrieval", row))
    assert [fault.code for fault in faults] == ["schema.unknown-key", "schema.missing-key"]
    assert faults[0].fix == "use one of: error, evidence, latency_ms, query_id, ranking"


@pytest.mark.parametrize(
    ("count", "words"), [(2, "(and 1 other fault)"), (500, "(and 99 or more other faults)")]
)
def test_faults_are_counted_up_to_the_cap(count: int, words: str) -> None:
    row = {**GOOD_ROW, "ranking": [["a", None]] * count}
    with pytest.raises(BundleError, match=re.escape(words)):
        schemas.validate("row-retrieval", row, where_file="x", error_class=BundleError)


def test_large_bad_documents_are_refused_without_a_long_explanation() -> None:
    row = {**GOOD_ROW, "ranking": [["a", None]] * 60_000}
    assert [fault.code for fault in schemas.iter_faults("row-retrieval", row)] == ["schema.invalid"]
    first = next(schemas.iter_faults("row-retrieval", row, reference=True))
    assert first.code == "schema.type"


@pytest.mark.parametrize(
    ("document", "count"), [(1, 1), ([], 1), ([1, [2]], 4), ({"a": {"b": None}, "c": ()}, 4)]
)
def test_values_are_counted(document: object, count: int) -> None:
    assert has_more_values(document, count - 1)
    assert not has_more_values(document, count)


def test_validators_that_disagree_refuse_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses_all(_: object) -> bool:
        return False

    monkeypatch.setattr(schemas, "fast_check", lambda _: refuses_all)
    with pytest.raises(BundleError) as caught:
        schemas.validate("row-retrieval", GOOD_ROW, where_file="x", error_class=BundleError)
    assert caught.value.code == "schema.disagreement"
    schemas.validate(
        "row-retrieval", GOOD_ROW, where_file="x", error_class=BundleError, reference=True
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [((), "$"), (("a", 0, "b"), "$.a[0].b"), (("a b",), "$['a b']"), (("é",), "$['é']")],
)
def test_json_path(path: tuple[str | int, ...], text: str) -> None:
    assert json_path(path) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": 1}, "an object of 1 keys"),
        ("a\nb", r"'a\nb'"),
        ("\x1b[31m", r"'\x1b[31m'"),
        pytest.param(10**5000, "a number of thousands of digits", id="huge"),
    ],
)
def test_shown_values_are_one_safe_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_shown_values_are_cut() -> None:
    assert len(shown("x" * 10_000)) == 60
    assert len(shown("\n" * 10_000)) == 60


def test_not_json_reports_in_document_order() -> None:
    found = [fault.path for fault in not_json({"a": [math.nan, 1, b""], "b": {"c": math.inf}})]
    assert found == [("a", 0), ("a", 2), ("b", "c")]
