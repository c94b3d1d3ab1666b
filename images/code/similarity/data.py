"""Read ``/in`` for either task and write ``/out/rows.jsonl``, some thousand rows at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sealbench_sdk import input_folder, output_folder

T = TypeVar("T")


class Asked(NamedTuple):
    """``task.json``: which task, how many processes may run, and the method's config."""

    task: str
    threads: int
    config: dict[str, Any]


class Pair(NamedTuple):
    """Two sources to compare."""

    id: str
    left: str
    right: str


def load_asked() -> Asked:
    """Read what is asked."""
    record = json.loads((input_folder() / "task.json").read_bytes())
    return Asked(record["task"], int(record.get("threads", 1)), dict(record.get("config", {})))


def load_texts(name: str) -> dict[str, str]:
    """Read ``sources.jsonl``, ``corpus.jsonl`` or ``queries.jsonl``: id to text."""
    return {row["_id"]: row["text"] for row in _rows(input_folder() / name)}


def load_pairs() -> list[Pair]:
    """Read ``pairs.jsonl``."""
    rows = _rows(input_folder() / "pairs.jsonl")
    return [Pair(row["pair_id"], row["left_id"], row["right_id"]) for row in rows]


def write_rows(lines: Iterable[bytes]) -> None:
    """Write ``rows.jsonl``; each piece goes to the file at once, so that a stop loses little."""
    with (output_folder() / "rows.jsonl").open("wb", buffering=0) as stream:
        for line in lines:
            view = memoryview(line)
            while view:
                view = view[stream.write(view) :]


def pair_lines(ids: Sequence[str], scores: Sequence[float]) -> bytes:
    """Return rows of pairs; ids are letters and digits, so nothing needs an escape."""
    return "".join(
        f'{{"pair_id":"{pair}","score":{score!r},"error":null}}\n'
        for pair, score in zip(ids, scores, strict=True)
    ).encode()


def ranking_line(query: str, ranking: Sequence[tuple[str, float]], latency_ms: float) -> bytes:
    """Return the row of a query."""
    row = {
        "query_id": query,
        "ranking": [[document, score] for document, score in ranking],
        "latency_ms": latency_ms,
        "error": None,
    }
    return json.dumps(row, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def batches(items: Sequence[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of ``size``."""
    stream = iter(items)
    while batch := list(islice(stream, size)):
        yield batch


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as stream:
        for line in stream:
            yield json.loads(line)
