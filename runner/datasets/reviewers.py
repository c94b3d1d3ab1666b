"""Reviewers with their papers, submissions and ratings: one version of an expertise dataset.

Two formats give the same dataset: the compact form (``reviewer_compact``) and OpenReview's folders
(``openreview``). Ids of people and papers stay in here: everything that leaves has opaque ids,
which follow from the ratings alone, so that versions with equal ratings number alike.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from runner.datasets.lines import FileDigest, check_name, shown
from runner.errors import DataError
from runner.tasks.opaque import opaque

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Ratings = Mapping[str, Mapping[str, float]]


class Paper(NamedTuple):
    """What a method may know of a paper. ``year`` only proves the order of a profile."""

    title: str
    abstract: str
    year: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One version as published, under real ids. ``profiles`` are newest first."""

    ratings: Ratings
    submissions: tuple[str, ...]
    profiles: Mapping[str, tuple[str, ...]]
    papers: Mapping[str, Paper]
    files: tuple[FileDigest, ...]
    word_counts: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Ratings that a version declares not to cover: so many reviewers, so many papers."""

    reviewers: int = 0
    papers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertiseShape:
    """Declared counts; ``None`` is undeclared."""

    reviewers: int | None = None
    submissions: int | None = None
    ratings: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertisePayload:
    """SHA-256 (hex) of the content apart from its formatting; equal for both formats."""

    papers: str
    profiles: str
    labels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertiseDataset:
    """A loaded version; all ids are opaque but those in ``real_*``, which leave the process in
    a private file of ``assign --names`` alone.

    ``profiles``: reviewer -> profile papers, newest first; ``ratings``: reviewer -> submission ->
    rating; both in ascending order of opaque ids. ``papers`` has the texts of both kinds of ids.
    ``word_counts`` is the file of full-text word counts, or None. ``places``: which folders below
    ``folder`` were read, and which version.
    """

    name: str
    format: str
    places: Mapping[str, str]
    folder: Path
    root: Path
    profiles: Mapping[str, tuple[str, ...]]
    submissions: tuple[str, ...]
    ratings: Mapping[str, Mapping[str, float]]
    papers: Mapping[str, Paper]
    files: tuple[FileDigest, ...]
    payload: ExpertisePayload
    absent: Absent
    word_counts: Path | None
    real_reviewers: Mapping[str, str] = field(repr=False)  # real id -> opaque id
    real_submissions: Mapping[str, str] = field(repr=False)
    real_profile_papers: Mapping[str, str] = field(repr=False)

    @property
    def rating_count(self) -> int:
        """Number of rated pairs of reviewer and submission."""
        return sum(map(len, self.ratings.values()))

    @property
    def pair_count(self) -> int:
        """Number of pairs of papers that one reviewer rated."""
        return sum(len(one) * (len(one) - 1) // 2 for one in self.ratings.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a dataset comes from; see ``ExpertiseDataset``."""

    name: str
    format: str
    places: Mapping[str, str]
    folder: Path
    root: Path


def build(origin: Origin, published: Published, absent: Absent) -> ExpertiseDataset:
    """Check that the parts fit together and give every id an opaque one.

    ``DataError`` for a reviewer without profile or ratings, an unknown or repeated paper, a profile
    that is not newest first, and ratings of more absent reviewers or papers than declared. No
    message names a reviewer.
    """
    name = check_name(origin.name, "dataset")
    _check_profiles(published, name)
    ratings = _covered(published, absent, name)
    labels = _sha256(
        f"{who}\t{paper}\t{ratings[who][paper]!r}\n"
        for who in sorted(ratings)
        for paper in sorted(ratings[who])
    )
    people = opaque("reviewer", ratings, labels)
    submitted = opaque("submission", published.submissions, labels)
    listed = sorted({paper for who in ratings for paper in published.profiles[who]})
    own = opaque("paper", listed, labels)
    return ExpertiseDataset(
        name=name,
        format=origin.format,
        places=origin.places,
        folder=origin.folder,
        root=origin.root,
        profiles={
            alias: tuple(own[paper] for paper in published.profiles[who])
            for who, alias in people.items()
        },
        submissions=tuple(submitted.values()),
        ratings={
            alias: {submitted[paper]: ratings[who][paper] for paper in _by(submitted, ratings[who])}
            for who, alias in people.items()
        },
        papers={
            alias: published.papers[paper]
            for ids in (submitted, own)
            for paper, alias in ids.items()
        },
        files=published.files,
        payload=_payload(published, ratings, labels),
        absent=absent,
        word_counts=published.word_counts,
        real_reviewers=people,
        real_submissions=submitted,
        real_profile_papers=own,
    )


