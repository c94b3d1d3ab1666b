"""Freezing: same content, same identity, wherever it lies; other content, another identity."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from runner.canonical import canonical_bytes, digest_of
from runner.errors import DataError, ProtocolError, SealbenchError, StorageError
from runner.manifest import load_freeze_manifest
from runner.model import Limits
from runner.protocol.bind import bind
from runner.protocol.fingerprint import fingerprint_of
from runner.protocol.freeze import freeze
from runner.protocol.load import load_protocol
from runner.protocol.policies import check_query_policy, check_revision
from runner.protocol.store import write_frozen
from runner.schemas import iter_faults
from runner.tasks import task_module
from tests.unit.beir_files import DOCUMENTS, QRELS, QUERIES, jsonl, write_beir
from tests.unit.protocol_samples import MANIFEST, frozen, manifest_with

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "manifests" / "benchmarks"


def test_a_protocol_holds_what_was_declared_and_what_was_found(tmp_path: Path) -> None:
    write_beir(tmp_path / "toy")
    protocol, local = freeze(MANIFEST, tmp_path)
    assert list(iter_faults("protocol", protocol, reference=True)) == []
    assert list(iter_faults("local-protocol", local, reference=True)) == []
    entry = protocol["datasets"][0]
    assert entry["counts"] == {"documents": 4, "queries": 3, "judgments": 4, "positives": 3}
    assert entry["queries_without_positives"] == ["q4"]
    assert {name: fact["queries"] for name, fact in entry["splits"].items()} == {
        "all": 3,
        "calibration": 1,
        "heldout": 2,
    }
    assert [file["name"] for file in entry["files"]] == [
        "corpus.jsonl",
        "queries.jsonl",
        "qrels/test.tsv",
    ]
    assert local["protocol_id"] == digest_of(protocol)
    assert local["roots"] == {"toy": str(tmp_path.resolve() / "toy")}


def test_no_text_label_or_folder_enters_a_protocol(tmp_path: Path) -> None:
    write_beir(tmp_path / "toy")
    text = canonical_bytes(freeze(MANIFEST, tmp_path)[0]).decode()
    assert str(tmp_path) not in text
    for word in ("steeped", "coffee", "SUPPORT", "gold", '"d1"', '"q1"'):
        assert word not in text


def test_the_identity_does_not_depend_on_the_place(tmp_path: Path) -> None:
    one = frozen(tmp_path / "one")
    two = frozen(tmp_path / "somewhere" / "else")
    assert one.protocol_id == two.protocol_id
    assert one.raw == two.raw


def changed_files() -> dict[str, dict[str, Any]]:
    documents = [dict(row) for row in DOCUMENTS]
    documents[0]["text"] = "Green tea is steeped!"
    metadata = [dict(row) for row in QUERIES]
    metadata[0]["metadata"] = {}
    return {
        "one character of a document": {"documents": documents},
        "documents in another order": {"documents": DOCUMENTS[::-1]},
        "one more document": {"documents": [*DOCUMENTS, {"_id": "d5", "title": "", "text": ""}]},
        "one more blank": {"documents": jsonl(DOCUMENTS).replace(b'": "', b'":  "', 1)},
        "no final line feed": {"documents": jsonl(DOCUMENTS).rstrip(b"\n")},
        "metadata that no method sees": {"queries": metadata},
        "a query that nobody judged": {"queries": [*QUERIES, {"_id": "q9", "text": "x"}]},
        "CRLF qrels": {"qrels": QRELS.replace("\n", "\r\n")},
        "no header": {"qrels": QRELS.split("\n", 1)[1]},
        "another grade": {"qrels": QRELS.replace("q2\td2\t1", "q2\td2\t2")},
        "swapped labels": {"qrels": QRELS.replace("q1\td1", "q1\td2").replace("q2\td2", "q2\td1")},
        "other row order": {
            "qrels": QRELS.replace("q1\td1\t2\nq1\td3\t1\n", "q1\td3\t1\nq1\td1\t2\n")
        },
    }


@pytest.mark.parametrize("what", changed_files())
def test_any_change_of_the_data_is_another_dataset(tmp_path: Path, what: str) -> None:
    before = frozen(tmp_path / "before")
    write_beir(tmp_path / "after" / "toy", **changed_files()[what])
    after = frozen(tmp_path / "after", option_expect={"queries": 3})
    assert after.dataset("toy").fingerprint != before.dataset("toy").fingerprint
    assert after.protocol_id != before.protocol_id


@pytest.mark.parametrize("what", ["CRLF qrels", "no header", "other row order", "one more blank"])
def test_a_twin_in_another_format_has_the_same_payload(tmp_path: Path, what: str) -> None:
    write_beir(tmp_path / "twin" / "toy", **changed_files()[what])
    twin, plain = frozen(tmp_path / "twin"), frozen(tmp_path / "plain")
    assert twin.dataset("toy").payload == plain.dataset("toy").payload


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "1.0.1"},
        {"metrics": ("ndcg_at_10", "recall_at_1")},
        {"top_k": 11},
        {"seed": 1},
        {"calibration": None},
        {"rule_queries_without_positives": "exclude"},
        {"budget": Limits(wall_ms=1)},
        {"dataset_selection": "Other words."},
    ],
)
def test_any_change_of_the_rules_is_another_protocol(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    plain, other = frozen(tmp_path), frozen(tmp_path, **changes)
    assert plain.protocol_id != other.protocol_id
    assert plain.dataset("toy").fingerprint == other.dataset("toy").fingerprint


def test_another_choice_of_qrels_is_another_dataset(tmp_path: Path) -> None:
    write_beir(tmp_path / "toy", split="dev")
    dev = frozen(tmp_path, option_qrels="dev")
    write_beir(tmp_path / "toy")
    assert dev.dataset("toy").fingerprint != frozen(tmp_path).dataset("toy").fingerprint


@pytest.mark.parametrize(
    ("changes", "error", "code"),
    [
        ({"metrics": ("ndcg_at_10", "bleu")}, ProtocolError, "metric.unknown"),
        ({"metrics": ("ndcg_at_10", "recall_at_0")}, ProtocolError, "metric.unknown"),
        (
            {"metrics": ("ndcg_at_10", "recall_at_11")},
            ProtocolError,
            "metric.beyond-top-k",
        ),
        ({"metrics": ("ndcg_at_10",) * 2}, ProtocolError, "protocol.inconsistent"),
        ({"primary_metric": "mrr_at_10"}, ProtocolError, "protocol.inconsistent"),
        ({"calibration": 3}, ProtocolError, "protocol.bad-calibration"),
        ({"split_algorithm": "random"}, ProtocolError, "protocol.unknown-split-algorithm"),
        (
            {"rule_queries_without_positives": "drop"},
            ProtocolError,
            "protocol.unknown-query-policy",
        ),
        ({"category": "pair"}, ProtocolError, "protocol.unknown-category"),
        ({"version": "1"}, ProtocolError, "schema.pattern"),
        ({"datasets": MANIFEST.datasets * 2}, ProtocolError, "protocol.inconsistent"),
        ({"dataset_task": "tables"}, ProtocolError, "protocol.unknown-task"),
        ({"dataset_format": "csv"}, ProtocolError, "protocol.unknown-format"),
        ({"dataset_source_revision": "main"}, ProtocolError, "protocol.mutable-revision"),
        ({"dataset_selection": " "}, ProtocolError, "protocol.no-selection"),
        ({"option_expect": {"documents": 5}}, DataError, "data.wrong-shape"),
        ({"option_expect": {"queries": 4}}, DataError, "data.wrong-shape"),
        ({"dataset_files": {"corpus.jsonl": "0" * 64}}, DataError, "data.changed"),
        ({"dataset_files": {"qrels/train.tsv": "0" * 64}}, DataError, "data.unknown-file"),
        ({"dataset_name": "other"}, DataError, "data.missing"),
        ({"dataset_name": "../toy"}, DataError, "data.bad-name"),
        ({"option_qrels": "../qrels/test"}, DataError, "data.bad-name"),
        ({"option_qrels": "train"}, DataError, "data.missing"),
    ],
)
def test_what_makes_no_protocol_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[SealbenchError], code: str
) -> None:
    write_beir(tmp_path / "toy")
    with pytest.raises(error) as caught:
        freeze(manifest_with(**changes), tmp_path)
    assert caught.value.code == code
    assert caught.value.fix


@pytest.mark.parametrize(
    "revision",
    [
        "0123456789abcdef0123456789abcdef01234567",
        "git:0123456789abcdef0123456789abcdef01234567",
        "sha256:" + "0f" * 32,
        "doi:10.5281/zenodo.4599283",
        "own:1.0.0",
    ],
)
def test_revisions_that_cannot_move(revision: str) -> None:
    assert check_revision(revision, "toy") == revision


@pytest.mark.parametrize(
    "revision",
    [
        "",
        "main",
        "HEAD",
        "latest",
        "v1.0",
        "1.0.0",
        "0123abc",
        "0" * 39,
        "0" * 41,
        "0" * 40 + "\n",
        "sha256:12",
        "SHA256:" + "0" * 64,
        "doi:10.1/x",
        "doi:10.5281/ x",
        "own:",
    ],
)
def test_revisions_that_can_move_or_say_nothing(revision: str) -> None:
    with pytest.raises(ProtocolError, match="mutable-revision"):
        check_revision(revision, "toy")


def test_a_query_policy_needs_a_name_and_a_description() -> None:
    assert check_query_policy("exclude", ("q4",), "All.") == "exclude"
    with pytest.raises(ProtocolError, match="unknown-query-policy"):
        check_query_policy("hide", (), "All.")
    with pytest.raises(ProtocolError, match="no-selection"):
        check_query_policy("exclude", ("q4",), "")


# --- writing -------------------------------------------------------------------------------------


def test_files_are_canonical_private_and_written_whole(tmp_path: Path) -> None:
    write_beir(tmp_path / "data" / "toy")
    protocol, local = freeze(MANIFEST, tmp_path / "data")
    old = os.umask(0o077)
    try:
        files = write_frozen(protocol, local, tmp_path / "out")
    finally:
        os.umask(old)
    assert (files.portable.name, files.local.name) == ("toy-v1.protocol.json", "toy-v1.local.json")
    assert files.portable.read_bytes() == canonical_bytes(protocol)
    assert files.local.read_bytes() == canonical_bytes(local)
    assert stat.S_IMODE(files.portable.stat().st_mode) == 0o644
    assert stat.S_IMODE(files.local.stat().st_mode) == 0o600
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "toy-v1.local.json",
        "toy-v1.protocol.json",
    ]
    write_frozen(protocol, local, tmp_path / "out")  # the same again is no conflict


def test_another_protocol_under_the_same_name_is_kept_unless_forced(tmp_path: Path) -> None:
    write_beir(tmp_path / "data" / "toy")
    first = freeze(MANIFEST, tmp_path / "data")
    second = freeze(manifest_with(seed=1), tmp_path / "data")
    files = write_frozen(*first, tmp_path)
    before = (files.portable.read_bytes(), files.local.read_bytes())
    with pytest.raises(StorageError) as caught:
        write_frozen(*second, tmp_path)
    assert caught.value.code == "storage.other-protocol"
    assert "--force" in caught.value.fix
    assert (files.portable.read_bytes(), files.local.read_bytes()) == before
    write_frozen(*second, tmp_path, force=True)
    assert load_protocol(files.portable).seed == 1


def test_a_file_that_is_no_protocol_is_kept_unless_forced(tmp_path: Path) -> None:
    write_beir(tmp_path / "data" / "toy")
    both = freeze(MANIFEST, tmp_path / "data")
    (tmp_path / "toy-v1.local.json").write_text("my notes")
    with pytest.raises(StorageError, match="other-protocol"):
        write_frozen(*both, tmp_path)
    assert (tmp_path / "toy-v1.local.json").read_text() == "my notes"
    assert not (tmp_path / "toy-v1.protocol.json").exists()


def test_a_moved_data_root_renews_the_local_form(tmp_path: Path) -> None:
    write_beir(tmp_path / "data" / "toy")
    files = write_frozen(*freeze(MANIFEST, tmp_path / "data"), tmp_path)
    shutil.move(tmp_path / "data", tmp_path / "moved")
    write_frozen(*freeze(MANIFEST, tmp_path / "moved"), tmp_path)
    assert load_protocol(files.local).roots == {"toy": tmp_path.resolve() / "moved" / "toy"}


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    write_beir(tmp_path / "data" / "toy")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        write_frozen(*freeze(MANIFEST, tmp_path / "data"), tmp_path / "file" / "out")


def test_a_disk_that_fills_up_leaves_the_old_protocol_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_beir(tmp_path / "data" / "toy")
    out = tmp_path / "out"
    write_frozen(*freeze(MANIFEST, tmp_path / "data"), out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError) as caught:
        write_frozen(*freeze(manifest_with(seed=1), tmp_path / "data"), out, force=True)
    assert caught.value.code == "storage.full"
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


# --- the published benchmarks --------------------------------------------------------------------


def test_the_quickstart_freezes_to_its_published_bytes() -> None:
    manifest = load_freeze_manifest(BENCHMARKS / "quickstart-v1.yaml")
    protocol, _ = freeze(manifest, ROOT / "manifests" / "data")
    published = BENCHMARKS / "quickstart-v1.protocol.json"
    assert canonical_bytes(protocol) == published.read_bytes()
    datasets = bind(load_protocol(published), ROOT / "manifests" / "data")
    assert (
        fingerprint_of(task_module("retrieval").content_of(datasets["quickstart-mini"]))
        == protocol["datasets"][0]["fingerprint"]
    )


def test_scifact_freezes_to_its_published_bytes(scifact_root: Path) -> None:
    started = time.process_time()
    manifest = load_freeze_manifest(BENCHMARKS / "scifact-retrieval-v1.yaml")
    protocol, _ = freeze(manifest, scifact_root)
    published = BENCHMARKS / "scifact-retrieval-v1.protocol.json"
    assert canonical_bytes(protocol) == published.read_bytes()
    bind(load_protocol(published), scifact_root)
    assert time.process_time() - started < 10  # CPU seconds; 0.5 where it was measured


def test_the_published_scifact_protocol_has_the_published_figures() -> None:
    document = json.loads((BENCHMARKS / "scifact-retrieval-v1.protocol.json").read_bytes())
    entry = document["datasets"][0]
    assert entry["counts"] == {
        "documents": 5183,
        "queries": 300,
        "judgments": 339,
        "positives": 339,
    }
    assert entry["splits"]["heldout"] == {
        "queries": 200,
        "ids_sha256": "38c686a8966f9a3bd5ac1988e1ce338be0ae53136875321a089cd2b124729283",
    }
    assert document["splits"]["calibration"] == 100
