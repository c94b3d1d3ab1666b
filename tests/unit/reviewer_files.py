"""A small expertise dataset in both formats: four people, five submissions, made-up texts."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

#: Ids of "people", each of which must never be seen outside of the loader.
PEOPLE = ("900000001", "900000002", "900000003", "900000004")
RATINGS: Mapping[str, Mapping[str, str]] = {
    PEOPLE[0]: {"s1": "5.0", "s2": "4.0", "s3": "1.5"},
    PEOPLE[1]: {"s2": "2.0", "s4": "4.25"},
    PEOPLE[2]: {"s1": "3.0", "s3": "3.0", "s4": "5"},
    PEOPLE[3]: {"s5": "4.5", "no_ss": "1.0", "s1": "4.0"},
}
SUBMISSIONS = ("s1", "s2", "s3", "s4", "s5", "no_ss")
PROFILES: Mapping[str, Mapping[str, list[str]]] = {
    "v_1": {
        PEOPLE[0]: ["p1", "p2"],
        PEOPLE[1]: ["p3"],
        PEOPLE[2]: ["p4", "p2"],
        PEOPLE[3]: ["p5", "s1"],
    },
    "v_2": {
        PEOPLE[0]: ["p1"],
        PEOPLE[1]: ["p3", "p2"],
        PEOPLE[2]: ["p4"],
        PEOPLE[3]: ["p5", "s1"],
    },
}
_SUBJECTS = {
    "s1": "parsing of trees", "s2": "parsing of graphs", "s3": "markets and auctions",
    "s4": "vision with few labels", "s5": "robots that walk", "no_ss": "auctions of robots",
    "p1": "grammar and parsing", "p2": "graphs in parsing", "p3": "labels for vision",
    "p4": "markets and vision", "p5": "walking robots",
}  # fmt: skip
_YEARS = {"p1": 2022, "p2": 2020, "p3": 2022, "p4": 2021, "p5": 2022, "s1": 2021}
PAPERS = [
    {
        "id": name,
        "title": subject.title(),
        "abstract": f"We study {subject}; naïve methods fail.",
        "year": _YEARS.get(name, 2022),
    }
    for name, subject in sorted(_SUBJECTS.items())
]


def evaluations(ratings: Mapping[str, Mapping[str, str]] = RATINGS, width: int = 4) -> str:
    """Return the table of ratings as published: tabs, empty cells after the last rating."""
    head = ["ParticipantID"]
    head += [f"{word}{n + 1}" for word in ("Paper", "Expertise") for n in range(width)]
    lines = ["\t".join(head)]
    for who, papers in ratings.items():
        blank = [""] * (width - len(papers))
        lines.append("\t".join([who, *papers, *blank, *papers.values(), *blank]))
    return "\n".join(lines) + "\n"


def write_compact(
    root: Path, *, name: str = "toy", table: str | None = None, packed: bool = False
) -> Path:
    """Write ``<root>/<name>/`` in the compact form and return the root."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "evaluations.csv").write_text(evaluations() if table is None else table)
    papers = "".join(json.dumps(paper) + "\n" for paper in PAPERS)
    sets = json.dumps({"submissions": list(SUBMISSIONS), "profiles": PROFILES})
    for file, text in (("papers.jsonl", papers), ("datasets.json", sets)):
        if packed:
            (folder / f"{file}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            (folder / file).write_text(text)
    return root


def write_counts(root: Path, *, name: str = "toy") -> None:
    """Add word counts of full texts."""
    lines = [
        json.dumps({"id": paper["id"], "counts": {"words": 3, str(paper["title"]).lower(): 1}})
        for paper in PAPERS
    ]
    data = gzip.compress("".join(line + "\n" for line in lines).encode(), mtime=0)
    (root / name / "wordcounts.jsonl.gz").write_bytes(data)


def openreview_files(version: str) -> dict[str, bytes]:
    """Return path -> bytes of one OpenReview folder; contents name authors, which must not leak."""
    papers = {paper["id"]: paper for paper in PAPERS}

    def record(ident: str) -> dict[str, object]:
        paper = papers[ident]
        content = {key: paper[key] for key in ("title", "abstract", "year")}
        return {"id": ident, "content": {**content, "authors": [PEOPLE[0]], "link": "LEAK"}}

    files = {"submissions.json": json.dumps({name: record(name) for name in SUBMISSIONS}).encode()}
    for who, profile in PROFILES[version].items():
        text = "".join(json.dumps(record(paper)) + "\n" for paper in profile)
        files[f"archives/~{who}.jsonl"] = text.encode()
    return files


def write_openreview(root: Path, *, name: str = "toy", packed: bool = True) -> Path:
    """Write the same data as OpenReview folders, in ``versions.tar.xz`` or unpacked."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "evaluations.csv").write_text(evaluations())
    every = {
        f"{version}/{path}": data
        for version in PROFILES
        for path, data in openreview_files(version).items()
    }
    if packed:
        with tarfile.open(folder / "versions.tar.xz", "w:xz") as archive:
            for path, data in every.items():
                info = tarfile.TarInfo(path)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return root
    for path, data in every.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return root
