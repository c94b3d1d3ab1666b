"""Pure: what an endpoint answered -> a score, or one word for why there is none.

Strict on purpose. ``120``, ``"about 70"``, an empty answer, a JSON object within prose or within a
code fence are no scores: guessing what was meant would be a method of its own, and not this one.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

KEYS = {"score", "explanation"}
MAX_CONTENT = 16 << 10
HTTP_OK = 200


class NoScore(Exception):
    """No score; ``kind`` is one word, and never text of an answer."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The answer's text, the model that the endpoint names, and its count of tokens."""

    content: str
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


def read_completion(status: int, body: bytes, key: str = "") -> Completion:
    """Return the completion in an answer; ``NoScore`` for anything else.

    An answer that repeats the ``key`` is refused: what is recorded is published.
    """
    if status != HTTP_OK:
        raise NoScore(f"http-{status}")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise NoScore("no-json") from None
    choice = _at(document, "choices", 0)
    content = _at(choice, "message", "content")
    if not isinstance(content, str) or not content.strip():
        raise NoScore("no-content")
    if _at(choice, "finish_reason") == "length":
        raise NoScore("cut-off")
    if len(content) > MAX_CONTENT:
        raise NoScore("too-long")
    if key and key in content:
        raise NoScore("key-repeated")
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        raise NoScore("no-unicode") from None
    return Completion(
        content=content,
        model=_text(_at(document, "model"), key),
        prompt_tokens=_count(_at(document, "usage", "prompt_tokens")),
        completion_tokens=_count(_at(document, "usage", "completion_tokens")),
    )


def read_score(content: str) -> float:
    """Return the score, 0 to 100, of an answer that is one JSON object; ``NoScore`` for others."""
    try:
        document = json.loads(content, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise NoScore("no-object") from None
    if not isinstance(document, dict):
        raise NoScore("no-object")
    if set(document) != KEYS or not isinstance(document["explanation"], str):
        raise NoScore("wrong-keys")
    score = document["score"]
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise NoScore("score-no-number")
    # Compared before it becomes a float: a whole number may be too large for one.
    if not 0 <= score <= 100 or not math.isfinite(score):
        raise NoScore("score-out-of-range")
    return float(score)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _at(value: Any, *path: str | int) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _text(value: Any, key: str) -> str | None:
    if not isinstance(value, str) or not value.isprintable() or (key and key in value):
        return None
    return value[:200]


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 53 else None
