"""Write what a retrieval method may see: task, documents, queries, and never a label.

BEIR's own ``queries.jsonl`` names the gold documents of SciFact in ``metadata``, so nothing is
copied from the published files: every line is written anew from the members that are allowed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.canonical import canonical_bytes
from runner.datasets.beir import CORPUS, QUERIES, query_line
from runner.datasets.lines import FileDigest
from runner.tasks.api import InputReport, TaskOptions
from runner.tasks.blind import FOLDER_MODE, make_folder, share_file, write_file
from runner.tasks.code_collection import Collection

TASK = "task.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindCorpus:
    """A corpus without labels on disk, to be shared by the units of one dataset."""

    path: Path
    digest: FileDigest


def write_blind_corpus(dataset: Collection, path: Path) -> BlindCorpus:
    """Write the documents of a dataset once, in corpus order.

    Raises ``DataError`` if the corpus is no longer the one that was loaded, ``StorageError`` if
    the file cannot be written.
    """
    lines = (document.line() for document in dataset.iter_documents())
    return BlindCorpus(path=path, digest=write_file(path, CORPUS, lines))


def write_blind_inputs(
    dataset: Collection,
    query_ids: Sequence[str],
    task: TaskOptions,
    folder: Path,
    *,
    shared: BlindCorpus | None = None,
) -> InputReport:
    """Write ``task.json``, ``corpus.jsonl`` and ``queries.jsonl`` into a new folder.

    The bytes depend on the arguments alone. With ``shared`` the documents are linked, not written
    again. Queries stand in the order given; an id that is no judged query of the dataset, or one
    given twice, is a ``ValueError``. A failure leaves no folder behind.
    """
    if len(set(query_ids)) != len(query_ids) or not set(query_ids) <= dataset.queries.keys():
        raise ValueError("query ids must be judged queries of the dataset, each once")
    make_folder(folder)
    try:
        written = write_blind_corpus(dataset, folder / CORPUS) if shared is None else shared
        if shared is not None:
            share_file(shared.path, folder / CORPUS)
        queries = (query_line(query, dataset.queries[query]) for query in query_ids)
        files = (
            write_file(folder / TASK, TASK, [_task_bytes(dataset, len(query_ids), task)]),
            written.digest,
            write_file(folder / QUERIES, QUERIES, queries),
        )
        folder.chmod(FOLDER_MODE)
    except BaseException:
        discard_inputs(folder)
        raise
    return InputReport(folder=folder, files=files)


def discard_inputs(folder: Path) -> None:
    """Remove an input folder, which nobody, its owner included, may write to."""
    if folder.is_dir() and not folder.is_symlink():
        folder.chmod(0o700)
        shutil.rmtree(folder)


def _task_bytes(dataset: Collection, queries: int, task: TaskOptions) -> bytes:
    return canonical_bytes(
        {
            "schema": "sealbench/task/v1",
            "task": "retrieval",
            "dataset": dataset.name,
            "seed": task.seed,
            "top_k": task.top_k,
            "config": dict(task.config),
            "options": dict(task.options),
            "queries": queries,
            "documents": dataset.document_count,
            "threads": task.threads,
        }
    )
