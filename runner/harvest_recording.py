"""What a method with a network recorded of the answers that it got: may it cross to the host?

One file of JSON lines a unit, so that a score can be found again without the network. It is taken
whole or not at all: strict JSON objects, bounded, and without any secret of the method.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from runner.parts import storage_error, sync_folder
from runner.rows.faults import RowRefused
from runner.secret_scan import Needles
from runner.strict_json import strict_loads

RECORDED = "responses.jsonl"
MAX_BYTES = 64 << 20
MAX_LINE = 1 << 20
_BUFFER = 1 << 20


def copy_recording(source: io.RawIOBase, target: Path, needles: Needles | None) -> str | None:
    """Copy an opened file of JSON lines to ``target``; return why it was not taken, or None.

    Raises ``StorageError`` when the target cannot be written; nothing is left then.
    """
    part = target.with_name(f"{target.name}.new")
    try:
        try:
            with part.open("wb") as stream:
                problem = _copy(source, stream, needles)
                stream.flush()
                os.fsync(stream.fileno())
            if problem is None:
                part.rename(target)
                sync_folder(target.parent)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(error) from error
    return problem


def _copy(source: io.RawIOBase, target: io.BufferedWriter, needles: Needles | None) -> str | None:
    total = 0
    # A secret holds no line feed: one never stands across two lines of JSON.
    stream = io.BufferedReader(source, _BUFFER)
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE + 1), b""), start=1):
        total += len(line)
        if total > MAX_BYTES:
            return f"more than {MAX_BYTES} bytes"
        if needles is not None and (name := needles.find(line)) is not None:
            return f"line {number} holds the secret {name}"
        if len(line) > MAX_LINE or not line.endswith(b"\n"):
            return f"line {number} is too long, or has no line feed"
        try:
            document = strict_loads(line)
        except RowRefused as error:
            return f"line {number}: {error.code}"
        if not isinstance(document, dict):
            return f"line {number} is no JSON object"
        target.write(line)
    return None
