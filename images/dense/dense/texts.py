"""What is embedded: a text cut to so many characters, behind the prefix of its role.

The cut comes before the prefix, so that a model that wants ``query: `` or ``passage: `` in front
sees as much of every text as one that wants nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

#: Unicode characters (code points), as the retrieval contract has it.
MAX_CHARACTERS = 700


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """How texts of one role, queries or documents, are prepared. 0 characters means no cut."""

    prefix: str = ""
    max_characters: int = MAX_CHARACTERS

    def text(self, content: str) -> str:
        """Return what the model reads of a content."""
        kept = content[: self.max_characters] if self.max_characters else content
        return self.prefix + kept


def text_hash(text: str) -> bytes:
    """Return the SHA-256 of a prepared text: 32 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
