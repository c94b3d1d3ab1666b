"""The loop over the queries, as in the SDK, with two things more: evidence, and no latency.

``latency: false`` in the config writes null for every latency. Everything else in the rows is a
function of inputs and config, so then whole files can be compared byte for byte.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from sealbench_sdk import (
    EXIT_TERMINATED,
    Document,
    Query,
    Ranking,
    Rows,
    Task,
    load_corpus,
    load_queries,
    load_task,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An answer; ``evidence`` has lists that run parallel to the ranking."""

    ranking: Ranking
    evidence: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


Answer = Callable[[Query], Found]
Prepare = Callable[[Task, list[Document], list[Query]], AbstractContextManager[Answer]]


class EvidenceRows(Rows):
    """Rows that may have evidence, and need not have a latency."""

    def __init__(self, *, latency: bool, path: Path | None = None) -> None:
        super().__init__(path)
        self._latency = latency

    def __enter__(self) -> EvidenceRows:
        super().__enter__()
        return self

    def found(self, query: Query, answer: Answer) -> None:
        """Time ``answer(query)`` and write its row; an exception becomes an error row."""
        self._busy = True
        found, error = Found(ranking=()), None
        started = time.perf_counter_ns()
        try:
            found = answer(query)
        except Exception as failure:  # a failed query is a row, not the end of the run
            traceback.print_exc()
            error = type(failure).__name__
        elapsed = (time.perf_counter_ns() - started) / 1e6
        row: dict[str, Any] = {
            "query_id": query.id,
            "ranking": [[ident, score] for ident, score in found.ranking],
            "latency_ms": elapsed if self._latency else None,
            "error": error,
        }
        if found.evidence:
            row["evidence"] = {name: list(values) for name, values in found.evidence.items()}
        self._write(json.dumps(row, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n")


def run(prepare: Prepare, *, warm_up: int = 1) -> None:
    """Read the inputs, build, answer every query in order, write every row.

    ``prepare`` sees the queries as well, for what is embedded in batches beforehand. ``warm_up``
    queries are answered once beforehand, untimed and unwritten.
    """
    signal.signal(signal.SIGTERM, _exit_at_once)
    task = load_task()
    queries = load_queries()
    with prepare(task, load_corpus(), queries) as answer:
        for query in queries[:warm_up]:
            try:
                answer(query)
            except Exception as error:  # it will fail again, timed, and get its row then
                print(f"warm-up: {type(error).__name__}", file=sys.stderr)
        with EvidenceRows(latency=bool(task.config.get("latency", True))) as rows:
            for query in queries:
                rows.found(query, answer)


def _exit_at_once(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(EXIT_TERMINATED)
