"""What exactly is wrong with a document, in words that a person can act on.

Turns the reference validator's errors into faults with a stable code, a place, a message and a
fix; and finds what no schema sees: values that are no JSON at all.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

#: Our formats nest less than ten levels; open config values may nest more, but not without end.
MAX_DEPTH = 64
_SHOWN = 60  # characters of a bad value that a message repeats
_APPLICATORS = ("allOf", "anyOf", "oneOf")
_CONDITIONALS = ("if", "then", "else")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFault:
    """One fault: where in the document, a stable code, what is wrong and what to do."""

    path: tuple[str | int, ...]
    code: str
    message: str
    fix: str

    @property
    def json_path(self) -> str:
        """The place as ``$.methods[0].image``."""
        return json_path(self.path)


def json_path(path: Sequence[str | int]) -> str:
    """Return ``$.methods[0]["odd key"]`` for a path of keys and positions."""
    text = "$"
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isascii() and part.isidentifier():
            text += f".{part}"
        else:
            text += f"[{shown(part)}]"
    return text


def shown(value: object) -> str:
    """Return a value as JSON-like text on one line, cut to a length fit for a message."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return f"an object of {len(value)} keys"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)} items"
    if isinstance(value, str):
        text = ascii(str(value[: _SHOWN + 1])) if not value.isprintable() else repr(str(value))
    else:
        try:
            text = repr(value)
        except ValueError:  # an int of more digits than Python agrees to print
            text = "a number of thousands of digits"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def suggest(word: str, known: Sequence[str]) -> str:
    """Return `` did you mean 'x'?`` for the closest known word, or nothing."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {str(close[0])!r}?" if close else ""


def not_json(document: object) -> Iterator[SchemaFault]:
    """Yield every value that JSON cannot carry or that readers understand differently."""
    for path, value in _values(document):
        if isinstance(value, str):
            if not _encodable(value):
                yield _fault(path, "schema.surrogate", "text holds a lone surrogate", _RETYPE)
        elif value is None or isinstance(value, int):
            continue
        elif isinstance(value, float):
            if not math.isfinite(value):
                yield _fault(path, "schema.non-finite", f"{value!r} is no JSON number", _NULL)
        elif isinstance(value, dict | list | tuple):
            if len(path) >= MAX_DEPTH:
                yield _fault(path, "schema.depth", f"nested deeper than {MAX_DEPTH}", _FLATTEN)
            elif isinstance(value, dict):
                yield from _bad_keys(path, value)
        else:
            name = type(value).__name__
            yield _fault(path, "schema.not-json", f"a value of type {name} is no JSON", _PLAIN)


def has_more_values(document: object, limit: int) -> bool:
    """Tell whether a document holds more than ``limit`` values; stops counting there."""
    return next(islice(_values(document), limit, None), None) is not None


def _values(document: object) -> Iterator[tuple[tuple[Any, ...], object]]:
    """Yield (path, value) in document order, down to ``MAX_DEPTH``; holds one iterator a level."""
    yield (), document
    stack: list[tuple[tuple[Any, ...], Iterator[tuple[Any, object]]]] = [((), _children(document))]
    while stack:
        parent, children = stack[-1]
        for key, value in children:
            path = (*parent, key)
            yield path, value
            if isinstance(value, dict | list | tuple) and len(path) < MAX_DEPTH:
                stack.append((path, _children(value)))
                break
        else:
            stack.pop()


def _children(value: object) -> Iterator[tuple[Any, object]]:
    if isinstance(value, dict):
        return iter(value.items())
    return enumerate(value) if isinstance(value, list | tuple) else iter(())


_RETYPE = "write the text as UTF-8"
_NULL = "write null for what was not measured"
_FLATTEN = "nest the values less deeply"
_PLAIN = "use only objects, arrays, strings, numbers, booleans and null"


def _bad_keys(path: tuple[str | int, ...], value: dict[Any, object]) -> Iterator[SchemaFault]:
    for key in value:
        if not isinstance(key, str):
            yield _fault(path, "schema.not-json", f"key {shown(key)} is not a string", _PLAIN)
        elif not _encodable(key):
            yield _fault(path, "schema.surrogate", "a key holds a lone surrogate", _RETYPE)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fault(path: tuple[str | int, ...], code: str, message: str, fix: str) -> SchemaFault:
    return SchemaFault(path=path, code=code, message=message, fix=fix)


def describe(error: Any) -> Iterator[SchemaFault]:
    """Yield the faults that one ``jsonschema`` error stands for."""
    from jsonschema.exceptions import best_match

    # Of alternatives that all failed, report the one that came closest.
    error = best_match([error]) or error
    path = tuple(error.absolute_path)
    if error.validator in ("additionalProperties", "unevaluatedProperties"):
        unknown = list(_unknown_keys(error, path))
        if unknown:
            yield from unknown
            return
    if error.validator == "required":
        yield from _missing_keys(error, path)
        return
    explain = _EXPLAIN.get(str(error.validator))
    if explain is None:
        text = str(error.message)
        text = text if len(text) <= 200 else text[:199] + "…"
        yield _fault(path, "schema.invalid", text, "see the schema of this format")
        return
    code, message, fix = explain(error)
    yield _fault(path, code, message, fix)


def _unknown_keys(error: Any, path: tuple[str | int, ...]) -> Iterator[SchemaFault]:
    import re

    known = sorted(_known_keys(error.schema))
    patterns = [*error.schema.get("patternProperties", ())]
    allowed = ", ".join(known) if len(known) <= 20 else f"{', '.join(known[:20])}, …"
    for key in error.instance:
        if key in known or any(re.search(pattern, key) for pattern in patterns):
            continue
        yield _fault(
            (*path, key),
            "schema.unknown-key",
            f"unknown key {shown(key)}{suggest(key, known)}",
            f"use one of: {allowed}" if known else "remove the key",
        )


def _known_keys(schema: object) -> set[str]:
    """Return the property names that a schema and its in-place parts declare."""
    if not isinstance(schema, dict):
        return set()
    known = set(schema.get("properties", ()))
    for name in _APPLICATORS:
        for part in schema.get(name, ()):
            known |= _known_keys(part)
    for name in _CONDITIONALS:
        known |= _known_keys(schema.get(name))
    return known


def _missing_keys(error: Any, path: tuple[str | int, ...]) -> Iterator[SchemaFault]:
    # The validator gives one error a missing key and names it only in its own text.
    for key in error.validator_value:
        if key not in error.instance and error.message.startswith(repr(key)):
            yield _fault(
                path, "schema.missing-key", f"key {shown(key)} is missing", f"add {shown(key)}"
            )


_NAMES = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_Explained = tuple[str, str, str]


def _wrong_type(error: Any) -> _Explained:
    types = error.validator_value
    names = [types] if isinstance(types, str) else list(types)
    wanted = " or ".join(_NAMES[name] for name in names)
    return "schema.type", f"expected {wanted}, found {shown(error.instance)}", f"write {wanted}"


def _wrong_enum(error: Any) -> _Explained:
    choices = [str(choice) for choice in error.validator_value]
    hint = suggest(error.instance, choices) if isinstance(error.instance, str) else ""
    listed = ", ".join(shown(choice) for choice in error.validator_value)
    return "schema.value", f"{shown(error.instance)} is no choice{hint}", f"use one of: {listed}"


def _wrong_const(error: Any) -> _Explained:
    wanted = shown(error.validator_value)
    return "schema.value", f"expected {wanted}, found {shown(error.instance)}", f"write {wanted}"


def _wrong_pattern(error: Any) -> _Explained:
    rule = error.schema.get("description") or f"match {error.validator_value}"
    return "schema.pattern", f"{shown(error.instance)} has the wrong form", f"expected: {rule}"


def _bound(problem: str, wanted: str) -> Callable[[Any], _Explained]:
    def explain(error: Any) -> _Explained:
        limit = f"{wanted} {error.validator_value}"
        message = f"{shown(error.instance)} is {problem}: expected {limit}"
        return "schema.bound", message, f"use {limit}"

    return explain


def _length(problem: str, wanted: str) -> Callable[[Any], _Explained]:
    def explain(error: Any) -> _Explained:
        limit = f"{wanted} {error.validator_value:,}"
        message = (
            f"{shown(error.instance)} is {problem}: {len(error.instance):,} characters, "
            f"and {limit} are allowed"
        )
        return "schema.bound", message, f"use {limit} characters"

    return explain


_EXPLAIN: dict[str, Callable[[Any], _Explained]] = {
    "type": _wrong_type,
    "enum": _wrong_enum,
    "const": _wrong_const,
    "pattern": _wrong_pattern,
    "minimum": _bound("too small", "at least"),
    "maximum": _bound("too large", "at most"),
    "exclusiveMinimum": _bound("too small", "more than"),
    "exclusiveMaximum": _bound("too large", "less than"),
    "minLength": _length("too short", "at least"),
    "maxLength": _length("too long", "at most"),
    "minItems": _bound("too short", "a number of items of at least"),
    "maxItems": _bound("too long", "a number of items of at most"),
    "minProperties": _bound("too small", "a number of keys of at least"),
    "maxProperties": _bound("too large", "a number of keys of at most"),
}
