"""Write what a retrieval method may see: task, documents, queries, and never a label.

BEIR's own ``queries.jsonl`` names the gold documents of SciFact in ``metadata``, so nothing is
copied from the published files: every line is written anew from the members that are allowed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from runner.canonical import canonical_bytes
from runner.datasets.beir import CORPUS, QUERIES, RetrievalDataset, query_line
from runner.datasets.lines import FileDigest
from runner.errors import StorageError, Where
from runner.tasks.api import InputReport, TaskOptions

TASK = "task.json"
_FILE_MODE, _FOLDER_MODE = 0o444, 0o555
_WRITE_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindCorpus:
    """A corpus without labels on disk, to be shared by the units of one dataset."""

    path: Path
    digest: FileDigest


def write_blind_corpus(dataset: RetrievalDataset, path: Path) -> BlindCorpus:
    """Write the documents of a dataset once, in corpus order.

    Raises ``DataError`` if the corpus is no longer the one that was loaded, ``StorageError`` if
    the file cannot be written.
    """
    lines = (document.line() for document in dataset.iter_documents())
    return BlindCorpus(path=path, digest=_write(path, CORPUS, lines))


def write_blind_inputs(
    dataset: RetrievalDataset,
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
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        _refuse(folder, error)
    try:
        written = write_blind_corpus(dataset, folder / CORPUS) if shared is None else shared
        if shared is not None:
            _share(shared.path, folder / CORPUS)
        queries = (query_line(query, dataset.queries[query]) for query in query_ids)
        files = (
            _write(folder / TASK, TASK, [_task_bytes(dataset, len(query_ids), task)]),
            written.digest,
            _write(folder / QUERIES, QUERIES, queries),
        )
        folder.chmod(_FOLDER_MODE)
    except BaseException:
        discard_inputs(folder)
        raise
    return InputReport(folder=folder, files=files)


def discard_inputs(folder: Path) -> None:
    """Remove an input folder, which nobody, its owner included, may write to."""
    if folder.is_dir() and not folder.is_symlink():
        folder.chmod(0o700)
        shutil.rmtree(folder)


def _task_bytes(dataset: RetrievalDataset, queries: int, task: TaskOptions) -> bytes:
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


def _write(path: Path, name: str, lines: Iterable[bytes]) -> FileDigest:
    """Write a new file and say what it holds; mode 0444 whatever the umask says."""
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("xb", buffering=_WRITE_BLOCK) as stream:
            for line in lines:
                digest.update(line)
                size += len(line)
                stream.write(line)
            os.fchmod(stream.fileno(), _FILE_MODE)
    except OSError as error:
        _refuse(path, error)
    return FileDigest(name=name, sha256=digest.hexdigest(), size=size)


def _share(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it where the file system cannot link."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        try:
            shutil.copyfile(source, target, follow_symlinks=False)
            target.chmod(_FILE_MODE)
        except OSError as error:
            _refuse(target, error)


def _refuse(path: Path, error: OSError) -> NoReturn:
    raise StorageError(
        "storage.unwritable",
        f"cannot write the inputs: {error.strerror}",
        fix="name an output folder that you may write to and that has room",
        where=Where(file=str(path)),
    ) from error
