"""Does a document fit its JSON Schema? Schemas come from the package's own folder only.

Two validators look at a document. ``jsonschema-rs`` is the fast path: what it accepts is accepted.
What it refuses is looked at again by ``jsonschema``, the reference, which says what is wrong and
where. If the reference finds nothing wrong then the two disagree and the document is refused
(``schema.disagreement``): a format that two readers understand differently is nothing to sign.

No ``$ref`` ever leaves the package: both validators would fetch remote references by default, so
they get a registry and a retriever that know only the files beside the package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import SealbenchError, Where
from runner.schema_faults import SchemaFault, describe, has_more_values, not_json

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = [
    "MAX_FAULTS",
    "SchemaFault",
    "fast_check",
    "is_valid",
    "iter_faults",
    "kinds",
    "load_schema",
    "schema_bytes",
    "schema_sha256",
    "validate",
]

SCHEMA_FOLDER = Path(__file__).resolve().parent.parent / "schemas"
SUFFIX = ".v1.schema.json"
BASE_URI = "https://sealbench.invalid/schemas/"
#: Faults beyond this are counted as "or more": a broken document need not be read to its end.
MAX_FAULTS = 100
#: The reference takes 10 us a value: of larger bad documents it is not asked what is wrong.
MAX_EXPLAINED_VALUES = 100_000


@cache
def kinds() -> tuple[str, ...]:
    """Return the names of all schemas in the package, sorted."""
    return tuple(sorted(path.name[: -len(SUFFIX)] for path in SCHEMA_FOLDER.glob(f"*{SUFFIX}")))


@cache
def schema_bytes(kind: str) -> bytes:
    """Return a schema file's bytes as published; ``LookupError`` for a kind that has none."""
    if kind not in kinds():
        raise LookupError(f"the package has no schema {kind!r}")
    return (SCHEMA_FOLDER / f"{kind}{SUFFIX}").read_bytes()


@cache
def schema_sha256(kind: str) -> str:
    """Return the hex SHA-256 of a schema file's bytes."""
    return hashlib.sha256(schema_bytes(kind)).hexdigest()


@cache
def load_schema(kind: str) -> dict[str, Any]:
    """Return a schema as parsed JSON. Shared: do not change it."""
    schema: dict[str, Any] = json.loads(schema_bytes(kind))
    return schema


def is_valid(kind: str, document: object, *, reference: bool = False) -> bool:
    """Tell whether a document fits; no report. Disagreeing validators mean no."""
    if next(not_json(document), None) is not None:
        return False
    if reference:
        return next(_reference_faults(kind, document), None) is None
    return fast_check(kind)(document)


def iter_faults(kind: str, document: object, *, reference: bool = False) -> Iterator[SchemaFault]:
    """Yield what is wrong with a document, at most ``MAX_FAULTS``, unknown keys first.

    ``reference=True`` asks the reference validator even where the fast path would accept.
    """
    broken = list(islice(not_json(document), MAX_FAULTS))
    if broken:
        yield from broken
        return
    if not reference:
        if fast_check(kind)(document):
            return
        if has_more_values(document, MAX_EXPLAINED_VALUES):
            yield _too_large_to_explain(kind)
            return
    faults = list(islice(_reference_faults(kind, document), MAX_FAULTS))
    if faults:
        # A misspelt key is the likely cause of a missing one: name it first.
        yield from sorted(faults, key=lambda fault: fault.code != "schema.unknown-key")
    elif not reference:
        yield SchemaFault(
            path=(),
            code="schema.disagreement",
            message=f"two validators disagree whether this is a valid {kind} document",
            fix="report the document: it is refused because readers would not agree on it",
        )


def validate(
    kind: str,
    document: object,
    *,
    where_file: str,
    error_class: type[SealbenchError],
    reference: bool = False,
) -> None:
    """Raise ``error_class`` for the first fault of a document and say how many there are."""
    faults = list(iter_faults(kind, document, reference=reference))
    if not faults:
        return
    first, more = faults[0], len(faults) - 1
    message = first.message
    if more:
        least = " or more" if len(faults) == MAX_FAULTS else ""
        message = f"{message} (and {more}{least} other fault{'s' if more > 1 else ''})"
    raise error_class(
        first.code,
        message,
        fix=first.fix,
        where=Where(file=where_file, json_path=first.json_path),
    )


def _too_large_to_explain(kind: str) -> SchemaFault:
    return SchemaFault(
        path=(),
        code="schema.invalid",
        message=f"not a valid {kind} document, and too large to say where",
        fix="see the schema of this format, or check with --reference",
    )


@cache
def fast_check(kind: str) -> Callable[[object], bool]:
    """Return the compiled fast check of a kind, for bulk use on strictly parsed documents.

    It answers False for whatever the fast validator cannot take at all (a value of no JSON type).
    It does not look for lone surrogates or for depth: ``iter_faults`` does.
    """
    accepts = _fast(kind).is_valid

    def check(document: object) -> bool:
        try:
            return accepts(document)
        except (ValueError, TypeError, OverflowError, RecursionError):
            return False

    return check


@cache
def _fast(kind: str) -> jsonschema_rs.Draft202012Validator:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(
        load_schema(kind), retriever=_own_schema, validate_formats=False
    )


@cache
def _reference(kind: str) -> Any:
    """Compile the reference validator once: checking the schema itself costs 5 ms each time."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from referencing import Registry, Resource
    from referencing.exceptions import NoSuchResource
    from referencing.jsonschema import DRAFT202012

    def retrieve(uri: str) -> Resource[Any]:
        try:
            return DRAFT202012.create_resource(_own_schema(uri))
        except LookupError as error:
            raise NoSuchResource(uri) from error

    # The fast validator takes a tuple for an array, as every JSON writer does: agree with it.
    types = Draft202012Validator.TYPE_CHECKER.redefine(
        "array", lambda _, value: isinstance(value, list | tuple)
    )
    validator = extend(Draft202012Validator, type_checker=types)
    validator.check_schema(load_schema(kind))
    registry: Registry[Any] = Registry(retrieve=retrieve)  # type: ignore[call-arg]  # attrs alias
    return validator(load_schema(kind), registry=registry)


def _reference_faults(kind: str, document: object) -> Iterator[SchemaFault]:
    for error in _reference(kind).iter_errors(document):
        yield from describe(error)


def _own_schema(uri: str) -> dict[str, Any]:
    """Answer a ``$ref`` between our own schemas; refuse every other address."""
    name = uri.removeprefix(BASE_URI)
    if name == uri or not name.endswith(SUFFIX):
        raise LookupError(f"{uri!r} is outside the package")
    return load_schema(name.removesuffix(SUFFIX))
