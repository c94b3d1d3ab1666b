"""How commands answer: JSON for machines, text for people, nothing else on standard output."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Sequence


def emit(arguments: Namespace, document: object, text: str) -> None:
    """Print the document with ``--json``, the text without."""
    if arguments.json:
        sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned columns for people; "" without rows."""
    if not rows:
        return ""
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, *rows]
    ]
    return "\n".join(lines) + "\n"
