"""Attempts on tape: written while an endpoint is asked, read when its answers are replayed.

``/out/artifacts/responses.jsonl`` has a line for each attempt. ``key`` is the SHA-256 of the
request's bytes: model, settings, instructions and texts. ``error`` is why there was no usable
answer, else null with ``content``. The request itself is not on tape: it holds the data's texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from sealbench_sdk import InputError, output_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One question to the endpoint, the first having number 1, and what came of it."""

    key: str
    attempt: int
    reviewer_id: str
    paper_id: str
    error: str | None
    content: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


def key_of(body: bytes) -> str:
    """Return what a request's attempts are found by."""
    return hashlib.sha256(body).hexdigest()


class Recorder:
    """Appends attempts; each is in the file as soon as it was given."""

    def __init__(self, path: Path | None = None) -> None:
        path = path or output_folder() / "artifacts" / "responses.jsonl"
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("wb", buffering=0)

    def write(self, attempts: Iterable[Attempt]) -> None:
        """Append attempts in this order."""
        lines = (json.dumps(asdict(one), separators=(",", ":")) + "\n" for one in attempts)
        data = memoryview("".join(lines).encode("ascii"))
        while data:
            data = data[self._file.write(data) :]

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Tape:
    """What was recorded. ``InputError`` for a file that no recorder wrote."""

    def __init__(self, path: Path) -> None:
        self._found: dict[tuple[str, int], Attempt] = {}
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    one = Attempt(**json.loads(line))
                except (ValueError, TypeError):
                    raise InputError(f"{path.name}:{number} is no recorded attempt") from None
                self._found.setdefault((one.key, one.attempt), one)

    def get(self, key: str, attempt: int) -> Attempt | None:
        """Return an attempt at a request, or None where none was recorded."""
        return self._found.get((key, attempt))
