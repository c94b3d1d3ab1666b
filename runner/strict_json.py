"""JSON as every reader understands it: what they read differently is refused.

Python's own parser keeps the last of two equal keys, and takes NaN, Infinity, ``1e999``, a byte
order mark and lone surrogates; others round integers beyond 2**53. All of that is a fault here.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from runner.canonical import MAX_SAFE_INTEGER
from runner.rows.faults import RowRefused
from runner.schema_faults import shown

_SAFE_DIGITS = len(str(MAX_SAFE_INTEGER)) + 1  # with a sign
_BOM = b"\xef\xbb\xbf"


def strict_loads(data: bytes) -> object:
    """Return the value of one JSON text; raise ``RowRefused`` where readers could disagree."""
    if data.startswith(_BOM):
        raise RowRefused("rows.bom", "a byte order mark stands before the text")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RowRefused("rows.utf8", f"byte {error.start + 1} is no UTF-8") from error
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        message = f"no JSON: {error.msg} at character {error.pos + 1}"
        raise RowRefused("rows.json", message) from error
    except RecursionError as error:
        raise RowRefused("rows.depth", "nested too deeply") from error
    if b"\\u" in data:
        _refuse_lone_surrogates(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RowRefused("rows.duplicate-key", f"key {shown(key)} stands twice")
            seen.add(key)
    return value


def _integer(text: str) -> int:
    # Length first: Python refuses to convert thousands of digits.
    if len(text) > _SAFE_DIGITS or abs(int(text)) > MAX_SAFE_INTEGER:
        shortened = text if len(text) <= 40 else text[:39] + "…"
        raise RowRefused(
            "rows.unsafe-integer",
            f"{shortened} is beyond +-(2**53 - 1): other readers would round it",
        )
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RowRefused("rows.non-finite", f"{text[:40]} is too large for a number")
    return value


def _constant(text: str) -> NoReturn:
    raise RowRefused("rows.non-finite", f"{text} is no JSON number")


def _refuse_lone_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise RowRefused("rows.surrogate", "an escape stands for half a character") from error
    except RecursionError as error:
        raise RowRefused("rows.depth", "nested too deeply") from error
