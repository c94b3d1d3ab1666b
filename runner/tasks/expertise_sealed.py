"""Ratings from the score files of a bundle: reviewer, paper and rating, all under opaque ids.

Opaque ids follow from the counts of the protocol. A reviewer for whom no method has scores has no
ratings here, and needs none: every unit's metrics are unmeasured then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from runner.protocol.splits import ALL, ids_sha256, split_ids, split_order, union_of
from runner.schema_faults import shown
from runner.tasks.api import SealedFile, SealedSource, Unavailable
from runner.tasks.opaque import opaque_names
from runner.tasks.sealed import header, oversized, read_table, refuse

HEADER = ["reviewer_id", "paper_id", "rating", "score"]
Ratings = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedReviewers:
    """Stands where ``ExpertiseDataset`` stands in scoring; profiles are not known."""

    name: str
    profiles: Mapping[str, tuple[str, ...]] = field(repr=False)
    submissions: tuple[str, ...] = field(repr=False)
    ratings: Mapping[str, Mapping[str, float]] = field(repr=False)
    proven: bool = False
    believed: int = 0

    def of_unit(self, scores: str) -> SealedReviewers:  # noqa: ARG002 - all have equal ratings
        """Return the ratings themselves."""
        return self


def sealed_reviewers(source: SealedSource) -> SealedReviewers | Unavailable:
    """Return the ratings that all score files of a dataset agree on; see ``api.Task``."""
    files = [unit.scores for unit in source.units]
    if not files:
        return Unavailable(reason="no score file of it is there")
    if (large := oversized(files)) is not None:
        return large
    entry, counts = source.entry, source.entry.counts
    people = opaque_names("reviewer", counts["reviewers"])
    submissions = opaque_names("submission", counts["submissions"])
    if ids_sha256(split_order(people)) != entry.splits[ALL].ids_sha256:
        return Unavailable(reason="its reviewers are numbered in another way")
    asked = union_of(split_ids(people, source.protocol.calibration), source.splits)
    known: Ratings = {}
    for file in files:
        found = _read(file, frozenset(asked), frozenset(submissions), counts["ratings"])
        for who in found.keys() & known.keys():
            if found[who] != known[who]:
                refuse(file, f"the ratings of {who} are not those of another score file")
        known |= found
    _check_counts(files[0], known, source)
    # A unit that has scores for somebody without ratings would write a line that is not there.
    unrated = {submissions[0]: 0.0}
    return SealedReviewers(
        name=entry.name,
        profiles=dict.fromkeys(people, ()),
        submissions=submissions,
        ratings={who: dict(sorted(known.get(who, unrated).items())) for who in asked},
    )


def _read(
    file: SealedFile, people: frozenset[str], submissions: frozenset[str], most: int
) -> Ratings:
    table = read_table(file)
    if header(table) != HEADER:
        refuse(file, f"its columns are not {', '.join(HEADER)}", 1)
    found: Ratings = {}
    for number, (line, (who, paper, rating, _)) in enumerate(table, 1):
        if number > most:
            refuse(file, f"more than the {most} ratings of the protocol", line)
        if who not in people or paper not in submissions:
            refuse(file, f"{shown(who)} and {shown(paper)} are no ids of the protocol", line)
        rated = found.setdefault(who, {})
        if paper in rated:
            refuse(file, "a reviewer and a paper twice", line)
        rated[paper] = _rating(file, line, rating)
    return found


def _rating(file: SealedFile, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or repr(value) != text:
        refuse(file, f"rating {shown(text)} is no number as it is written here", line)
    return value


def _check_counts(file: SealedFile, known: Ratings, source: SealedSource) -> None:
    counts = source.entry.counts
    sizes = [len(rated) for rated in known.values()]
    found = (sum(sizes), sum(size * (size - 1) // 2 for size in sizes))
    frozen = (counts["ratings"], counts["pairs"])
    missing = counts["reviewers"] - len(known)
    if (not missing and found != frozen) or found[0] + missing > frozen[0] or found[1] > frozen[1]:
        refuse(file, f"{found[0]} ratings are in all; the protocol has {frozen[0]}")
