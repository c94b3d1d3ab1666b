"""What a plain YAML scalar means here: JSON's values and text, and nothing by accident.

YAML 1.1 reads ``no`` as false, ``010`` as 8, ``12:30`` as 750 and ``2024-01-01`` as a date; YAML
1.2 reads them otherwise. A text on which readers disagree is refused with the fix "quote it".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from runner.canonical import MAX_SAFE_INTEGER, Json

_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None}
_BOOLEANS = frozenset({"yes", "no", "on", "off", "y", "n", "true", "false"})
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ]+[0-9].*)?", re.DOTALL)
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_OTHER_BASE = re.compile(r"[-+]?0(?:[xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.?(?:inf|infinity|nan)", re.IGNORECASE)
_ODD_NUMBER = re.compile(r"[-+]?(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFault:
    """Why a plain scalar is refused: an error code's last part, a message and a fix."""

    code: str
    message: str
    fix: str


def read_plain(text: str) -> Json | ScalarFault:
    """Return the value of an unquoted scalar, or why it has none.

    ``true``, ``false``, ``null`` and JSON's numbers are values; what some YAML reader takes for
    something other than text is a fault; all else is text.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text in {"", "~"} or text.lower() == "null":
        return _empty(text)
    if text.lower() in _BOOLEANS:
        lower = text.lower()
        meant = "true" if lower in {"yes", "on", "y", "true"} else "false"
        return ScalarFault(
            code="implicit-boolean",
            message=f"{text} is a boolean to some YAML readers and text to others",
            fix=f'write {meant} for a boolean, or quote it for text: "{text}"',
        )
    if text[0] in "+-.0123456789" or text[0] in "iInN":
        return _numeric(text)
    return text


def _empty(text: str) -> ScalarFault:
    shown = f"{text} is null to some YAML readers only" if text else "the value is missing"
    return ScalarFault(
        code="implicit-null", message=shown, fix='write the value, or null, or "" for empty text'
    )


def _numeric(text: str) -> Json | ScalarFault:
    if _INTEGER.fullmatch(text):
        # The length first: int() itself refuses more than 4,300 digits.
        if len(text) > 17 or abs(int(text)) > MAX_SAFE_INTEGER:
            return _unsafe(text)
        return int(text)
    if _FLOAT.fullmatch(text):
        return _float(text)
    for pattern, code, what in (
        (_DATE, "implicit-date", "a date"),
        (_SEXAGESIMAL, "ambiguous-number", "a base-60 number"),
        (_OTHER_BASE, "ambiguous-number", "a hexadecimal, octal or binary number"),
        (_LEADING_ZERO, "ambiguous-number", "an octal number"),
        (_NOT_FINITE, "not-finite", "not a finite number"),
    ):
        if pattern.fullmatch(text):
            return ScalarFault(
                code=code,
                message=f"{_short(text)} is {what} to some YAML readers",
                fix=f'quote it for text: "{_short(text)}"; write a number in plain decimal form',
            )
    if _ODD_NUMBER.fullmatch(text):
        return ScalarFault(
            code="ambiguous-number",
            message=f"{_short(text)} is a number to some YAML readers and text to others",
            fix=f'write a number as JSON does (0.5, 1000, 1e-3), or quote it: "{_short(text)}"',
        )
    return text


def _float(text: str) -> float | ScalarFault:
    value = float(text)
    if not math.isfinite(value) or (value.is_integer() and abs(value) > MAX_SAFE_INTEGER):
        return _unsafe(text)
    if value == 0.0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        return ScalarFault(
            code="unsafe-number",
            message=f"{_short(text)} is too small for a double and would become 0",
            fix="write 0 or a larger number, or quote it for text",
        )
    return value


def _unsafe(text: str) -> ScalarFault:
    return ScalarFault(
        code="unsafe-number",
        message=f"{_short(text)} is beyond what every JSON reader keeps exactly (2**53 - 1)",
        fix=f'quote it for text: "{_short(text)}"; or write a smaller number',
    )


def _short(text: str) -> str:
    return text if len(text) <= 48 else f"{text[:45]}..."
