"""A collection that the ``ir_datasets`` package knows -> files in BEIR's layout, with digests.

That package keeps loaders, addresses and checksums of some hundred collections; it downloads, we
convert. What comes out is read back by the strict loader before it gets its name, so that a
collection with duplicate ids or judgments of nothing is refused here and not in a run.
API: https://github.com/allenai/ir_datasets (0.5 and later: ``docs_iter``, ``default_text``).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.datasets.beir import CORPUS, QUERIES, Document, RetrievalDataset, load_beir, query_line
from runner.datasets.lines import check_name
from runner.datasets.placing import placed
from runner.errors import DataError, UsageError

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_HEADER = "query-id\tcorpus-id\tscore\n"
MAX_GRADE = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A collection that was converted: where it lies, what it holds, and what the package says."""

    ident: str
    folder: Path
    dataset: RetrievalDataset
    description: str


def load_ir_dataset(ident: str) -> Any:
    """Return the package's dataset of that id; ``UsageError`` without the package or the id."""
    try:
        import ir_datasets  # type: ignore[import-not-found,unused-ignore]  # an optional extra
    except ImportError as error:
        raise UsageError(
            "usage.no-ir-datasets",
            "the package ir-datasets is not installed",
            fix="pip install --require-hashes -r requirements/ir.lock (the extra `ir`)",
        ) from error
    try:
        return ir_datasets.load(ident)
    except KeyError as error:
        raise UsageError(
            "usage.unknown-dataset",
            f"ir_datasets knows no dataset {ident!r}",
            fix="`ir_datasets list` names all of them",
        ) from error


def dataset_name(ident: str) -> str:
    """Return an id as a dataset's name: ``beir/scifact/test`` is ``beir-scifact-test``."""
    return _NOT_IN_NAMES.sub("-", ident.lower()).strip("-")[:30].strip("-")


def convert(
    source: Any,
    ident: str,
    root: Path,
    *,
    name: str | None = None,
    progress: Callable[[str], None] = lambda _text: None,
) -> Converted:
    """Write ``root/<name>/`` from a dataset of the package, and read it back.

    Raises ``DataError`` for a dataset without documents, queries or judgments, for texts that
    nobody can read, for a folder that is there already, and for what the loader refuses.
    """
    chosen = check_name(name or dataset_name(ident), "dataset")
    for what, there in (
        ("documents", source.has_docs()),
        ("queries", source.has_queries()),
        ("judgments", source.has_qrels()),
    ):
        if not there:
            raise _refused(ident, f"it has no {what}", "choose an id that has all three")
    target = root / chosen
    occupied = "choose another --out or --name, or move the folder away"
    with placed(target, fix=occupied) as staging:
        _fill(staging, source, ident, progress)
        progress("reading it back")
        load_beir(staging, name=chosen, qrels_split="test", root=root)
    dataset = load_beir(target, name=chosen, qrels_split="test", root=root)
    return Converted(ident=ident, folder=target, dataset=dataset, description=_description(source))


def _fill(staging: Path, source: Any, ident: str, progress: Callable[[str], None]) -> None:
    """Write what the package delivers; ``DataError`` where it does not."""
    try:
        (staging / "qrels").mkdir()
        progress("documents")
        _write(staging / CORPUS, _documents(source, ident))
        progress("queries and judgments")
        _write(staging / QUERIES, _queries(source, ident))
        _write(staging / "qrels" / "test.tsv", _judgments(source, ident))
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        message = f"the package could not deliver it: {type(error).__name__}: {str(error)[:300]}"
        fix = "see its message; some collections have to be asked for, and downloads need a network"
        raise _refused(ident, message, fix) from error


def freeze_entry(made: Converted) -> str:
    """Return the dataset's entry for a freeze manifest, with its files' digests, as YAML.

    Licence and citation are the maintainer's to fill in: the package states neither reliably.
    """
    dataset = made.dataset
    lines = [
        f"  - name: {dataset.name}",
        "    task: retrieval",
        "    format: beir",
        "    qrels: test",
        f"    expect: {{documents: {dataset.document_count}, queries: {len(dataset.queries)}}}",
        "    files:",
        *(f"      {file.name}: {file.sha256}" for file in dataset.files),
        f"    source_url: {json.dumps(f'https://ir-datasets.com/{made.ident}')}",
        f"    source_revision: sha256:{dataset.files[0].sha256}",
        '    licence: ""          # to be filled in',
        '    citation: ""         # to be filled in',
        '    redistribution: ""   # to be filled in',
        f"    selection: All {len(dataset.queries)} queries that {made.ident} judges.",
    ]
    return "\n".join(lines) + "\n"


def _documents(source: Any, ident: str) -> Iterator[bytes]:
    count = 0
    for count, document in enumerate(source.docs_iter(), 1):  # noqa: B007 - used after the loop
        title = getattr(document, "title", None)
        text = getattr(document, "text", None)
        if not (isinstance(title, str) and isinstance(text, str)):
            title, text = "", _default_text(document, ident)
        yield Document(id=str(document.doc_id), title=title, text=text).line()
    promised = source.docs_count() if hasattr(source, "docs_count") else None
    if isinstance(promised, int) and promised != count:
        message = f"{count} documents came, and the package promises {promised}"
        raise _refused(ident, message, "remove its download and try again")


def _queries(source: Any, ident: str) -> Iterator[bytes]:
    for query in source.queries_iter():
        yield query_line(str(query.query_id), _default_text(query, ident))


def _judgments(source: Any, ident: str) -> Iterator[bytes]:
    yield _HEADER.encode()
    for judgment in source.qrels_iter():
        grade = judgment.relevance
        if not isinstance(grade, int) or abs(grade) >= MAX_GRADE:
            raise _refused(ident, f"a judgment of {grade!r}", "choose an id with whole grades")
        yield f"{judgment.query_id}\t{judgment.doc_id}\t{grade}\n".encode()


def _default_text(record: Any, ident: str) -> str:
    """What the package itself takes for the text of a document or query."""
    found = record.default_text() if hasattr(record, "default_text") else None
    if not isinstance(found, str):
        fields = ", ".join(getattr(record, "_fields", ()))
        message = f"its records have no text of their own ({fields})"
        raise _refused(ident, message, "choose a collection of texts, or update ir-datasets")
    return found


def _description(source: Any) -> str:
    found = source.documentation() if hasattr(source, "documentation") else None
    text = found.get("desc") if isinstance(found, dict) else None
    return text.strip() if isinstance(text, str) else ""


def _write(path: Path, lines: Iterable[bytes]) -> None:
    with path.open("xb") as target:
        for line in lines:
            target.write(line)
        target.flush()
        os.fsync(target.fileno())


def _refused(ident: str, message: str, fix: str) -> DataError:
    return DataError("data.ir-datasets", f"{ident}: {message}", fix=fix)
