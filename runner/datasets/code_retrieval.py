"""Load retrieval over sources: queries, corpus and qrels as CSV tables beside ``files.csv``.

``queries.csv`` and ``corpus.csv`` name a file each (``query_id`` or ``document_id``, ``file_id``);
``qrels.csv`` has ``query_id``, ``document_id`` and ``relevance``: everything above 0 is relevant.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.datasets.code_sources import Sources, load_sources
from runner.datasets.code_tables import Table, read_table
from runner.datasets.lines import FileDigest, check_name, shown

QUERIES, CORPUS, QRELS = "queries.csv", "corpus.csv", "qrels.csv"
_GRADE = re.compile(r"-?[0-9]{1,9}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCollection:
    """Judged queries and documents, each id to the id of its source, and the qrels.

    ``qrels`` maps query id to document id to 1 (relevant) or 0.
    """

    name: str
    folder: Path
    sources: Sources
    tables: tuple[Table, Table, Table] = field(repr=False)
    queries: Mapping[str, str] = field(repr=False)
    documents: Mapping[str, str] = field(repr=False)
    qrels: Mapping[str, Mapping[str, int]] = field(repr=False)

    @property
    def files(self) -> tuple[FileDigest, ...]:
        """Digests of the four tables."""
        return (self.sources.table.digest, *(table.digest for table in self.tables))

    def listing(self) -> Iterator[tuple[str, str]]:
        """Yield (path, SHA-256 of the bytes) of every file."""
        yield from self.sources.listing()
        for table in self.tables:
            yield table.path.name, table.raw_sha256

    def payload(self) -> dict[str, str]:
        """Return digests of the content that do not depend on the order of rows."""
        judged = (
            f"{query}\t{document}\t{grade}\n"
            for query in sorted(self.qrels)
            for document, grade in sorted(self.qrels[query].items())
        )
        return {
            "sources_sha256": self.sources.payload(),
            "corpus_sha256": _sha256(f"{i}\t{f}\n" for i, f in sorted(self.documents.items())),
            "queries_sha256": _sha256(f"{i}\t{f}\n" for i, f in sorted(self.queries.items())),
            "labels_sha256": _sha256(judged),
        }


def load_code_retrieval(folder: Path, *, name: str, root: Path) -> CodeCollection:
    """Load and hash the collection in ``folder``, refusing whatever is in doubt.

    Every query of queries.csv must be judged. Raises ``DataError`` with ``file:line``.
    """
    check_name(name, "dataset")
    sources = load_sources(folder, root)
    queries = read_table(folder, root, QUERIES, ("query_id", "file_id"))
    corpus = read_table(folder, root, CORPUS, ("document_id", "file_id"))
    qrels = read_table(folder, root, QRELS, ("query_id", "document_id", "relevance"))
    query_files = _files_of(queries, "query_id", sources)
    document_files = _files_of(corpus, "document_id", sources)
    judged = _judgments(qrels, query_files, document_files)
    for query, line in zip(queries.column("query_id"), queries.lines, strict=True):
        if query not in judged:
            message = f"query {shown(query)} is not judged in {QRELS}"
            queries.refuse("data.unjudged-query", message, "judge it, or leave it out", line)
    return CodeCollection(
        name=name,
        folder=folder,
        sources=sources,
        tables=(queries, corpus, qrels),
        queries=query_files,
        documents=document_files,
        qrels=judged,
    )


def _files_of(table: Table, key: str, sources: Sources) -> dict[str, str]:
    ids = table.ids(key)
    if not ids:
        table.refuse("data.empty", "no rows", "add them")
    found = dict(zip(ids, table.column("file_id"), strict=True))
    for source, line in zip(found.values(), table.lines, strict=True):
        if source not in sources.by_id:
            message = f"source {shown(source)} is not in files.csv"
            table.refuse("data.unknown-source", message, "list it, or correct the row", line)
    return found


def _judgments(
    table: Table, queries: Mapping[str, str], documents: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    rows = zip(
        table.column("query_id"), table.column("document_id"), table.column("relevance"),
        table.lines, strict=True,
    )  # fmt: skip
    for query, document, grade, line in rows:
        for known, identity, what in ((queries, query, "query"), (documents, document, "document")):
            if identity not in known:
                message = f"{what} {shown(identity)} is not there"
                table.refuse("data.unknown-id", message, "correct the id", line)
        if not _GRADE.match(grade):
            table.refuse("data.bad-grade", f"relevance {shown(grade)}", "write an integer", line)
        graded = found.setdefault(query, {})
        if document in graded:
            message = f"{shown(query)}, {shown(document)} is judged twice"
            table.refuse("data.duplicate-judgment", message, "keep one judgment", line)
        graded[document] = int(int(grade) > 0)
    return found


def _sha256(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode())
    return digest.hexdigest()
