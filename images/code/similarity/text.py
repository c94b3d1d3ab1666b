"""What the methods take for the text of a source, and for its tokens."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\d+|[^\w\s]")


def normalised(text: str) -> str:
    """Return a text with LF line ends, each line stripped on the right, and the whole stripped."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def tokens(text: str) -> list[str]:
    """Return identifiers, numbers and single signs, in order; white space is gone."""
    return _TOKEN.findall(text)