def check_shape(dataset: ExpertiseDataset, shape: ExpertiseShape) -> None:
    """Raise ``DataError`` for counts that differ from the declared ones."""
    for what, declared, found in (
        ("reviewers", shape.reviewers, len(dataset.profiles)),
        ("submissions", shape.submissions, len(dataset.submissions)),
        ("ratings", shape.ratings, dataset.rating_count),
    ):
        if declared is not None and declared != found:
            raise DataError(
                "data.wrong-shape",
                f"dataset {dataset.name} has {found} {what}; {declared} are declared",
                fix="use the collection that the manifest declares, or correct the declaration",
            )


def paper_line(alias: str, paper: Paper) -> dict[str, str]:
    """Return a paper as methods see it: id, title, abstract and nothing else."""
    return {"_id": alias, "title": paper.title, "abstract": paper.abstract}


def json_line(document: Mapping[str, Any]) -> bytes:
    """Return one line of a blind file."""
    return _encode(document).encode("utf-8") + b"\n"


def _by(order: Mapping[str, str], papers: Iterable[str]) -> list[str]:
    return sorted(papers, key=order.__getitem__)


def _payload(published: Published, ratings: Ratings, labels: str) -> ExpertisePayload:
    used = {*published.submissions}.union(*(published.profiles[who] for who in ratings))
    return ExpertisePayload(
        papers=_sha256(_paper_texts(published.papers, used, published.submissions)),
        profiles=_sha256(
            f"{who}\t{' '.join(published.profiles[who])}\n" for who in sorted(ratings)
        ),
        labels=labels,
    )


def _paper_texts(
    papers: Mapping[str, Paper], used: Iterable[str], submissions: Iterable[str]
) -> Iterator[str]:
    submitted = frozenset(submissions)
    for name in sorted(used):
        paper = papers[name]
        kind = "submission" if name in submitted else "profile"
        yield _encode([name, kind, paper.title, paper.abstract]) + "\n"


def _sha256(chunks: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk.encode("utf-8"))
    return digest.hexdigest()


def _check_profiles(published: Published, name: str) -> None:
    for paper in published.submissions:
        if paper not in published.papers:
            _refuse("unknown-paper", name, f"submission {shown(paper)} has no text", _ADD_TEXT)
    if len(set(published.submissions)) != len(published.submissions):
        fix = "list every submission once"
        _refuse("duplicate-paper", name, "a submission stands twice", fix)
    for number, profile in enumerate(published.profiles.values(), 1):
        whose = f"profile number {number}"
        if not profile:
            fix = "give every reviewer at least one paper"
            _refuse("empty-profile", name, f"{whose} has no paper", fix)
        if len(set(profile)) != len(profile):
            fix = "list every paper of a profile once"
            _refuse("duplicate-paper", name, f"{whose} has a paper twice", fix)
        if any(paper not in published.papers for paper in profile):
            _refuse("unknown-paper", name, f"{whose} has a paper without text", _ADD_TEXT)
        years = [published.papers[paper].year for paper in profile]
        known = [year for year in years if year is not None]
        if known != sorted(known, reverse=True):
            fix = "order a profile's papers from the newest to the oldest"
            _refuse("profile-order", name, f"{whose} is not newest first", fix)


def _covered(published: Published, absent: Absent, name: str) -> Ratings:
    """Return the ratings of reviewers and papers that the version has; the rest is declared."""
    submitted = frozenset(published.submissions)
    people = [who for who in published.ratings if who in published.profiles]
    found = Absent(
        reviewers=len(published.ratings) - len(people),
        papers=len({p for one in published.ratings.values() for p in one} - submitted),
    )
    if found != absent:
        message = (
            f"ratings of {found.reviewers} reviewers without profile and {found.papers} papers that"
            f" are no submissions; declared are {absent.reviewers} and {absent.papers}"
        )
        fix = "use the ratings that belong to these profiles, or declare how many are `absent`"
        _refuse("absent", name, message, fix)
    unrated = sum(who not in published.ratings for who in published.profiles)
    if unrated:
        fix = "remove their profiles, or add the ratings"
        _refuse("no-ratings", name, f"{unrated} reviewers have a profile but no ratings", fix)
    ratings = {
        who: {p: value for p, value in published.ratings[who].items() if p in submitted}
        for who in people
    }
    if not all(ratings.values()):
        fix = "leave out the profile of a reviewer none of whose papers are submissions"
        _refuse("no-ratings", name, "a reviewer has no rating of any submission", fix)
    return ratings


_ADD_TEXT = "add the paper's title and abstract"


def _refuse(code: str, dataset: str, message: str, fix: str) -> None:
    raise DataError(f"data.{code}", f"dataset {dataset}: {message}", fix=fix)
