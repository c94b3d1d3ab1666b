"""Bytes -> a document that every reader understands alike, or a refusal that names the file.

A signed document *is* its RFC 8785 bytes: it is parsed, written again and compared. That alone
refuses duplicate keys, a byte order mark, white space, needless escapes, NaN and big numbers.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, NoReturn

from runner import schemas
from runner.bundle.paths import MAX_METADATA
from runner.canonical import canonical_bytes
from runner.errors import BundleError, KeyError_, SealbenchError, Where
from runner.rows.faults import RowRefused
from runner.strict_json import strict_loads

_UTC = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z\Z", re.ASCII)


def parse_canonical(data: bytes, *, kind: str, file: str) -> dict[str, Any]:
    """Return a document that is exactly its canonical bytes and fits its schema.

    Raises ``BundleError`` with ``file`` as the place. Safe on hostile bytes, yet meant to be
    called only after a signature over them has been verified.
    """
    document = canonical_object(data, file=file)
    schemas.validate(kind, document, where_file=file, error_class=BundleError)
    return document


def canonical_object(data: bytes, *, file: str) -> dict[str, Any]:
    """Return the JSON object that these bytes are canonically; ``BundleError`` otherwise."""
    import orjson

    if len(data) > MAX_METADATA:
        _refuse("bundle.too-large", f"larger than {MAX_METADATA} bytes", file)
    try:
        document = orjson.loads(data)
    except ValueError as error:
        _refuse("bundle.not-json", f"not JSON: {error}", file)
    if not isinstance(document, dict):
        _refuse("bundle.not-json", "not a JSON object", file)
    try:
        canonical = canonical_bytes(document)
    except BundleError as error:
        _refuse(error.code, error.message, file)
    except RecursionError:
        _refuse("bundle.not-canonical", "nested too deeply", file)
    if canonical != data:
        _refuse(
            "bundle.not-canonical",
            "not the canonical (RFC 8785) bytes of its content: "
            "a duplicate key, white space, an escape or a number is written another way",
            file,
        )
    return document


def parse_strict(
    data: bytes, *, kind: str, file: str, error_class: type[SealbenchError] = KeyError_
) -> dict[str, Any]:
    """Return a document that people write by hand: any layout, but no duplicate keys or NaN."""

    def refuse(message: str) -> NoReturn:
        raise error_class(
            "document.not-json", message, fix="write plain JSON in UTF-8", where=Where(file=file)
        )

    if len(data) > MAX_METADATA:
        refuse(f"larger than {MAX_METADATA} bytes")
    try:
        document = strict_loads(data)
    except RowRefused as error:
        refuse(error.message)
    if not isinstance(document, dict):
        refuse("not a JSON object")
    schemas.validate(kind, document, where_file=file, error_class=error_class)
    return document


def parse_utc(text: str) -> datetime | None:
    """Return an RFC 3339 time in UTC (``...Z``, at most microseconds), or None for any other."""
    if _UTC.match(text) is None:
        return None
    try:
        return datetime.fromisoformat(text[:-1]).replace(tzinfo=UTC)
    except ValueError:
        return None


def earlier(first: str, second: str) -> bool:
    """Tell whether a time in UTC is before another; False where either is no such time."""
    one, other = parse_utc(first), parse_utc(second)
    return one is not None and other is not None and one < other


def _refuse(code: str, message: str, file: str) -> NoReturn:
    raise BundleError(
        code, message, fix="get the bundle again from its author", where=Where(file=file)
    )
