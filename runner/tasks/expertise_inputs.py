"""Write what an expertise method may see: profiles and submissions under opaque ids, no rating.

``reviewers.jsonl``: ``{"_id", "papers": [{"_id", "title", "abstract"}, ...]}``, newest paper first;
``submissions.jsonl``: ``{"_id", "title", "abstract"}``; with full texts ``wordcounts.jsonl``:
``{"_id", "counts": {word: count}}`` for both kinds of papers. Nothing else of what was published:
authors, years and links could lead to the reviewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.canonical import canonical_bytes
from runner.datasets.lines import FileDigest
from runner.datasets.reviewer_compact import iter_counts
from runner.datasets.reviewers import ExpertiseDataset, json_line, paper_line
from runner.purge import purge
from runner.tasks.api import InputReport, TaskOptions
from runner.tasks.blind import FOLDER_MODE, make_folder, share_file, write_file

REVIEWERS, SUBMISSIONS, COUNTS = "reviewers.jsonl", "submissions.jsonl", "wordcounts.jsonl"
TASK = "task.json"
#: What the texts of a dataset allow a method to read: title, + abstract, + counts of the full text.
PLAIN_REGIMES, FULL_REGIMES = ("t", "ta"), ("t", "ta", "f")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindPapers:
    """Files without labels on disk, to be shared by the units of one dataset."""

    folder: Path
    files: tuple[FileDigest, ...]


def share_inputs(dataset: ExpertiseDataset, folder: Path) -> BlindPapers:
    """Write submissions and word counts once, into an existing folder.

    Raises ``DataError`` if a file is no longer the one that was loaded, ``StorageError`` if the
    folder cannot be written.
    """
    files = [write_file(folder / SUBMISSIONS, SUBMISSIONS, _submissions(dataset))]
    if dataset.word_counts is not None:
        files.append(write_file(folder / COUNTS, COUNTS, _counts(dataset, dataset.word_counts)))
    return BlindPapers(folder=folder, files=tuple(files))


def write_blind_inputs(
    dataset: ExpertiseDataset,
    ids: Sequence[str],
    task: TaskOptions,
    folder: Path,
    *,
    shared: BlindPapers | None = None,
) -> InputReport:
    """Write the inputs into a new folder; the bytes depend on the arguments alone.

    Reviewers stand in the order given; an id that is none of the dataset's, or one given twice, is
    a ``ValueError``. A failure leaves no folder behind.
    """
    if len(set(ids)) != len(ids) or not set(ids) <= dataset.profiles.keys():
        raise ValueError("ids must be reviewers of the dataset, each once")
    make_folder(folder)
    try:
        if shared is None:
            papers = share_inputs(dataset, folder)
        else:
            papers = shared
            for file in shared.files:
                share_file(shared.folder / file.name, folder / file.name)
        files = (
            write_file(folder / TASK, TASK, [_task_bytes(dataset, len(ids), task)]),
            write_file(folder / REVIEWERS, REVIEWERS, _reviewers(dataset, ids)),
            *papers.files,
        )
        folder.chmod(FOLDER_MODE)
    except BaseException:
        purge(folder)
        raise
    return InputReport(folder=folder, files=files)


def _task_bytes(dataset: ExpertiseDataset, reviewers: int, task: TaskOptions) -> bytes:
    regimes = PLAIN_REGIMES if dataset.word_counts is None else FULL_REGIMES
    return canonical_bytes(
        {
            "schema": "sealbench/task/v1",
            "task": "expertise",
            "dataset": dataset.name,
            "seed": task.seed,
            "top_k": task.top_k,
            "config": dict(task.config),
            "options": {**task.options, "regimes": list(regimes)},
            "reviewers": reviewers,
            "submissions": len(dataset.submissions),
            "threads": task.threads,
        }
    )


def _reviewers(dataset: ExpertiseDataset, ids: Iterable[str]) -> Iterator[bytes]:
    for who in ids:
        papers = [paper_line(paper, dataset.papers[paper]) for paper in dataset.profiles[who]]
        yield json_line({"_id": who, "papers": papers})


def _submissions(dataset: ExpertiseDataset) -> Iterator[bytes]:
    for paper in dataset.submissions:
        yield json_line(paper_line(paper, dataset.papers[paper]))


def _counts(dataset: ExpertiseDataset, path: Path) -> Iterator[bytes]:
    """Read the counts again, in the file's order, which is that of ids nobody sees: sort them."""
    found: dict[str, bytes] = {}
    for paper, counts in iter_counts(path, dataset.root, path.name):
        for aliases in (dataset.real_submissions, dataset.real_profile_papers):
            alias = aliases.get(paper)
            if alias is not None:
                found[alias] = json_line({"_id": alias, "counts": dict(sorted(counts.items()))})
    for alias in sorted(found):
        yield found[alias]
