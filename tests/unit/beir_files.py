"""Write small collections in the BEIR layout for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

DOCUMENTS: tuple[dict[str, Any], ...] = (
    {"_id": "d1", "title": "Tea", "text": "Green tea is steeped.", "metadata": {}},
    {"_id": "d2", "title": "", "text": "Coffee is brewed.", "metadata": {}},
    {"_id": "d3", "title": "Water", "text": "", "metadata": {}},
    {"_id": "d4", "title": "", "text": "", "metadata": {}},
)
QUERIES: tuple[dict[str, Any], ...] = (
    {"_id": "q1", "text": "how is tea made", "metadata": {"d1": [{"label": "SUPPORT"}]}},
    {"_id": "q2", "text": "how is coffee made", "metadata": {"gold": "d2"}},
    {"_id": "q3", "text": "a query that nobody judged", "metadata": {}},
    {"_id": "q4", "text": "what is dry", "metadata": {}},
)
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td3\t1\nq2\td2\t1\nq4\td3\t0\n"


def jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Lines as BEIR publishes them: with a blank after each separator."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write_beir(
    folder: Path,
    *,
    documents: Iterable[Mapping[str, Any]] | bytes = DOCUMENTS,
    queries: Iterable[Mapping[str, Any]] | bytes = QUERIES,
    qrels: str | bytes = QRELS,
    split: str = "test",
) -> Path:
    """Write a collection; bytes are written as they are."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = documents if isinstance(documents, bytes) else jsonl(documents)
    (folder / "corpus.jsonl").write_bytes(corpus)
    (folder / "queries.jsonl").write_bytes(
        queries if isinstance(queries, bytes) else jsonl(queries)
    )
    labels = qrels if isinstance(qrels, bytes) else qrels.encode()
    (folder / "qrels" / f"{split}.tsv").write_bytes(labels)
    return folder
