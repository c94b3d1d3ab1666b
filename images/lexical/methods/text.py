"""Words of a text, as the reference figures define them: runs of ``\\w`` in lower case."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Return the tokens of a text in order, repeats included."""
    return _WORD.findall(text.lower())
