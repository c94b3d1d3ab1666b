"""Exits with 0 over rows that are not what they seem; ``config.lie`` picks one lie or ``all``.

It writes the file by hand: the SDK would refuse most of this.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sealbench_sdk import Document, Query, load_corpus, load_queries, load_task, output_folder

Record = dict[str, Any]


def _line(record: Record) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _row(query: Query, documents: list[Document]) -> Record:
    ranked = [[document.id, 1.0 / (place + 1)] for place, document in enumerate(documents[:3])]
    return {"query_id": query.id, "ranking": ranked, "latency_ms": 0.1, "error": None}


def nan(row: Record) -> bytes:
    """A score that is not a number (and a line that is not JSON)."""
    row["ranking"][0][1] = float("nan")
    return _line(row)


def duplicate(row: Record) -> bytes:
    """The best document, three times over."""
    row["ranking"] = [row["ranking"][0]] * 3
    return _line(row)


def unknown_document(row: Record) -> bytes:
    """A document that the corpus does not hold."""
    row["ranking"][0][0] = "no-such-document"
    return _line(row)


def unknown_query(row: Record) -> bytes:
    """An answer to a question that nobody asked."""
    return _line({**row, "query_id": "no-such-query"})


def twice(row: Record) -> bytes:
    """Two answers to one question."""
    return _line(row) * 2


def both(row: Record) -> bytes:
    """An error and a ranking at once."""
    return _line({**row, "error": "Both"})


def truncated(row: Record) -> bytes:
    """A line that stops in the middle."""
    return _line(row)[:-20]


#: In the order in which ``all`` tells them; the truncated line has to be the last.
LIES: dict[str, Callable[[Record], bytes]] = {
    "nan": nan,
    "duplicate": duplicate,
    "unknown-document": unknown_document,
    "unknown-query": unknown_query,
    "twice": twice,
    "both": both,
    "truncated": truncated,
}


def main() -> None:
    """One lie per query while there are queries, honest rows before them."""
    chosen = str(load_task().config.get("lie", "all"))
    lies = list(LIES.values()) if chosen == "all" else [LIES[chosen]]
    queries, documents = load_queries(), load_corpus()
    lies = lies[-len(queries) :]
    honest = len(queries) - len(lies)
    with (output_folder() / "rows.jsonl").open("wb") as rows:
        for query in queries[:honest]:
            rows.write(_line(_row(query, documents)))
        for query, lie in zip(queries[honest:], lies, strict=True):
            rows.write(lie(_row(query, documents)))


if __name__ == "__main__":
    main()
