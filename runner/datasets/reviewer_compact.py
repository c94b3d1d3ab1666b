"""The compact form of an expertise dataset: every paper once, profiles of all versions in one file.

``papers.jsonl`` (``id``, ``title``, ``abstract``, maybe ``year``), ``datasets.json``
(``submissions`` and ``profiles``: version -> reviewer -> paper ids, newest first) and
``evaluations.csv``; with full texts also ``wordcounts.jsonl`` (``id``, ``counts``). The JSON files
may be gzipped (``.gz``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.datasets.evaluations import read_evaluations
from runner.datasets.lines import (
    FileDigest,
    HashedLines,
    check_id,
    parse_object,
    refuse,
    shown,
    text_field,
)
from runner.datasets.packed import GZIP, lines_of, read_object
from runner.datasets.reviewers import Paper, Published
from runner.schema_faults import suggest

PAPERS, DATASETS, COUNTS = "papers.jsonl", "datasets.json", "wordcounts.jsonl"
EVALUATIONS = "evaluations.csv"
MAX_COUNT, MAX_WORD = 1_000_000_000, 4096  # joined lines make words of 800 letters


def read_compact(folder: Path, root: Path, where: Mapping[str, str], version: str) -> Published:
    """Read one version. ``where`` has ``texts`` and ``ratings``: folders below ``folder``, or "".

    ``DataError`` with file and line for every departure from the form.
    """
    fix = (
        f"put {EVALUATIONS}, {PAPERS} and {DATASETS} where the protocol says below the data root, "
        "and name it with --data-root DIR (make: DATA_ROOT=DIR)"
    )
    rated_path = _inside(folder, where["ratings"], EVALUATIONS)
    rated = HashedLines(rated_path, root, name=_name(rated_path, folder), fix=fix)
    ratings = read_evaluations(rated, rated_path)
    texts_path = _packed(folder, where["texts"], PAPERS)
    texts = lines_of(texts_path, root, name=_name(texts_path, folder), fix=fix)
    papers = _read_papers(texts, texts_path)
    sets_path = _packed(folder, where["texts"], DATASETS)
    document, sets = read_object(sets_path, root, name=_name(sets_path, folder), fix=fix)
    files = [rated.digest(), texts.digest(), sets]
    counts_path = _packed(folder, where["texts"], COUNTS)
    has_counts = counts_path.exists()
    if has_counts:
        files.append(_check_counts(counts_path, root, papers, _name(counts_path, folder)))
    return Published(
        ratings=ratings,
        submissions=_ids(document.get("submissions"), '"submissions"', sets_path),
        profiles=_profiles(document, version, sets_path),
        papers=papers,
        files=tuple(files),
        word_counts=counts_path if has_counts else None,
    )


def iter_counts(path: Path, root: Path, name: str) -> Iterator[tuple[str, dict[str, int]]]:
    """Read the word counts again: (paper id, word -> count); ``DataError`` as in loading."""
    yield from _counts(lines_of(path, root, name=name, fix="restore the file"), path)


def _inside(folder: Path, part: str, name: str) -> Path:
    return folder / part / name if part else folder / name


def _packed(folder: Path, part: str, name: str) -> Path:
    """Return the file, or its gzipped form where only that is there."""
    plain = _inside(folder, part, name)
    packed = plain.with_name(name + GZIP)
    return packed if not plain.exists() and packed.exists() else plain


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _read_papers(lines: HashedLines, path: Path) -> dict[str, Paper]:
    papers: dict[str, Paper] = {}
    for number, text in lines:
        row = parse_object(text, path, number)
        identity = check_id(text_field(row, "id", path, number), path, number)
        if identity in papers:
            message = f"paper id {shown(identity)} stands twice"
            refuse("data.duplicate-id", message, fix="keep one row a paper", path=path, line=number)
        papers[identity] = paper_of(row, path, number)
    if not papers:
        refuse("data.empty", "no papers", fix="add the papers", path=path)
    return papers


def paper_of(row: dict[str, object], path: Path, line: int) -> Paper:
    """Return the paper in a JSON object; other members of it are dropped, authors among them."""
    title = text_field(row, "title", path, line)
    abstract = text_field(row, "abstract", path, line)
    if not title.strip() and not abstract.strip():
        fix = "give every paper a title or an abstract"
        refuse("data.empty-text", "a paper without any text", fix=fix, path=path, line=line)
    year = row.get("year")
    if year is not None and (isinstance(year, bool) or not isinstance(year, int)):
        fix = 'write "year" as a whole number, or leave it out'
        refuse("data.bad-field", '"year" is no whole number', fix=fix, path=path, line=line)
    return Paper(title, abstract, year)


def _profiles(
    document: dict[str, object], version: str, path: Path
) -> Mapping[str, tuple[str, ...]]:
    versions = document.get("profiles")
    if not isinstance(versions, dict):
        fix = 'write "profiles" as version -> reviewer -> paper ids'
        refuse("data.bad-field", '"profiles" is no object', fix=fix, path=path)
    profiles = versions.get(version)
    if not isinstance(profiles, dict):
        known = ", ".join(sorted(versions)[:10])
        message = f"no version {shown(version)}{suggest(version, list(versions))}"
        refuse("data.unknown-version", message, fix=f"use one of: {known}, ...", path=path)
    if not profiles:
        refuse("data.empty", "a version without reviewers", fix="add profiles", path=path)
    return {
        who: _ids(papers, f"profile number {number}", path)
        for number, (who, papers) in enumerate(profiles.items(), 1)
    }


def _ids(value: object, what: str, path: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(paper, str) for paper in value):
        fix = "write a list of paper ids as JSON strings"
        refuse("data.bad-field", f"{what} is no list of ids", fix=fix, path=path)
    return tuple(value)


def _check_counts(path: Path, root: Path, papers: Mapping[str, Paper], name: str) -> FileDigest:
    """Read all word counts once: every paper has them, and nothing else does."""
    lines = lines_of(path, root, name=name, fix="restore the file")
    seen: set[str] = set()
    for paper, _ in _counts(lines, path):
        if paper in seen:
            fix = "keep one row a paper"
            refuse("data.duplicate-id", f"paper {shown(paper)} stands twice", fix=fix, path=path)
        seen.add(paper)
    if seen != papers.keys():
        message = f"word counts of {len(seen)} papers; {len(papers)} have texts, not the same ones"
        refuse("data.word-counts", message, fix="use the files that belong together", path=path)
    return lines.digest()


def _counts(lines: HashedLines, path: Path) -> Iterator[tuple[str, dict[str, int]]]:
    for number, text in lines:
        row: dict[str, Any] = parse_object(text, path, number)
        identity = text_field(row, "id", path, number)
        counts = row.get("counts")
        if not isinstance(counts, dict) or not all(
            type(count) is int and 0 < count <= MAX_COUNT and 0 < len(word) <= MAX_WORD
            for word, count in counts.items()
        ):
            fix = 'write "counts" as word -> whole number above 0'
            refuse("data.bad-field", '"counts" is malformed', fix=fix, path=path, line=number)
        yield identity, counts
