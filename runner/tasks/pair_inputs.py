"""Write what a pair method may see: pairs of opaque ids and sources, in shuffled order, no label.

``pairs.jsonl``: ``{"pair_id", "left_id", "right_id"}``; ``sources.jsonl``: ``{"_id", "text"}``, the
text as it stands (line ends too), bytes that are no UTF-8 left out. No path, group or language of a
file: IR-Plag's name the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.canonical import canonical_bytes
from runner.datasets.lines import FileDigest
from runner.purge import purge
from runner.tasks.api import InputReport, TaskOptions
from runner.tasks.blind import FOLDER_MODE, make_folder, share_file, write_file
from runner.tasks.pair_dataset import PairDataset

TASK, PAIRS, SOURCES = "task.json", "pairs.jsonl", "sources.jsonl"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindSources:
    """Sources without labels on disk, to be shared by the units of one dataset."""

    path: Path
    digest: FileDigest


def share_inputs(dataset: PairDataset, folder: Path) -> BlindSources:
    """Write the sources once; ``DataError`` if one is no longer the one that was loaded."""
    path = folder / SOURCES
    return BlindSources(path=path, digest=write_file(path, SOURCES, _sources(dataset)))


def write_blind_inputs(
    dataset: PairDataset,
    ids: Sequence[str],
    task: TaskOptions,
    folder: Path,
    *,
    shared: BlindSources | None = None,
) -> InputReport:
    """Write ``task.json``, ``pairs.jsonl`` and ``sources.jsonl`` into a new folder.

    Pairs stand in the order of their opaque ids; an id of none, or one given twice, is a
    ``ValueError``. A failure leaves no folder behind.
    """
    asked = set(ids)
    if len(asked) != len(ids) or not asked <= set(dataset.ids):
        raise ValueError("ids must be pairs of the dataset, each once")
    make_folder(folder)
    try:
        if shared is None:
            sources = share_inputs(dataset, folder)
        else:
            sources = shared
            share_file(shared.path, folder / SOURCES)
        files = (
            write_file(folder / TASK, TASK, [_task_bytes(dataset, len(ids), task)]),
            write_file(folder / PAIRS, PAIRS, _pairs(dataset, asked)),
            sources.digest,
        )
        folder.chmod(FOLDER_MODE)
    except BaseException:
        purge(folder)
        raise
    return InputReport(folder=folder, files=files)


def _task_bytes(dataset: PairDataset, pairs: int, task: TaskOptions) -> bytes:
    return canonical_bytes(
        {
            "schema": "sealbench/task/v1",
            "task": "pair",
            "dataset": dataset.name,
            "seed": task.seed,
            "top_k": task.top_k,
            "config": dict(task.config),
            "options": {**task.options, **dataset.options},
            "pairs": pairs,
            "sources": len(dataset.aliases),
            "threads": task.threads,
        }
    )


def _pairs(dataset: PairDataset, asked: set[str]) -> Iterator[bytes]:
    for pair, left, right in dataset.iter_pairs():
        if pair in asked:  # opaque ids: a letter and digits, which need no escape
            yield f'{{"pair_id":"{pair}","left_id":"{left}","right_id":"{right}"}}\n'.encode()


def _sources(dataset: PairDataset) -> Iterator[bytes]:
    for alias, sources, real in dataset.iter_sources():
        yield _line({"_id": alias, "text": sources.text(real)})


def _line(row: dict[str, str]) -> bytes:
    return _encode(row).encode("utf-8") + b"\n"
