"""Collections as their authors publish them -> the layout that the shipped benchmarks are of."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import tarfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.commands import converting
from runner.datasets.code_pairs import load_code_pairs
from runner.datasets.code_retrieval import load_code_retrieval
from runner.datasets.irplag import convert_irplag
from runner.datasets.reviewer_compact import read_compact
from runner.datasets.reviewer_gold import (
    FULL_VERSIONS,
    PREDICTIONS,
    VERSIONS,
    convert_reviewer_gold,
)
from runner.errors import DataError, StorageError
from tests.unit.reviewer_files import PAPERS, PEOPLE, RATINGS, evaluations, openreview_files

PROGRAMS = {
    "case-01/original/T1.java": "class A { }\r\n",
    "case-01/plagiarized/L1/01/Main.java": "class B { }\n",
    "case-01/plagiarized/L6/02/Main.java": "class C { }\n",
    "case-01/non-plagiarized/01/T01.java": "interface D { }\n",
    "case-02/original/T2.java": "class E { }\n",
    "case-02/non-plagiarized/15/T02.java": "class F { }\n",
}


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


@pytest.fixture
def irplag(tmp_path: Path) -> Path:
    folder = tmp_path / "IR-Plag-Dataset"
    for name, text in PROGRAMS.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(text.encode())
    (folder / "readme.txt").write_text("about it")
    (folder / "case-01" / ".DS_Store").write_bytes(b"\0")
    return folder


def test_irplag_becomes_pairs_and_a_collection(irplag: Path, tmp_path: Path) -> None:
    made = convert_irplag(irplag, tmp_path / "data")
    assert made == tmp_path / "data" / "irplag"
    pairs = load_code_pairs(made / "pair", name="irplag-pair", root=tmp_path)
    assert list(zip(pairs.ids, pairs.left, pairs.right, pairs.labels, strict=True)) == [
        ("p0001", "case-01-orig", "case-01-L1-01", 1),
        ("p0002", "case-01-orig", "case-01-L6-02", 1),
        ("p0003", "case-01-orig", "case-01-np-01", 0),
        ("p0004", "case-02-orig", "case-02-np-15", 0),
    ]
    assert pairs.groups["level"] == ["L1", "L6", "NP", "NP"]
    assert pairs.sources.text("case-01-orig") == "class A { }\r\n"
    found = load_code_retrieval(made / "retrieval", name="irplag-retrieval", root=tmp_path)
    assert list(found.queries) == ["q-case-01", "q-case-02"]
    assert found.qrels["q-case-02"] == {"case-02-np-15": 0}
    assert len(found.documents) == 4
    assert not list((tmp_path / "data").glob(".*"))


def unlink(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def put(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def rename(old: str, new: str) -> Callable[[Path], object]:
    return lambda folder: (folder / old).rename(folder / new)


IRPLAG_REFUSALS = {
    "a program is missing": unlink("case-01/original/T1.java"),
    "two programs in one folder": put("case-01/original/T2.java", b"class G { }"),
    "no ASCII": put("case-01/original/T1.java", "// naïve\n".encode()),
    "a name for no table": rename("case-02/original/T2.java", "case-02/original/T,2.java"),
}


@pytest.mark.parametrize("case", IRPLAG_REFUSALS)
def test_another_irplag_is_refused_and_leaves_nothing(
    case: str, irplag: Path, tmp_path: Path
) -> None:
    IRPLAG_REFUSALS[case](irplag)
    with pytest.raises(DataError) as caught:
        convert_irplag(irplag, tmp_path / "data")
    assert caught.value.code == "data.irplag-layout"
    assert not (tmp_path / "data").exists()


def test_data_that_are_there_are_never_overwritten(irplag: Path, tmp_path: Path) -> None:
    made = convert_irplag(irplag, tmp_path / "data")
    before = digests(made)
    with pytest.raises(DataError, match="occupied"):
        convert_irplag(irplag, tmp_path / "data")
    assert digests(made) == before
    with pytest.raises(DataError, match="missing"):
        convert_irplag(tmp_path, tmp_path / "other")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        convert_irplag(irplag, tmp_path / "file")


def test_the_published_irplag_gives_the_frozen_one(irplag_root: Path, tmp_path: Path) -> None:
    frozen = irplag_root / "irplag"
    table = (frozen / "pair" / "files.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(io.StringIO(table)):
        target = tmp_path / "published" / row["source_path"]
        target.parent.mkdir(parents=True)
        target.write_bytes((frozen / "pair" / row["path"]).read_bytes())
    made = convert_irplag(tmp_path / "published", tmp_path)
    for part in ("pair", "retrieval"):
        assert digests(made / part) == digests(frozen / part)


def checkout(folder: Path) -> Path:
    """Write a small checkout: the same people and papers in the published layout."""
    every = {"data/evaluations.csv": evaluations().encode()}
    for number, name in enumerate((*VERSIONS, *FULL_VERSIONS)):
        for path, data in openreview_files(f"v_{number % 2 + 1}").items():
            every[f"evaluation_datasets/{name}/{path}"] = data
    for paper in PAPERS:
        every[f"data/txts/{paper['id']}.json"] = b'{"words": 3}'
    scores = {who: dict.fromkeys(rated, 0.25) for who, rated in RATINGS.items()}
    for method, count in PREDICTIONS.items():
        for name in VERSIONS[:count]:
            every[f"predictions/{method}_{name}_ta.json"] = json.dumps(scores).encode()
    for path, data in every.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def test_reviewer_gold_becomes_the_compact_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published, root = checkout(tmp_path / "published"), tmp_path / "data"
    assert not converting.reviewer_gold(Namespace(published=published, out=root, json=True))
    told = json.loads(capsys.readouterr().out)
    assert told["folders"] == [
        str(root / "reviewer-gold"),
        str(root / "reviewer-gold-fulltext"),
    ]
    where = {"texts": "reviewer-gold", "ratings": "reviewer-gold"}
    one = read_compact(root, root, where, "d_20_1")
    two = read_compact(root, root, where, "d_20_10")
    assert list(one.profiles) == list(one.ratings) == list(PEOPLE)
    assert (one.profiles[PEOPLE[1]], two.profiles[PEOPLE[1]]) == (("p3",), ("p3", "p2"))
    assert one.papers["p1"].abstract.endswith("naïve methods fail.")
    full = read_compact(root, root, {**where, "texts": "reviewer-gold-fulltext"}, "d_full_20_5")
    assert full.word_counts is not None
    packed = (root / "reviewer-gold-fulltext" / "wordcounts.jsonl.gz").read_bytes()
    assert packed[4:8] == bytes(4), "a time in a gzip header would differ with every call"
    assert json.loads(gzip.decompress(packed).splitlines()[0])["counts"] == {"words": 3}
    table = (root / "reviewer-gold" / "predictions" / "tpms_d_20_ta.csv").read_text()
    lines = table.splitlines()
    assert lines[0].split(",") == ["reviewer", "paper", *VERSIONS]
    assert lines[1].split(",") == [PEOPLE[0], "s1", *["0.25"] * 10]
    assert len(lines) == 1 + sum(map(len, RATINGS.values()))


@pytest.mark.parametrize(
    ("path", "data", "code"),
    [
        ("evaluation_datasets/d_20_3/submissions.json", b"{}", "data.reviewer-gold-layout"),
        ("evaluation_datasets/d_20_3/submissions.json", None, "data.missing"),
        (
            f"evaluation_datasets/d_20_3/archives/~{PEOPLE[0]}.jsonl",
            None,
            "data.reviewer-gold-layout",
        ),
        (
            f"evaluation_datasets/d_20_3/archives/~{PEOPLE[0]}.jsonl",
            b'{"id": "p1", "content": {"title": "Another", "abstract": "text"}}\n',
            "data.conflicting-paper",
        ),
        ("predictions/elmo_d_20_4_ta.json", b"{}", "data.reviewer-gold-layout"),
        ("data/evaluations.csv", None, "data.missing"),
    ],
)
def test_another_reviewer_gold_is_refused_and_names_nobody(
    path: str, data: bytes | None, code: str, tmp_path: Path
) -> None:
    published = checkout(tmp_path / "published")
    if data is None:
        (published / path).unlink()
    else:
        (published / path).write_bytes(data)
    with pytest.raises(DataError) as caught:
        convert_reviewer_gold(published, tmp_path / "data")
    assert caught.value.code == code
    assert not any(who in str(caught.value) for who in PEOPLE)
    assert not (tmp_path / "data" / "reviewer-gold").exists()


def test_the_published_reviewer_gold_gives_the_frozen_one(
    reviewer_root: Path, tmp_path: Path
) -> None:
    frozen, published = reviewer_root / "reviewer-gold", tmp_path / "published"
    (published / "data").mkdir(parents=True)
    (published / "data" / "evaluations.csv").write_bytes((frozen / "evaluations.csv").read_bytes())
    with tarfile.open(frozen / "d_20_openreview.tar.xz") as archive:
        archive.extractall(published / "evaluation_datasets", filter="data")
    made = convert_reviewer_gold(published, tmp_path)
    for name in ("evaluations.csv", "papers.jsonl", "datasets.json"):
        assert (made / name).read_bytes() == (frozen / name).read_bytes()
