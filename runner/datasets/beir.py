"""Load a retrieval collection in the BEIR layout, refusing whatever two readers could read apart.

Layout: ``corpus.jsonl`` (``_id``, ``title``, ``text``), ``queries.jsonl`` (``_id``, ``text``) and
``qrels/<split>.tsv``. Other members of a row (BEIR's ``metadata``) are checked as JSON and then
dropped: they never reach a method, because SciFact's name the gold documents.

Format: https://github.com/beir-cellar/beir/wiki/Load-your-custom-dataset
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson

from runner.datasets.lines import (
    FileDigest,
    HashedLines,
    check_id,
    check_name,
    parse_object,
    refuse,
    shown,
    text_field,
)
from runner.errors import DataError

CORPUS = "corpus.jsonl"
QUERIES = "queries.jsonl"
_HEADER = ("query-id", "corpus-id", "score")
# BEIR's columns are parted by tabs; TREC's four by tabs or by any white space (None)
_WIDTHS: Mapping[str | None, tuple[int, ...]] = {"\t": (3, 4), None: (4,)}
_GRADE = re.compile(r"-?[0-9]{1,9}\Z")


class Document(NamedTuple):
    """One document as published: an absent title is an empty one."""

    id: str
    title: str
    text: str

    def line(self) -> bytes:
        """The document as one line of a blind ``corpus.jsonl``."""
        row = {"_id": self.id, "title": self.title, "text": self.text}
        return orjson.dumps(row) + b"\n"


def query_line(query_id: str, text: str) -> bytes:
    """Return a query as one line of a blind ``queries.jsonl``."""
    return orjson.dumps({"_id": query_id, "text": text}) + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Declared counts; ``None`` is undeclared. ``queries`` counts the judged ones."""

    documents: int | None = None
    queries: int | None = None
    judgments: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadDigests:
    """SHA-256 (hex) of the content apart from its formatting.

    ``corpus``: the blind corpus file; ``queries``: the blind lines of the judged queries sorted
    by id; ``labels``: ``query TAB document TAB grade LF`` sorted by both ids. A CRLF twin of the
    qrels has other file digests and the same payload.
    """

    corpus: str
    queries: str
    labels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalDataset:
    """A loaded collection: ids, judged queries, labels and digests; document texts stay on disk.

    ``documents`` maps id to position in corpus order; ``queries`` (id to text, in file order) has
    only queries that the qrels judge; ``qrels`` maps query id to document id to integer grade.
    """

    name: str
    folder: Path
    root: Path
    qrels_split: str
    documents: Mapping[str, int]
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    files: tuple[FileDigest, ...]
    payload: PayloadDigests

    @property
    def document_count(self) -> int:
        """Number of documents in the corpus."""
        return len(self.documents)

    @property
    def judgment_count(self) -> int:
        """Number of rows in the qrels."""
        return sum(map(len, self.qrels.values()))

    @property
    def positive_count(self) -> int:
        """Number of judgments with a grade above zero."""
        return sum(grade > 0 for grades in self.qrels.values() for grade in grades.values())

    @property
    def queries_without_positives(self) -> tuple[str, ...]:
        """Judged queries for which no document is relevant, sorted by id."""
        return tuple(sorted(q for q, grades in self.qrels.items() if max(grades.values()) <= 0))

    def iter_documents(self) -> Iterator[Document]:
        """Read the corpus again, in order; raise ``DataError`` at the end if its bytes changed."""
        lines = _lines(self.folder, self.root, CORPUS)
        for number, text in lines:
            yield _document(text, self.folder / CORPUS, number)
        if lines.digest() != self.files[0]:
            refuse(
                "data.changed",
                f"{CORPUS} changed while it was in use: sha256 {self.files[0].sha256} before, "
                f"{lines.digest().sha256} now",
                fix="restore the file and do not touch the data root during a run",
                path=self.folder / CORPUS,
            )


class _Judgment(NamedTuple):
    line: int
    query: str
    document: str
    grade: int


def load_beir(
    folder: Path, *, name: str, qrels_split: str, root: Path | None = None, shape: Shape = Shape()
) -> RetrievalDataset:
    """Load and hash the collection in ``folder``, reading every file once.

    No file may lie outside ``root`` (default: the folder itself), however links lead. Raises
    ``DataError`` with ``file:line`` for every departure from the format, for ids in the qrels that
    the corpus or the queries lack, and for counts that differ from ``shape``.
    """
    check_name(name, "dataset")
    check_name(qrels_split, "qrels split")
    root = root if root is not None else folder
    qrels_path = folder / "qrels" / f"{qrels_split}.tsv"
    qrels_lines = _lines(folder, root, f"qrels/{qrels_split}.tsv")
    judgments, qrels = _read_qrels(qrels_lines, qrels_path)
    query_lines = _lines(folder, root, QUERIES)
    all_queries = _read_queries(query_lines, folder / QUERIES)
    corpus_lines = _lines(folder, root, CORPUS)
    documents, corpus_sha256 = _read_corpus(corpus_lines, folder / CORPUS)
    _check_references(judgments, all_queries, documents, qrels_path)
    queries = {query: text for query, text in all_queries.items() if query in qrels}
    dataset = RetrievalDataset(
        name=name,
        folder=folder,
        root=root,
        qrels_split=qrels_split,
        documents=documents,
        queries=queries,
        qrels=qrels,
        files=(corpus_lines.digest(), query_lines.digest(), qrels_lines.digest()),
        payload=PayloadDigests(
            corpus=corpus_sha256,
            queries=_sha256(query_line(query, queries[query]) for query in sorted(queries)),
            labels=_sha256(
                f"{query}\t{document}\t{qrels[query][document]}\n".encode()
                for query in sorted(qrels)
                for document in sorted(qrels[query])
            ),
        ),
    )
    _check_shape(dataset, shape)
    return dataset


