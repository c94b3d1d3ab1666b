"""What a method needs in its container: read ``/in``, write ``/out/rows.jsonl``. No dependencies.

A whole method is one function that builds an index and returns another that answers a query::

    from sealbench_sdk import Document, Query, Task, ranking, run

    def prepare(task: Task, corpus: list[Document]):
        ids = [document.id for document in corpus]
        def answer(query: Query):
            return ranking([score(query.text, d.content) for d in corpus], ids, task.top_k)
        return answer

    if __name__ == "__main__":
        run(prepare)

``run`` writes one row per query as soon as it is answered, so that a method that is stopped keeps
what it had finished. An exception in ``answer`` becomes a row whose ``error`` names the exception's
type only (texts of the data never leave in a message); its traceback goes to stderr. An exception
in ``prepare`` ends the method with exit code 1.

Timing: ``latency_ms`` is the wall time of one ``answer`` call. Before the first timed call the
first query is answered once without being timed or written (the warm-up), so that lazy imports and
cold caches do not count against whichever query comes first; ``run(prepare, warm_up=0)`` turns that
off. Building the index is not part of any latency.

Stopping: on SIGTERM the row being computed is finished and written, then the process exits with
143; before the first row it exits at once. The supervisor waits for its grace period, then kills.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

Ranking = Sequence[tuple[str, float]]
Answer = Callable[["Query"], Ranking]

EXIT_TERMINATED = 128 + signal.SIGTERM
DEFAULT_INPUT = "/in"
DEFAULT_OUTPUT = "/out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """``/in/task.json``: what is asked. Keys that this SDK does not know are ignored."""

    task: str
    dataset: str
    seed: int
    top_k: int
    config: Mapping[str, Any]
    options: Mapping[str, Any]
    queries: int
    documents: int
    threads: int


@dataclass(frozen=True, slots=True)
class Document:
    """One line of ``corpus.jsonl``."""

    id: str
    title: str
    text: str

    @property
    def content(self) -> str:
        """The text of a document as benchmarks define it: title, a space, text, stripped."""
        return f"{self.title} {self.text}".strip()


@dataclass(frozen=True, slots=True)
class Query:
    """One line of ``queries.jsonl``."""

    id: str
    text: str


class InputError(ValueError):
    """Something in ``/in`` is not what the contract says; the message names file and line."""


def input_folder() -> Path:
    """Return the folder of the inputs (``inputDataset``, else ``/in``)."""
    return Path(os.environ.get("inputDataset") or DEFAULT_INPUT)  # noqa: SIM112 - TIRA's spelling


def output_folder() -> Path:
    """Return the folder of the outputs (``outputDir``, else ``/out``)."""
    return Path(os.environ.get("outputDir") or DEFAULT_OUTPUT)  # noqa: SIM112 - TIRA's spelling


def load_task(folder: Path | None = None) -> Task:
    """Read ``task.json``; ``InputError`` when a required field is missing or of the wrong type."""
    path = (folder or input_folder()) / "task.json"
    record = _parse(path.read_bytes(), path.name)
    return Task(
        task=_field(record, "task", str, path.name),
        dataset=_field(record, "dataset", str, path.name),
        seed=_field(record, "seed", int, path.name),
        top_k=_field(record, "top_k", int, path.name),
        config=_field(record, "config", dict, path.name, {}),
        options=_field(record, "options", dict, path.name, {}),
        queries=_field(record, "queries", int, path.name, 0),
        documents=_field(record, "documents", int, path.name, 0),
        threads=_field(record, "threads", int, path.name, 1),
    )


def load_corpus(folder: Path | None = None) -> list[Document]:
    """Read ``corpus.jsonl`` in file order; a missing title is the empty string."""
    return [
        Document(
            _field(r, "_id", str, w), _field(r, "title", str, w, ""), _field(r, "text", str, w)
        )
        for w, r in _lines((folder or input_folder()) / "corpus.jsonl")
    ]


def load_queries(folder: Path | None = None) -> list[Query]:
    """Read ``queries.jsonl`` in file order."""
    return [
        Query(_field(r, "_id", str, w), _field(r, "text", str, w))
        for w, r in _lines((folder or input_folder()) / "queries.jsonl")
    ]


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                where = f"{path.name}:{number}"
                yield where, _parse(line, where)


def _parse(data: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(data)
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {type(error).__name__}") from None
    if not isinstance(record, dict):
        raise InputError(f"{where} is not a JSON object")
    return record


_REQUIRED: Any = object()


def _field(
    record: Mapping[str, Any], key: str, kind: type, where: str, default: Any = _REQUIRED
) -> Any:
    value = record.get(key, default)
    if value is _REQUIRED:
        raise InputError(f"{where} has no {key!r}")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InputError(f"{where}: {key!r} is {type(value).__name__}, not {kind.__name__}")
    return value


def ranking(scores: Iterable[float], ids: Sequence[str], k: int) -> list[tuple[str, float]]:
    """Return the best ``k`` as (id, score): score descending, then id ascending (string order).

    ``scores`` and ``ids`` run in parallel. ``ValueError`` for a score that is not finite: NaN has
    no place in an order.
    """
    pairs = [(-float(score), ident) for score, ident in zip(scores, ids, strict=True)]
    if not all(math.isfinite(negated) for negated, _ in pairs):
        raise ValueError("a score is not finite")
    pairs.sort()
    return [(ident, 0.0 - negated) for negated, ident in pairs[:k]]


class Rows:
    """Writes ``rows.jsonl``: one whole line per call, straight to the file.

    Use as a context manager around the loop over the queries; inside it SIGTERM finishes the row
    at hand before the process exits with 143.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or output_folder() / "rows.jsonl"
        self._busy = False
        self._terminated = False

    def __enter__(self) -> Rows:
        # Unbuffered: a row that was written survives whatever happens to the process next.
        self._file = self._path.open("wb", buffering=0)
        self._previous = signal.signal(signal.SIGTERM, self._on_term)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGTERM, self._previous)
        self._file.close()

    def answer(self, query: Query, answer: Answer) -> None:
        """Time ``answer(query)`` and write its row; an exception becomes an error row."""
        self._busy = True
        started = time.perf_counter_ns()
        try:
            result = answer(query)
            elapsed = time.perf_counter_ns() - started
            line = _row(query.id, result, elapsed / 1e6, None)
        except Exception as error:  # a failed query is a row, not the end of the run
            elapsed = time.perf_counter_ns() - started
            traceback.print_exc()
            line = _row(query.id, (), elapsed / 1e6, type(error).__name__)
        self._write(line)

    def error(self, query: Query, kind: str) -> None:
        """Write that a query failed; ``kind`` is a short name, never text from the data."""
        self._busy = True
        self._write(_row(query.id, (), None, kind))

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[self._file.write(view) :]
        self._busy = False
        if self._terminated:
            raise SystemExit(EXIT_TERMINATED)

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        self._terminated = True
        if not self._busy:
            raise SystemExit(EXIT_TERMINATED)


def _row(query_id: str, result: Ranking, latency_ms: float | None, error: str | None) -> bytes:
    record = {
        "query_id": query_id,
        "ranking": [[str(ident), float(score)] for ident, score in result],
        "latency_ms": latency_ms,
        "error": error,
    }
    # allow_nan=False: a NaN is this method's mistake and must not become a row that looks whole.
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def run(prepare: Callable[[Task, list[Document]], Answer], *, warm_up: int = 1) -> None:
    """Read the inputs, build, answer every query in order, write every row.

    ``warm_up`` queries are answered once beforehand, untimed and unwritten.
    """
    signal.signal(signal.SIGTERM, _exit_at_once)
    task = load_task()
    answer = prepare(task, load_corpus())
    queries = load_queries()
    for query in queries[:warm_up]:
        try:
            answer(query)
        except Exception as error:  # it will fail again, timed, and get its row then
            print(f"warm-up: {type(error).__name__}", file=sys.stderr)
    with Rows() as rows:
        for query in queries:
            rows.answer(query, answer)


def _exit_at_once(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(EXIT_TERMINATED)
