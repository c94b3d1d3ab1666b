"""Write the inputs of a few queries over a few documents, as a method sees any other collection."""

from __future__ import annotations

from collections.abc import Collection as Ids
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.datasets.beir import CORPUS
from runner.tasks.api import InputReport, TaskOptions
from runner.tasks.blind import write_file
from runner.tasks.code_collection import Collection
from runner.tasks.retrieval import write_blind_inputs
from runner.tasks.retrieval_inputs import BlindCorpus


def write_part(
    dataset: Collection,
    queries: Sequence[str],
    documents: Ids[str],
    task: TaskOptions,
    folder: Path,
) -> InputReport:
    """Write blind inputs of these queries and documents alone; whole rankings are asked for.

    ``folder`` must be new; the documents, in corpus order, are first written beside it. Raises
    ``ValueError`` for an id that the dataset does not have, ``DataError`` and ``StorageError`` as
    ``write_blind_inputs`` does.
    """
    kept = {name: place for name, place in dataset.documents.items() if name in documents}
    if len(kept) != len(documents):
        raise ValueError("document ids must be documents of the dataset, each once")
    part = replace(
        dataset, documents=kept, queries={query: dataset.queries[query] for query in queries}
    )
    path = folder.with_name(f"{folder.name}-{CORPUS}")
    lines = (document.line() for document in dataset.iter_documents() if document.id in kept)
    corpus = BlindCorpus(path=path, digest=write_file(path, CORPUS, lines))
    whole = replace(task, top_k=len(kept))
    return write_blind_inputs(part, queries, whole, folder, shared=corpus)
