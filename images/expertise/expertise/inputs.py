"""What a method is asked: reviewers with their papers, submissions, and how much of a text to read.

A *regime* is what a method may read of a paper: ``t`` the title, ``ta`` title and abstract, ``f``
also the word counts of the full text. ``profile_length`` keeps that many of a reviewer's newest
papers; 0 keeps all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sealbench_sdk import InputError, Task, input_folder, load_task

Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper under its opaque id."""

    id: str
    title: str
    abstract: str

    def text(self, regime: str) -> str:
        """Return what a regime may read as running text; full texts come as word counts."""
        return self.title if regime == "t" else f"{self.title} {self.abstract}"


@dataclass(frozen=True, slots=True)
class Reviewer:
    """A reviewer under an opaque id; papers are newest first."""

    id: str
    papers: tuple[Paper, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that is asked. ``counts`` (paper id -> word -> count) only in regime ``f``."""

    task: Task
    regime: str
    reviewers: tuple[Reviewer, ...]
    submissions: tuple[Paper, ...]
    counts: Counts

    @property
    def profile_papers(self) -> tuple[Paper, ...]:
        """Every paper of any profile once, by id."""
        papers = {paper.id: paper for one in self.reviewers for paper in one.papers}
        return tuple(papers[ident] for ident in sorted(papers))


def load_job(folder: Path | None = None) -> Job:
    """Read the input folder; ``InputError`` for what the contract does not allow."""
    folder = folder or input_folder()
    task = load_task(folder)
    regime = str(task.config.get("regime", "ta"))
    offered = task.options.get("regimes", ["t", "ta"])
    if regime not in offered:
        raise InputError(f"regime {regime!r} is not offered here: one of {', '.join(offered)}")
    length = task.config.get("profile_length", 0)
    if not isinstance(length, int) or length < 0:
        raise InputError("profile_length is no whole number from 0")
    reviewers = tuple(_reviewers(folder / "reviewers.jsonl", length or None))
    return Job(
        task=task,
        regime=regime,
        reviewers=reviewers,
        submissions=tuple(_paper(row) for row in _lines(folder / "submissions.jsonl")),
        counts=_counts(folder / "wordcounts.jsonl") if regime == "f" else {},
    )


def _reviewers(path: Path, length: int | None) -> Iterator[Reviewer]:
    for row in _lines(path):
        papers = tuple(map(_paper, row["papers"]))[:length]
        if not papers:
            raise InputError(f"{path.name}: a reviewer without papers")
        yield Reviewer(row["_id"], papers)


def _paper(row: Mapping[str, Any]) -> Paper:
    return Paper(row["_id"], row["title"], row["abstract"])


def _counts(path: Path) -> Counts:
    return {row["_id"]: row["counts"] for row in _lines(path)}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InputError(
                    f"{path.name}:{number} is not JSON: {type(error).__name__}"
                ) from None
            if not isinstance(row, dict) or "_id" not in row:
                raise InputError(f"{path.name}:{number} has no _id")
            yield row
