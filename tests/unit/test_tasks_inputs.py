"""Blind inputs: what a method may see, to the byte, and no label in any form."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from runner.datasets.beir import RetrievalDataset, load_beir
from runner.errors import DataError, ProtocolError, StorageError
from runner.purge import purge
from runner.schemas import iter_faults
from runner.tasks import task_module
from runner.tasks.api import InputReport, TaskOptions
from runner.tasks.retrieval_inputs import (
    discard_inputs,
    write_blind_corpus,
    write_blind_inputs,
)
from runner.tasks.retrieval_part import write_part
from tests.unit.beir_files import DOCUMENTS, QUERIES, jsonl, write_beir

OPTIONS = TaskOptions(seed=7, top_k=10, threads=2, config={"k1": 1.5, "b": 0.75})


@pytest.fixture
def dataset(tmp_path: Path) -> RetrievalDataset:
    return load_beir(write_beir(tmp_path / "toy"), name="toy", qrels_split="test")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def read(report: InputReport) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in report.folder.iterdir()}


def test_the_three_files_to_the_byte(dataset: RetrievalDataset, tmp_path: Path) -> None:
    report = write_blind_inputs(dataset, ["q4", "q1"], OPTIONS, tmp_path / "in")
    assert read(report) == {
        "task.json": b'{"config":{"b":0.75,"k1":1.5},"dataset":"toy","documents":4,"options":{},'
        b'"queries":2,"schema":"sealbench/task/v1","seed":7,"task":"retrieval","threads":2,'
        b'"top_k":10}',
        "corpus.jsonl": b'{"_id":"d1","title":"Tea","text":"Green tea is steeped."}\n'
        b'{"_id":"d2","title":"","text":"Coffee is brewed."}\n'
        b'{"_id":"d3","title":"Water","text":""}\n'
        b'{"_id":"d4","title":"","text":""}\n',
        "queries.jsonl": b'{"_id":"q4","text":"what is dry"}\n'
        b'{"_id":"q1","text":"how is tea made"}\n',
    }
    assert list(iter_faults("task", json.loads(read(report)["task.json"]), reference=True)) == []


def test_a_part_looks_like_any_other_collection(dataset: RetrievalDataset, tmp_path: Path) -> None:
    report = write_part(dataset, ["q4"], {"d3", "d1"}, OPTIONS, tmp_path / "in")
    found = read(report)
    assert found["corpus.jsonl"] == (
        b'{"_id":"d1","title":"Tea","text":"Green tea is steeped."}\n'
        b'{"_id":"d3","title":"Water","text":""}\n'
    )
    assert found["queries.jsonl"] == b'{"_id":"q4","text":"what is dry"}\n'
    task = json.loads(found["task.json"])
    assert (task["queries"], task["documents"], task["top_k"]) == (1, 2, 2)
    assert (task["config"], task["seed"], task["threads"]) == (OPTIONS.config, 7, 2)
    with pytest.raises(ValueError, match="documents of the dataset"):
        write_part(dataset, ["q4"], {"d1", "d9"}, OPTIONS, tmp_path / "other")


def test_digests_modes_and_the_frozen_payload(dataset: RetrievalDataset, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        report = write_blind_inputs(dataset, sorted(dataset.queries), OPTIONS, tmp_path / "in")
    finally:
        os.umask(old)
    files = read(report)
    assert {file.name for file in report.files} == set(files)
    for file in report.files:
        assert file.sha256 == hashlib.sha256(files[file.name]).hexdigest()
        assert file.size == len(files[file.name])
        assert mode(report.folder / file.name) == 0o444
    assert mode(report.folder) == 0o555
    by_name = {file.name: file.sha256 for file in report.files}
    assert by_name["corpus.jsonl"] == dataset.payload.corpus
    assert by_name["queries.jsonl"] == dataset.payload.queries


def test_no_label_in_any_form_crosses(tmp_path: Path) -> None:
    gold = "GOLDDOCUMENT"
    documents: list[dict[str, Any]] = [
        {"_id": "a", "text": "x", "metadata": {"relevant_to": "LEAKEDQUERY"}, "qrels": "LEAK"},
        {"_id": gold, "title": "t", "text": "y", "score": "LEAKEDSCORE", "label": "LEAK"},
    ]
    queries: list[dict[str, Any]] = [
        {"_id": "q", "text": "z", "metadata": {gold: [{"label": "SUPPORTLEAK"}]}, "answer": gold},
        {"_id": "UNJUDGEDLEAK", "text": "a train query that LEAKS"},
    ]
    write_beir(tmp_path / "toy", documents=documents, queries=queries, qrels=f"q\t{gold}\t4711\n")
    dataset = load_beir(tmp_path / "toy", name="toy", qrels_split="test")
    report = write_blind_inputs(dataset, ["q"], OPTIONS, tmp_path / "in")
    assert sorted(read(report)) == ["corpus.jsonl", "queries.jsonl", "task.json"]
    for name, data in read(report).items():
        for leak in (b"LEAK", b"SUPPORT", b"metadata", b"qrels", b"label", b"answer", b"4711"):
            assert leak not in data, (name, leak)
        if name != "corpus.jsonl":
            assert gold.encode() not in data
    for line in read(report)["corpus.jsonl"].splitlines():
        assert list(json.loads(line)) == ["_id", "title", "text"]
    for line in read(report)["queries.jsonl"].splitlines():
        assert list(json.loads(line)) == ["_id", "text"]


def test_scifact_queries_name_no_gold_document(scifact_root: Path, tmp_path: Path) -> None:
    dataset = load_beir(scifact_root / "scifact", name="scifact", qrels_split="test")
    published = (scifact_root / "scifact" / "queries.jsonl").read_bytes()
    asked = list(dataset.queries)
    report = write_blind_inputs(dataset, asked, OPTIONS, tmp_path / "in")
    lines = read(report)["queries.jsonl"].splitlines()
    assert len(lines) == 300
    assert all(list(json.loads(line)) == ["_id", "text"] for line in lines)
    leaked = 0
    for line in published.splitlines():
        row = json.loads(line)
        leaked += bool(set(row["metadata"]) & set(dataset.qrels.get(row["_id"], ())))
    assert leaked == 188  # what would have crossed
    gold = {document for grades in dataset.qrels.values() for document in grades}
    assert not any(document.encode() in line for line in lines for document in gold)


def test_the_bytes_depend_on_the_arguments_alone(dataset: RetrievalDataset, tmp_path: Path) -> None:
    one = write_blind_inputs(dataset, ["q1"], OPTIONS, tmp_path / "one")
    two = write_blind_inputs(dataset, ["q1"], OPTIONS, tmp_path / "two")
    assert one.files == two.files
    assert read(one) == read(two)


def test_a_corpus_is_written_once_and_linked(dataset: RetrievalDataset, tmp_path: Path) -> None:
    corpus = write_blind_corpus(dataset, tmp_path / "corpus.jsonl")
    reports = [
        write_blind_inputs(dataset, [query], OPTIONS, tmp_path / query, shared=corpus)
        for query in ("q1", "q2")
    ]
    assert corpus.path.stat().st_nlink == 3
    plain = write_blind_inputs(dataset, ["q1"], OPTIONS, tmp_path / "plain")
    assert reports[0].files == plain.files
    assert mode(reports[1].folder / "corpus.jsonl") == 0o444
    for report in reports:
        purge(report.folder)
    assert corpus.path.stat().st_nlink == 1


def test_where_nothing_can_be_linked_the_corpus_is_copied(
    dataset: RetrievalDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    corpus = write_blind_corpus(dataset, tmp_path / "corpus.jsonl")
    monkeypatch.setattr(os, "link", no_link)
    report = write_blind_inputs(dataset, ["q1"], OPTIONS, tmp_path / "in", shared=corpus)
    assert read(report)["corpus.jsonl"] == corpus.path.read_bytes()
    assert mode(report.folder / "corpus.jsonl") == 0o444


@pytest.mark.parametrize("ids", [["q1", "q1"], ["q3"], ["nobody"], ["q1", "q9"]])
def test_only_judged_queries_are_asked_each_once(
    dataset: RetrievalDataset, tmp_path: Path, ids: list[str]
) -> None:
    with pytest.raises(ValueError, match="judged queries"):
        write_blind_inputs(dataset, ids, OPTIONS, tmp_path / "in")
    assert not (tmp_path / "in").exists()


def test_a_failure_leaves_no_folder_behind(dataset: RetrievalDataset, tmp_path: Path) -> None:
    (tmp_path / "toy" / "corpus.jsonl").write_bytes(jsonl(DOCUMENTS[::-1]))
    with pytest.raises(DataError, match=r"data\.changed"):
        write_blind_inputs(dataset, ["q1"], OPTIONS, tmp_path / "in")
    assert not (tmp_path / "in").exists()


def test_an_occupied_or_impossible_folder_is_a_storage_error(
    dataset: RetrievalDataset, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mine").write_text("kept")
    for folder in (tmp_path / "in", tmp_path / "absent" / "in"):
        with pytest.raises(StorageError):
            write_blind_inputs(dataset, ["q1"], OPTIONS, folder)
    assert (tmp_path / "in" / "mine").read_text() == "kept"


def test_any_text_survives_the_way_to_the_method(tmp_path: Path) -> None:
    text = (
        '\u202e\u05e9\u05dc\u05d5\u05dd\u202c \U0001d518 \U0001fad6 \u2028\u2029\x00\x7f\r\n\t"\\'
    )
    write_beir(
        tmp_path / "toy",
        documents=[{"_id": "\U0001d7d9", "title": text, "text": text}],
        queries=[{"_id": "1", "text": text}],
        qrels="1\t\U0001d7d9\t1\n",
    )
    dataset = load_beir(tmp_path / "toy", name="toy", qrels_split="test")
    files = read(write_blind_inputs(dataset, ["1"], OPTIONS, tmp_path / "in"))
    expected = {"_id": "\U0001d7d9", "title": text, "text": text}
    assert files["corpus.jsonl"].count(b"\n") == 1
    assert b"\r" not in files["corpus.jsonl"]
    assert json.loads(files["corpus.jsonl"]) == expected
    assert json.loads(files["queries.jsonl"]) == {"_id": "1", "text": text}


def test_a_document_of_five_megabytes_crosses_whole(tmp_path: Path) -> None:
    text = "\u05d0" * 2_500_000
    write_beir(
        tmp_path / "toy",
        documents=[{"_id": "d", "title": "", "text": text}],
        queries=QUERIES[:1],
        qrels="q1\td\t1\n",
    )
    dataset = load_beir(tmp_path / "toy", name="toy", qrels_split="test")
    files = read(write_blind_inputs(dataset, ["q1"], OPTIONS, tmp_path / "in"))
    assert json.loads(files["corpus.jsonl"])["text"] == text


def test_discarding_touches_nothing_but_a_folder(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "file").write_text("kept")
    for name in ("link", "file", "absent"):
        discard_inputs(tmp_path / name)
    assert (tmp_path / "kept").is_dir()
    assert (tmp_path / "file").exists()


def test_tasks_are_found_by_name() -> None:
    task_module("retrieval").check_metrics(("ndcg_at_10", "map"), 10)
    with pytest.raises(ProtocolError) as caught:
        task_module("nothing")
    assert (caught.value.code, caught.value.fix) == (
        "protocol.unknown-task",
        "use one of: retrieval, pair, expertise",
    )
