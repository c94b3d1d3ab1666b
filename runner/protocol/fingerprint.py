"""Is this the dataset that was frozen? A fingerprint of content: bytes, labels, queries, counts.

Any byte changed in any file is another dataset, and so is another choice of qrels. The payload
digests tell a reader *what* changed when the bytes did: a CRLF twin has the same payload. Names,
folders and machines never enter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.canonical import digest_of
from runner.datasets.beir import RetrievalDataset

SCHEMA = "sealbench/fingerprint/v1"


def content_of(dataset: RetrievalDataset) -> dict[str, Any]:
    """Return the part of a protocol's dataset entry that the content alone determines."""
    payload = dataset.payload
    return {
        "task": "retrieval",
        "format": "beir",
        "qrels": dataset.qrels_split,
        "files": [{"name": f.name, "sha256": f.sha256, "size": f.size} for f in dataset.files],
        "payload": {
            "corpus_sha256": payload.corpus,
            "queries_sha256": payload.queries,
            "labels_sha256": payload.labels,
        },
        "counts": {
            "documents": dataset.document_count,
            "queries": len(dataset.queries),
            "judgments": dataset.judgment_count,
            "positives": dataset.positive_count,
        },
    }


def fingerprint_of(content: Mapping[str, Any]) -> str:
    """Return ``sha256:<hex>`` of a dataset entry's content; other members of it are ignored."""
    names = ("task", "format", "qrels", "files", "payload", "counts")
    return digest_of({"schema": SCHEMA, **{name: content[name] for name in names}})


def fingerprint(dataset: RetrievalDataset) -> str:
    """Return the fingerprint of a loaded dataset."""
    return fingerprint_of(content_of(dataset))
