"""Collections of the ir_datasets package, from objects of its shape: named tuples and iterators."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from runner.commands import converting
from runner.datasets.irds import convert, dataset_name, freeze_entry, load_ir_dataset
from runner.errors import DataError, UsageError
from runner.manifest import load_freeze_manifest
from runner.protocol.freeze import freeze


class TitledDoc(NamedTuple):
    doc_id: str
    text: str
    title: str

    def default_text(self) -> str:
        return f"{self.title} {self.text}"


class FieldsDoc(NamedTuple):
    """As of a collection whose documents have other fields."""

    doc_id: str
    headline: str
    body: str

    def default_text(self) -> str:
        return f"{self.headline}\n{self.body}"


class MuteDoc(NamedTuple):
    doc_id: str
    image: bytes


class Query(NamedTuple):
    query_id: str
    text: str

    def default_text(self) -> str:
        return self.text


class Judgment(NamedTuple):
    query_id: str
    doc_id: str
    relevance: Any
    iteration: str = "0"


class Source:
    """What ``ir_datasets.load`` returns, as far as it is asked."""

    def __init__(self, docs: list[Any], qrels: list[Judgment], count: int | None = None) -> None:
        self.docs, self.qrels, self.count = docs, qrels, count
        self.missing: str | None = None

    def has_docs(self) -> bool:
        return self.missing != "docs"

    def has_queries(self) -> bool:
        return self.missing != "queries"

    def has_qrels(self) -> bool:
        return self.missing != "qrels"

    def docs_iter(self) -> Iterator[Any]:
        return iter(self.docs)

    def docs_count(self) -> int:
        return len(self.docs) if self.count is None else self.count

    def queries_iter(self) -> Iterator[Query]:
        return iter(
            [Query("q1", "what is tea"), Query("q2", "what is dry"), Query("q3", "unjudged")]
        )

    def qrels_iter(self) -> Iterator[Judgment]:
        return iter(self.qrels)

    def documentation(self) -> dict[str, str]:
        return {"desc": " A toy. "}


DOCS = [TitledDoc("1", "green tea", "Tea"), TitledDoc("2", "a desert", ""), TitledDoc("3", "", "")]
QRELS = [Judgment("q1", "1", 2), Judgment("q1", "3", 0), Judgment("q2", "2", 1)]


def toy(**changes: Any) -> Source:
    return Source(**{"docs": DOCS, "qrels": QRELS, **changes})


def test_a_collection_becomes_files_that_freeze(tmp_path: Path) -> None:
    made = convert(toy(), "toy/v1/test", tmp_path)
    assert made.folder == tmp_path / "toy-v1-test"
    rows = [json.loads(line) for line in (made.folder / "corpus.jsonl").read_text().splitlines()]
    assert rows[0] == {"_id": "1", "title": "Tea", "text": "green tea"}
    assert (made.dataset.document_count, len(made.dataset.queries)) == (3, 2)
    assert made.dataset.qrels["q1"] == {"1": 2, "3": 0}
    entry = freeze_entry(made).replace('""  ', "own  ")
    head = (
        "schema: sealbench/freeze/v1\nbenchmark: toy-v1\nversion: '1.0.0'\ntitle: Toy\n"
        "description: Toy.\ncategory: retrieval\nmetrics: [ndcg_at_10]\n"
        "primary_metric: ndcg_at_10\ntop_k: 10\n"
        "rules: {queries_without_positives: count_as_zero}\ndatasets:\n"
    )
    (tmp_path / "toy.yaml").write_text(head + entry)
    protocol, _ = freeze(load_freeze_manifest(tmp_path / "toy.yaml"), tmp_path)
    assert protocol["datasets"][0]["counts"]["judgments"] == 3


def test_converting_again_gives_the_same_bytes(tmp_path: Path) -> None:
    first, again = (convert(toy(), "toy", tmp_path / name).dataset.files for name in "ab")
    assert first == again


def test_other_fields_give_the_packages_own_text(tmp_path: Path) -> None:
    docs = [FieldsDoc("1", "Tea", "green"), FieldsDoc("2", "", "dry"), FieldsDoc("3", "", "")]
    made = convert(toy(docs=docs), "toy", tmp_path)
    row = json.loads((made.folder / "corpus.jsonl").read_text().splitlines()[0])
    assert row == {"_id": "1", "title": "", "text": "Tea\ngreen"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"docs": [*DOCS, DOCS[0]]}, "document '1'|id '1'"),
        ({"docs": DOCS[:1]}, "absent from corpus"),
        ({"count": 7}, "promises 7"),
        ({"docs": [MuteDoc("1", b"")]}, "no text of their own"),
        ({"qrels": [Judgment("q1", "1", 0.5)]}, "judgment of 0.5"),
        ({"qrels": [*QRELS, QRELS[0]]}, "q1"),
    ],
)
def test_what_cannot_be_a_collection_is_refused_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        convert(toy(**changes), "toy", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_fails_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    source = toy()

    def docs_iter() -> Iterator[Any]:
        yield DOCS[0]
        raise ConnectionError("no route to host")

    source.docs_iter = docs_iter  # type: ignore[method-assign]  # fails half way
    with pytest.raises(DataError, match="ConnectionError: no route to host"):
        convert(source, "toy", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["docs", "queries", "qrels"])
def test_all_three_parts_are_needed(tmp_path: Path, missing: str) -> None:
    source = toy()
    source.missing = missing
    with pytest.raises(DataError, match="it has no"):
        convert(source, "toy", tmp_path)


def test_data_are_never_overwritten(tmp_path: Path) -> None:
    convert(toy(), "toy", tmp_path)
    with pytest.raises(DataError, match="never overwritten"):
        convert(toy(), "toy", tmp_path)
    convert(toy(), "toy", tmp_path, name="other")


@pytest.mark.parametrize(
    ("ident", "name"),
    [
        ("beir/scifact/test", "beir-scifact-test"),
        ("msmarco-passage/trec-dl-2019/judged", "msmarco-passage-trec-dl-2019-j"),
        ("wapo/v2", "wapo-v2"),
    ],
)
def test_an_id_gives_a_name(ident: str, name: str) -> None:
    assert dataset_name(ident) == name


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(UsageError, match="not installed"):
        load_ir_dataset("toy")


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("ir_datasets")
    known = {"toy": toy()}
    monkeypatch.setattr(module, "load", known.__getitem__, raising=False)
    monkeypatch.setitem(sys.modules, "ir_datasets", module)
    arguments = Namespace(ident="toy", out=tmp_path, name=None, json=True)
    assert converting.ir_datasets(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["documents"], told["queries"], told["description"]) == (3, 2, "A toy.")
    assert [file["name"] for file in told["files"]] == [
        "corpus.jsonl", "queries.jsonl", "qrels/test.tsv",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="knows no dataset"):
        converting.ir_datasets(Namespace(ident="nope", out=tmp_path, name=None, json=True))
