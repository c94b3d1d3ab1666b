"""Reviewer-Gold as its authors publish it -> the files that both benchmarks were frozen from.

A checkout of https://github.com/niharshah/goldstandard-reviewer-paper-match has
``data/evaluations.csv``, OpenReview folders that repeat papers (``evaluation_datasets/d_20_N``
and ``d_full_LENGTH_N``), ``data/txts/<paper>.json`` with the word counts of full texts, and
``predictions/<method>_d_20_N_ta.json``. Here every paper stands once. What comes out is a function
of those files alone. No message names a person.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from runner.datasets.lines import refuse
from runner.datasets.openreview import read_openreview
from runner.datasets.packed import parse_bytes, read_bytes
from runner.datasets.placing import placed
from runner.datasets.reviewer_compact import COUNTS, DATASETS, EVALUATIONS, PAPERS
from runner.datasets.reviewers import Paper, Published

VERSIONS = tuple(f"d_20_{number}" for number in range(1, 11))
FULL_VERSIONS = tuple(f"d_full_{length}_{n}" for length in range(1, 21) for n in range(1, 6))
#: Released predictions that the shipped run manifest names, and how many versions each has.
PREDICTIONS: Mapping[str, int] = {"constant": 1, "elmo": 10, "specter": 10, "tpms": 10}
_FOLDERS = {"ratings": "data", "texts": "evaluation_datasets"}
_FIX = "give a complete checkout of the published repository"


def convert_reviewer_gold(published: Path, root: Path) -> Path:
    """Write ``root/reviewer-gold/`` and return it; predictions that are not there are left out.

    Raises ``DataError`` for versions that contradict each other, for what OpenReview's loader
    refuses, and for a ``reviewer-gold/`` that is there already.
    """
    versions = _read(published, VERSIONS)
    first = versions[VERSIONS[0]]
    papers = _joined(published, versions)
    target = root / "reviewer-gold"
    with placed(target) as folder:
        raw, _ = read_bytes(
            published / "data" / EVALUATIONS, published, name=EVALUATIONS, fix=_FIX
        )  # fmt: skip
        (folder / EVALUATIONS).write_bytes(raw)
        (folder / PAPERS).write_text(_papers(papers), encoding="utf-8", newline="")
        sets = _sets(versions, first.ratings)  # in the order of the ratings
        (folder / DATASETS).write_text(sets, encoding="utf-8", newline="")
        (folder / "predictions").mkdir()
        for method, count in PREDICTIONS.items():
            names = VERSIONS[:count]
            files = [published / "predictions" / f"{method}_{name}_ta.json" for name in names]
            if all(file.exists() for file in files):
                text = _predictions(files, names, first, published)
                path = folder / "predictions" / f"{method}_d_20_ta.csv"
                path.write_text(text, encoding="utf-8", newline="")
    return target


def has_full_texts(published: Path) -> bool:
    """Tell whether a checkout has the folders of the full-text benchmark."""
    return (published / _FOLDERS["texts"] / FULL_VERSIONS[-1]).is_dir()


def convert_full_texts(published: Path, root: Path) -> Path:
    """Write ``root/reviewer-gold-fulltext/`` and return it; errors as above."""
    versions = _read(published, FULL_VERSIONS)
    papers = _joined(published, versions)
    counts = []
    for identity in sorted(papers):
        path = published / "data" / "txts" / f"{identity}.json"
        data, _ = read_bytes(path, published, name=path.name, fix=_FIX)
        row = {"id": identity, "counts": parse_bytes(data, path)}
        counts.append(json.dumps(row, ensure_ascii=False) + "\n")
    target = root / "reviewer-gold-fulltext"
    people = versions[FULL_VERSIONS[0]].profiles  # in the order of file names
    with placed(target) as folder:
        for name, text in (
            (PAPERS, _papers(papers)),
            (DATASETS, _sets(versions, people)),
            (COUNTS, "".join(counts)),
        ):
            (folder / f"{name}.gz").write_bytes(_packed(text))
    return target


def _packed(text: str) -> bytes:
    """Gzip a text without a name or a time, which would differ with every call."""
    held = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=held, mode="wb", compresslevel=9, mtime=0) as stream:
        stream.write(text.encode("utf-8"))
    return held.getvalue()


def _read(published: Path, names: Iterable[str]) -> dict[str, Published]:
    return {name: read_openreview(published, published, _FOLDERS, name) for name in names}


def _joined(published: Path, versions: Mapping[str, Published]) -> dict[str, Paper]:
    """Return all papers of all versions, which must agree about them and the submissions."""
    first = next(iter(versions.values()))
    papers: dict[str, Paper] = {}
    for name, version in versions.items():
        place = published / _FOLDERS["texts"] / name
        if set(version.submissions) != set(first.submissions):
            message = "its submissions are not those of the other versions"
            refuse("data.reviewer-gold-layout", message, fix=_FIX, path=place)
        if version.profiles.keys() != first.profiles.keys():
            message = "its reviewers are not those of the other versions"
            refuse("data.reviewer-gold-layout", message, fix=_FIX, path=place)
        for identity, paper in version.papers.items():
            if papers.setdefault(identity, paper) != paper:
                message = "a paper has another text here than in another version"
                refuse("data.conflicting-paper", message, fix=_FIX, path=place)
    return papers


def _papers(papers: Mapping[str, Paper]) -> str:
    lines = []
    for identity in sorted(papers):
        paper = papers[identity]
        row = {"id": identity, "title": paper.title, "abstract": paper.abstract}
        lines.append(json.dumps({**row, "year": paper.year}, ensure_ascii=False) + "\n")
    return "".join(lines)


def _sets(versions: Mapping[str, Published], people: Iterable[str]) -> str:
    order = list(people)
    first = next(iter(versions.values()))
    profiles = {
        name: {who: list(version.profiles[who]) for who in order if who in version.profiles}
        for name, version in versions.items()
    }
    document = {"submissions": sorted(first.submissions), "profiles": profiles}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _predictions(
    files: Sequence[Path], names: Sequence[str], first: Published, published: Path
) -> str:
    """Only of papers that the reviewer rated: nothing else is ever scored."""
    tables = []
    for file in files:
        data, _ = read_bytes(file, published, name=file.name, fix=_FIX)
        tables.append((file, parse_bytes(data, file)))
    lines = [",".join(("reviewer", "paper", *names))]
    for who, rated in first.ratings.items():
        for paper in rated:
            scores = [_score(table, who, paper, file) for file, table in tables]
            lines.append(",".join((who, paper, *scores)))
    return "\n".join(lines) + "\n"


def _score(table: Mapping[str, object], who: str, paper: str, path: Path) -> str:
    scores = table.get(who)
    score = scores.get(paper) if isinstance(scores, dict) else None
    if isinstance(score, bool) or not isinstance(score, int | float):
        message = "no score for a paper that was rated"
        refuse("data.reviewer-gold-layout", message, fix=_FIX, path=path)
    return repr(score)