def _lines(folder: Path, root: Path, name: str) -> HashedLines:
    fix = (
        f"put the collection at <data root>/{folder.name}/ with {CORPUS}, {QUERIES} and "
        "qrels/<split>.tsv, and name the data root with --data-root DIR (make: DATA_ROOT=DIR)"
    )
    return HashedLines(folder / name, root, name=name, fix=fix)


def _sha256(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _document(text: str, path: Path, line: int) -> Document:
    row = parse_object(text, path, line)
    identity = check_id(text_field(row, "_id", path, line), path, line)
    title = text_field(row, "title", path, line) if "title" in row else ""
    return Document(identity, title, text_field(row, "text", path, line))


def _read_corpus(lines: HashedLines, path: Path) -> tuple[dict[str, int], str]:
    documents: dict[str, int] = {}
    digest = hashlib.sha256()
    for number, text in lines:
        document = _document(text, path, number)
        if document.id in documents:
            _refuse_duplicate("document", document.id, path, number)
        documents[document.id] = len(documents)
        digest.update(document.line())
    if not documents:
        refuse("data.empty", "no documents", fix="add the corpus", path=path)
    return documents, digest.hexdigest()


def _read_queries(lines: HashedLines, path: Path) -> dict[str, str]:
    queries: dict[str, str] = {}
    for number, text in lines:
        row = parse_object(text, path, number)
        query = check_id(text_field(row, "_id", path, number), path, number)
        if query in queries:
            _refuse_duplicate("query", query, path, number)
        queries[query] = text_field(row, "text", path, number)
        if not queries[query].strip():
            refuse(
                "data.empty-query",
                f"query {shown(query)} has no text",
                fix="give the query a text, or remove it together with its judgments",
                path=path,
                line=number,
            )
    return queries


def _refuse_duplicate(what: str, identity: str, path: Path, line: int) -> None:
    refuse(
        "data.duplicate-id",
        f"{what} id {shown(identity)} stands twice",
        fix="keep one row of each id",
        path=path,
        line=line,
    )


def _read_qrels(
    lines: HashedLines, path: Path
) -> tuple[list[_Judgment], dict[str, dict[str, int]]]:
    judgments: list[_Judgment] = []
    qrels: dict[str, dict[str, int]] = {}
    separator: str | None = None
    width = 0
    for number, text in lines:
        if number == 1:
            separator = "\t" if "\t" in text else None
            width = len(text.split(separator))
        columns = text.split(separator)
        if len(columns) != width or width not in _WIDTHS[separator]:
            refuse(
                "data.bad-columns",
                f"{len(columns)} columns; expected {width if number > 1 else '3 or 4'}",
                fix="write query, document, grade parted by tabs (BEIR) or query, 0, document, "
                "grade (TREC), the same way on every line",
                path=path,
                line=number,
            )
        if number == 1 and tuple(map(str.lower, columns)) == _HEADER:
            continue
        judgment = _judgment(number, columns, path)
        _add(judgment, qrels.setdefault(judgment.query, {}), path)
        judgments.append(judgment)
    if not judgments:
        refuse("data.empty", "no judgments", fix="add the qrels of this split", path=path)
    return judgments, qrels


def _judgment(number: int, columns: list[str], path: Path) -> _Judgment:
    grade = columns[-1]
    if not _GRADE.match(grade):
        refuse(
            "data.bad-grade",
            f"grade {shown(grade)} is not an integer",
            fix="grade with integers of at most nine digits; zero and less is not relevant",
            path=path,
            line=number,
        )
    query, document = columns[0], columns[-2]
    return _Judgment(
        number, check_id(query, path, number), check_id(document, path, number), int(grade)
    )


def _add(judgment: _Judgment, grades: dict[str, int], path: Path) -> None:
    earlier = grades.get(judgment.document)
    if earlier is not None:
        kind = "duplicate" if earlier == judgment.grade else "conflicting"
        refuse(
            f"data.{kind}-judgment",
            f"query {shown(judgment.query)} and document {shown(judgment.document)} are judged "
            f"twice, {earlier} and {judgment.grade}",
            fix="keep one judgment of each query and document",
            path=path,
            line=judgment.line,
        )
    grades[judgment.document] = judgment.grade


def _check_references(
    judgments: list[_Judgment],
    queries: Mapping[str, str],
    documents: Mapping[str, int],
    path: Path,
) -> None:
    for judgment in judgments:
        if judgment.query not in queries:
            what, identity, file = "query", judgment.query, QUERIES
        elif judgment.document not in documents:
            what, identity, file = "document", judgment.document, CORPUS
        else:
            continue
        refuse(
            f"data.unknown-{what}",
            f"{what} {shown(identity)} is judged here but absent from {file}",
            fix=f"add it to {file}, or use the {file} that belongs to these qrels",
            path=path,
            line=judgment.line,
        )


def _check_shape(dataset: RetrievalDataset, shape: Shape) -> None:
    for what, declared, found in (
        ("documents", shape.documents, dataset.document_count),
        ("judged queries", shape.queries, len(dataset.queries)),
        ("judgments", shape.judgments, dataset.judgment_count),
    ):
        if declared is not None and declared != found:
            raise DataError(
                "data.wrong-shape",
                f"dataset {dataset.name} has {found} {what}; {declared} are declared",
                fix="use the collection that the manifest declares, or correct the declaration",
            )
