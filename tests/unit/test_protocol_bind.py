"""Binding data to a protocol: any changed byte is refused, by file and both digests."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from unittest import mock

import pytest

from runner.datasets.beir import RetrievalDataset
from runner.errors import DataError, Where
from runner.protocol.bind import bind, locate
from runner.protocol.fingerprint import fingerprint_of
from runner.protocol.freeze import freeze
from runner.protocol.load import Protocol, load_protocol
from runner.protocol.store import write_frozen
from runner.tasks import task_module
from tests.unit.beir_files import DOCUMENTS, QRELS, QUERIES, jsonl, write_beir
from tests.unit.protocol_samples import MANIFEST, frozen

BENCHMARKS = Path(__file__).resolve().parents[2] / "manifests" / "benchmarks"
FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")


@pytest.fixture
def protocol(tmp_path: Path) -> Protocol:
    return frozen(tmp_path)


def refused(protocol: Protocol, root: Path | None) -> DataError:
    with pytest.raises(DataError) as caught:
        bind(protocol, root)
    return caught.value


def assert_names(error: DataError, protocol: Protocol, folder: Path, name: str) -> None:
    """The error names the file, the frozen digest and the one found."""
    frozen_file = next(f for f in protocol.dataset("toy").files if f.name == name)
    assert error.code == "data.changed"
    assert name in error.message
    assert frozen_file.sha256 in error.message
    assert hashlib.sha256((folder / name).read_bytes()).hexdigest() in error.message
    assert error.where is not None
    assert error.where.file == str(folder / name)


def test_the_frozen_data_are_returned_with_their_splits(protocol: Protocol, tmp_path: Path) -> None:
    datasets = bind(protocol, tmp_path)
    assert list(datasets) == ["toy"]
    dataset = datasets["toy"]
    assert isinstance(dataset, RetrievalDataset)
    content = task_module("retrieval").content_of(dataset)
    assert fingerprint_of(content) == protocol.dataset("toy").fingerprint
    splits = task_module("retrieval").split_ids(dataset, protocol.calibration)
    assert set(splits["all"]) == {"q1", "q2", "q4"}
    assert splits["calibration"] + splits["heldout"] == splits["all"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("bit", [0x01, 0x20, 0x80])
def test_one_bit_changed_anywhere_is_refused(
    protocol: Protocol, tmp_path: Path, name: str, place: str, bit: int
) -> None:
    path = tmp_path / "toy" / name
    data = bytearray(path.read_bytes())
    position = {"first": 0, "middle": len(data) // 2, "last": len(data) - 1}[place]
    data[position] ^= bit
    path.write_bytes(bytes(data))
    assert_names(refused(protocol, tmp_path), protocol, tmp_path / "toy", name)


@pytest.mark.parametrize("name", FILES)
def test_a_byte_more_or_less_is_refused(protocol: Protocol, tmp_path: Path, name: str) -> None:
    path = tmp_path / "toy" / name
    whole = path.read_bytes()
    for data in (whole + b"\n", whole[:-1], b""):
        path.write_bytes(data)
        assert_names(refused(protocol, tmp_path), protocol, tmp_path / "toy", name)


def test_swapped_labels_are_refused(protocol: Protocol, tmp_path: Path) -> None:
    swapped = QRELS.replace("q1\td1", "q1\td2").replace("q2\td2", "q2\td1")
    write_beir(tmp_path / "toy", qrels=swapped)
    error = refused(protocol, tmp_path)
    assert_names(error, protocol, tmp_path / "toy", "qrels/test.tsv")
    assert "content is the same" not in error.message


def test_the_qrels_of_another_split_are_refused(protocol: Protocol, tmp_path: Path) -> None:
    write_beir(tmp_path / "toy", qrels="q1\td1\t1\n", split="train")
    folder = tmp_path / "toy" / "qrels"
    (folder / "train.tsv").replace(folder / "test.tsv")
    assert_names(refused(protocol, tmp_path), protocol, tmp_path / "toy", "qrels/test.tsv")


def test_a_crlf_twin_is_refused_and_recognised(protocol: Protocol, tmp_path: Path) -> None:
    write_beir(tmp_path / "toy", qrels=QRELS.replace("\n", "\r\n"))
    error = refused(protocol, tmp_path)
    assert_names(error, protocol, tmp_path / "toy", "qrels/test.tsv")
    assert "content is the same" in error.message


def test_an_added_document_is_refused(protocol: Protocol, tmp_path: Path) -> None:
    added = [*DOCUMENTS, {"_id": "d5", "title": "", "text": "Milk is poured."}]
    write_beir(tmp_path / "toy", documents=added)
    assert_names(refused(protocol, tmp_path), protocol, tmp_path / "toy", "corpus.jsonl")


def test_a_duplicated_key_is_refused_as_a_change_with_its_symptom(
    protocol: Protocol, tmp_path: Path
) -> None:
    doubled = jsonl(DOCUMENTS).replace(b'"title"', b'"title": "", "title"', 1)
    write_beir(tmp_path / "toy", documents=doubled)
    error = refused(protocol, tmp_path)
    assert_names(error, protocol, tmp_path / "toy", "corpus.jsonl")
    assert "data.duplicate-key" in error.message


def test_changes_of_several_files_are_all_named(protocol: Protocol, tmp_path: Path) -> None:
    write_beir(tmp_path / "toy", documents=DOCUMENTS[::-1], queries=QUERIES[::-1])
    error = refused(protocol, tmp_path)
    assert "corpus.jsonl has sha256" in error.message
    assert "queries.jsonl has sha256" in error.message
    assert "qrels/test.tsv" not in error.message


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused_as_missing(
    protocol: Protocol, tmp_path: Path, name: str
) -> None:
    (tmp_path / "toy" / name).unlink()
    error = refused(protocol, tmp_path)
    assert (error.code, "--data-root" in error.fix) == ("data.missing", True)


def test_a_link_out_of_the_root_is_refused_although_its_bytes_are_right(
    protocol: Protocol, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    write_beir(root / "toy")
    (root / "toy" / "corpus.jsonl").unlink()
    (root / "toy" / "corpus.jsonl").symlink_to(tmp_path / "toy" / "corpus.jsonl")
    assert refused(protocol, root).code == "data.outside-root"


def test_a_fifo_never_blocks(protocol: Protocol, tmp_path: Path) -> None:
    path = tmp_path / "toy" / "corpus.jsonl"
    path.unlink()
    os.mkfifo(path)
    assert refused(protocol, tmp_path).code == "data.not-a-file"


def test_without_any_root_the_error_says_how_to_give_one(protocol: Protocol) -> None:
    error = refused(protocol, None)
    assert error.code == "data.no-root"
    assert "DATA_ROOT" in error.fix


def test_without_data_the_error_says_where_they_are_published(
    protocol: Protocol, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for root in (None, tmp_path / "empty"):
        fix = refused(protocol, root).fix
        source = protocol.datasets[0].source
        assert source["url"] in fix
        assert source["revision"] in fix
        assert f"{', '.join(FILES)} into <data root>/toy/" in fix


def test_a_data_root_that_is_not_there_is_said_to_be_missing(
    protocol: Protocol, tmp_path: Path
) -> None:
    error = refused(protocol, tmp_path / "nowhere")
    assert (error.code, error.where) == ("data.missing", Where(file=str(tmp_path / "nowhere")))
    assert error.message.startswith("no such folder")
    assert protocol.datasets[0].source["url"] in error.fix


@pytest.mark.parametrize("name", ["irplag", "reviewer-gold", "reviewer-gold-fulltext"])
def test_data_that_a_command_lays_out_name_it(name: str, tmp_path: Path) -> None:
    shipped = load_protocol(BENCHMARKS / f"{name}-v1.protocol.json")
    command = name.removesuffix("-fulltext")
    assert f"`sealbench data {command} FOLDER --out DIR`" in refused(shipped, tmp_path).fix


def test_a_local_protocol_knows_its_folders_and_a_data_root_wins(tmp_path: Path) -> None:
    write_beir(tmp_path / "data" / "toy")
    files = write_frozen(*freeze(MANIFEST, tmp_path / "data"), tmp_path)
    local = load_protocol(files.local)
    assert bind(local, None)["toy"].folder == (tmp_path / "data" / "toy").resolve()
    write_beir(tmp_path / "other" / "toy", documents=DOCUMENTS[::-1])
    assert refused(local, tmp_path / "other").code == "data.changed"


@pytest.mark.parametrize("name", ["..", "../toy", "/toy", "a/../../toy", "toy/", "toy\n", ""])
def test_no_dataset_name_leaves_the_data_root(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="bad-name"):
        locate(name, tmp_path)


def test_a_loader_that_reads_the_same_bytes_differently_is_noticed(
    protocol: Protocol, tmp_path: Path
) -> None:
    with mock.patch("runner.datasets.beir.query_line", return_value=b"another reading\n"):
        error = refused(protocol, tmp_path)
    assert error.code == "data.read-differently"
    assert "fingerprint" in error.message
