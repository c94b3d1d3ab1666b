"""How commands answer: JSON for machines, text for people, nothing else on standard output."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress

from runner.errors import StorageError


def tell(text: str) -> None:
    """Write to standard output at once.

    A reader that went away (``| head``) or was never there changes no exit code; where the output
    cannot be written for another reason, ``StorageError`` says so.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
    except OSError as error:
        _silence()
        raise StorageError(
            "storage.output",
            f"cannot write the answer: {os.strerror(error.errno or 0).lower()}",
            fix="give standard output a place with room",
        ) from error


def _silence() -> None:
    """Send what is still in the buffer nowhere: the interpreter writes it at its end."""
    with suppress(OSError, ValueError):  # no descriptor of its own: nothing is written at the end
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def emit(arguments: Namespace, document: object, text: str) -> None:
    """Print the document with ``--json``, the text without."""
    if arguments.json:
        tell(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        tell(text if text.endswith("\n") or not text else text + "\n")


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
