"""Reading a protocol file: only its own canonical bytes, and nothing unproven."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.canonical import canonical_bytes, digest_of
from runner.errors import ProtocolError
from runner.model import Limits
from runner.protocol.fingerprint import fingerprint_of
from runner.protocol.freeze import freeze
from runner.protocol.load import load_protocol, parse_protocol
from tests.unit.beir_files import write_beir
from tests.unit.protocol_samples import MANIFEST, manifest_with

PATH = Path("toy-v1.protocol.json")
Document = dict[str, Any]


@pytest.fixture
def both(tmp_path: Path) -> tuple[Document, Document]:
    write_beir(tmp_path / "toy")
    return freeze(MANIFEST, tmp_path)


def refused(raw: bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        parse_protocol(raw, PATH)
    assert caught.value.fix
    assert caught.value.where is not None
    assert caught.value.where.file == str(PATH)
    return caught.value


def test_both_forms_give_the_same_protocol(both: tuple[Document, Document], tmp_path: Path) -> None:
    portable = parse_protocol(canonical_bytes(both[0]), PATH)
    local = parse_protocol(canonical_bytes(both[1]), PATH)
    assert portable.protocol_id == local.protocol_id == digest_of(both[0])
    assert portable.raw == local.raw == canonical_bytes(both[0])
    assert portable.document == local.document == both[0]
    assert portable.roots == {}
    assert local.roots == {"toy": tmp_path.resolve() / "toy"}


def test_the_view_has_what_the_document_says(both: tuple[Document, Document]) -> None:
    protocol = parse_protocol(canonical_bytes(both[0]), PATH)
    assert (protocol.benchmark_id, protocol.version, protocol.title) == ("toy-v1", "1.0.0", "Toy")
    assert (protocol.category, protocol.seed, protocol.top_k) == ("retrieval", 0, 10)
    assert protocol.metrics == ("ndcg_at_10", "recall_at_1", "mrr")
    assert protocol.splits == ("all", "calibration", "heldout")
    assert protocol.query_policy == "count_as_zero"
    assert protocol.budget == Limits()
    assert protocol.dataset("toy").splits["heldout"].queries == 2
    with pytest.raises(KeyError):
        protocol.dataset("tea")


def test_without_calibration_there_is_only_all(tmp_path: Path) -> None:
    write_beir(tmp_path / "toy")
    document, _ = freeze(manifest_with(calibration=None), tmp_path)
    protocol = parse_protocol(canonical_bytes(document), PATH)
    assert protocol.splits == ("all",)
    assert document["splits"] == {"algorithm": "sha256-id-order", "calibration": None}


SPELLINGS: dict[str, Callable[[bytes], bytes]] = {
    "final line feed": lambda raw: raw + b"\n",
    "indented": lambda raw: json.dumps(json.loads(raw), indent=1).encode(),
    "other key order": lambda raw: json.dumps(
        dict(reversed(json.loads(raw).items())), separators=(",", ":")
    ).encode(),
    "duplicate key": lambda raw: raw.replace(b'"seed":0', b'"seed":1,"seed":0'),
    "escaped": lambda raw: raw.replace(b"Toy", b"T\\u006fy"),
    "whole float": lambda raw: raw.replace(b'"seed":0', b'"seed":0.0'),
    "exponent": lambda raw: raw.replace(b'"top_k":10', b'"top_k":1e1'),
    "minus zero": lambda raw: raw.replace(b'"seed":0', b'"seed":-0'),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_another_spelling_of_the_same_document_is_refused(
    both: tuple[Document, Document], spelling: str
) -> None:
    for document in both:
        raw = SPELLINGS[spelling](canonical_bytes(document))
        assert refused(raw).code == "protocol.not-canonical"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "protocol.not-json"),
        (b"{", "protocol.not-json"),
        (b"\xff\xfe\xfd", "protocol.not-json"),
        ("{}".encode("utf-16"), "protocol.not-json"),
        (b"\xef\xbb\xbf{}", "protocol.not-json"),
        (b"[" * 100_000, "protocol.not-json"),
        (b"[]", "protocol.not-a-protocol"),
        (b"{}", "protocol.not-a-protocol"),
        (b'{"schema":"sealbench/plan/v1"}', "protocol.not-a-protocol"),
        (b'{"schema":["sealbench/protocol/v1"]}', "protocol.not-a-protocol"),
        (b'{"schema":"sealbench/protocol/v1"}', "schema.missing-key"),
        (b'{"schema":"sealbench/protocol/v1","x":NaN}', "schema.non-finite"),
        (b" " * ((16 << 20) + 1), "protocol.too-large"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_protocol_is_refused(raw: bytes, code: str) -> None:
    assert refused(raw).code == code


def dataset(document: Document) -> Document:
    entry: Document = document["datasets"][0]
    return entry


def refingerprint(document: Document) -> None:
    dataset(document)["fingerprint"] = fingerprint_of(dataset(document))


def set_count(document: Document, name: str, value: int) -> None:
    dataset(document)["counts"][name] = value
    refingerprint(document)


def swap_files(document: Document) -> None:
    dataset(document)["files"].reverse()
    refingerprint(document)


LIES: dict[str, tuple[Callable[[Document], object], str]] = {
    "changed size": (lambda d: dataset(d)["files"][0].update(size=1), "its fingerprint"),
    "changed label digest": (
        lambda d: dataset(d)["payload"].update(labels_sha256="0" * 64),
        "its fingerprint",
    ),
    "more positives than judgments": (lambda d: set_count(d, "positives", 9), "more positives"),
    "other number of queries": (lambda d: set_count(d, "queries", 4), "split 'all'"),
    "files in another order": (swap_files, "its files are not"),
    "calibration too small": (
        lambda d: dataset(d)["splits"]["calibration"].update(queries=2),
        "do not add up",
    ),
    "other calibration": (lambda d: d["splits"].update(calibration=2), "do not add up"),
    "no heldout": (lambda d: dataset(d)["splits"].pop("heldout"), "its splits are not"),
    "calibration undeclared": (lambda d: d["splits"].update(calibration=None), "its splits"),
    "unsorted queries": (
        lambda d: dataset(d).update(queries_without_positives=["q4", "q1"]),
        "not a sorted list",
    ),
    "dataset twice": (lambda d: d["datasets"].append(dataset(d)), "stands twice"),
    "metric twice": (lambda d: d["metrics"].append("mrr"), "stands twice"),
    "foreign primary metric": (lambda d: d.update(primary_metric="map"), "not among"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_protocol_that_contradicts_itself_is_refused(
    both: tuple[Document, Document], lie: str
) -> None:
    document = copy.deepcopy(both[0])
    change, words = LIES[lie]
    change(document)
    error = refused(canonical_bytes(document))
    assert error.code == "protocol.inconsistent"
    assert words in error.message


SHAPES: dict[str, Callable[[Document], object]] = {
    "unknown key": lambda d: d.update(extra=1),
    "unknown key of a dataset": lambda d: dataset(d).update(root="/data"),
    "short digest": lambda d: dataset(d)["files"][0].update(sha256="0" * 63),
    "upper-case digest": lambda d: dataset(d)["files"][0].update(sha256="A" * 64),
    "digest with a line feed": lambda d: dataset(d).update(fingerprint="sha256:" + "0" * 64 + "\n"),
    "file outside the folder": lambda d: dataset(d)["files"][0].update(name="../corpus.jsonl"),
    "absolute file": lambda d: dataset(d)["files"][2].update(name="/etc/passwd"),
    "traversing dataset": lambda d: dataset(d).update(name="../toy"),
    "dataset with a line feed": lambda d: dataset(d).update(name="toy\n"),
    "other tie rule": lambda d: d["rules"].update(tie="score_desc_id_desc"),
    "no budget": lambda d: d["budget"].update(memory_bytes=0),
    "true for a number": lambda d: d.update(seed=True),
    "negative seed": lambda d: d.update(seed=-1),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_document_that_does_not_fit_the_schema_is_refused(
    both: tuple[Document, Document], shape: str
) -> None:
    document = copy.deepcopy(both[0])
    SHAPES[shape](document)
    assert refused(canonical_bytes(document)).code.startswith("schema.")


def test_a_local_form_is_not_believed_either(both: tuple[Document, Document]) -> None:
    local = copy.deepcopy(both[1])
    local["protocol"]["seed"] = 1
    assert refused(canonical_bytes(local)).code == "protocol.wrong-id"
    local = copy.deepcopy(both[1])
    local["roots"]["tea"] = "/tea"
    assert refused(canonical_bytes(local)).code == "protocol.unknown-root"
    local = copy.deepcopy(both[1])
    local["roots"]["toy"] = "relative"
    assert refused(canonical_bytes(local)).code == "schema.pattern"


def test_a_missing_file_is_a_protocol_error(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(ProtocolError, match="missing"):
            load_protocol(path)
