"""Retrieval over sources as the retrieval task knows it: opaque ids, full rankings, texts on disk.

Stands where a BEIR collection stands. Every query is asked against every document, so the depth is
the number of documents whatever the protocol's cut-off is; metrics cut at their own k.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.canonical import Json
from runner.datasets.beir import Document, RetrievalDataset
from runner.datasets.code_retrieval import CodeCollection, load_code_retrieval
from runner.datasets.lines import FileDigest
from runner.protocol.fingerprint import fingerprint_of
from runner.tasks.opaque import opaque
from runner.tasks.pair_dataset import check_checksum

FORMAT = "code-retrieval"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRetrievalDataset:
    """Queries (opaque id to text), documents (to position) and qrels, all in shuffled order.

    ``real`` maps opaque ids of queries and documents back, for score artifacts alone.
    """

    name: str
    folder: Path
    collection: CodeCollection = field(repr=False)
    content: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, Json]
    queries: Mapping[str, str] = field(repr=False)
    documents: Mapping[str, int] = field(repr=False)
    qrels: Mapping[str, Mapping[str, int]] = field(repr=False)
    real: Mapping[str, str] = field(repr=False)

    @property
    def files(self) -> tuple[FileDigest, ...]:
        """Digests of the tables."""
        return self.collection.files

    @property
    def qrels_split(self) -> str:
        """What results that were made elsewhere call the labels."""
        return "test"

    @property
    def document_count(self) -> int:
        """Number of documents in the corpus."""
        return len(self.documents)

    @property
    def queries_without_positives(self) -> tuple[str, ...]:
        """Real ids of queries for which nothing is relevant, sorted."""
        qrels = self.collection.qrels
        return tuple(sorted(query for query, grades in qrels.items() if not any(grades.values())))

    def iter_documents(self) -> Iterator[Document]:
        """Read the sources again, in the order of opaque ids; ``DataError`` if one changed."""
        for document in self.documents:
            source = self.collection.documents[self.real[document]]
            yield Document(document, "", self.collection.sources.text(source))


#: What the retrieval task works on.
Collection = RetrievalDataset | CodeRetrievalDataset


def load_collection(
    name: str, source: Mapping[str, Any], folder: Path, root: Path
) -> CodeRetrievalDataset:
    """Load a collection; ``source`` is a freeze manifest's entry or a protocol's."""
    found = load_code_retrieval(folder, name=name, root=root)
    check_checksum(source, found.listing(), name)
    content = _content(found)
    salt = fingerprint_of(content)
    queries = opaque("query", found.queries, salt)
    documents = opaque("document", found.documents, salt)
    return CodeRetrievalDataset(
        name=name,
        folder=folder,
        collection=found,
        content=content,
        options=dict(source.get("similarity_options", {})),
        queries={
            alias: found.sources.text(found.queries[query]) for query, alias in queries.items()
        },
        documents={alias: position for position, alias in enumerate(documents.values())},
        qrels={
            alias: {documents[document]: grade for document, grade in found.qrels[query].items()}
            for query, alias in queries.items()
        },
        real={alias: real for names in (queries, documents) for real, alias in names.items()},
    )


def _content(found: CodeCollection) -> dict[str, Any]:
    judged = [grade for grades in found.qrels.values() for grade in grades.values()]
    return {
        "task": "retrieval",
        "format": FORMAT,
        "files": [{"name": f.name, "sha256": f.sha256, "size": f.size} for f in found.files],
        "payload": found.payload(),
        "counts": {
            "documents": len(found.documents),
            "queries": len(found.queries),
            "judgments": len(judged),
            "positives": sum(judged),
            "sources": len(found.sources.by_id),
            "duplicate_documents": found.sources.duplicates(found.documents.values()),
            "empty_sources": found.sources.empty,
            "undecodable_sources": found.sources.undecodable,
        },
    }
