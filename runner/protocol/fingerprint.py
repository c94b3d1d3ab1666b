"""Is this the dataset that was frozen? A fingerprint of content: bytes, labels, queries, counts.

Any byte changed in any file is another dataset, and so is another choice of qrels. The payload
digests tell a reader *what* changed when the bytes did: a CRLF twin has the same payload. Names,
folders and machines never enter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.canonical import digest_of

SCHEMA = "sealbench/fingerprint/v1"


#: Members of an entry that say where content came from or how it is used, not what it is.
NOT_CONTENT = frozenset(
    {
        "name",
        "fingerprint",
        "splits",
        "queries_without_positives",
        "source",
        "selection",
        "similarity_options",
        "split",
        "validation_split",
    }
)


def fingerprint_of(content: Mapping[str, Any]) -> str:
    """Return ``sha256:<hex>`` of a dataset entry's content; other members of it are ignored."""
    members = {name: value for name, value in content.items() if name not in NOT_CONTENT}
    return digest_of({"schema": SCHEMA, **members})
