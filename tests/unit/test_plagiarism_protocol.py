"""Freezing plagiarism benchmarks: policies, identities, and every refusal of the specification."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.errors import DataError, ManifestError, ProtocolError, SealbenchError
from runner.manifest import load_freeze_manifest
from runner.protocol.attach import attach
from runner.protocol.bind import bind
from runner.protocol.freeze import freeze
from runner.protocol.load import load_protocol
from runner.protocol.store import write_frozen, write_local
from tests.plagiarism import Bench, bench
from tests.unit.code_files import (
    CONTENT,
    DISJOINT,
    FITTED,
    PAIR_COLUMNS,
    SOURCES,
    VALIDATION_PAIRS,
    VALIDATION_SOURCES,
    freeze_text,
    table,
    write_pairs,
    write_toy,
    write_validation,
)

VALIDATED = "validation_path: validation"


def frozen_id(root: Path, text: str) -> str:
    path = root / "freeze.yaml"
    path.write_text(text, encoding="utf-8")
    _, local = freeze(load_freeze_manifest(path), root)
    return str(local["protocol_id"])


def refused(root: Path, text: str) -> SealbenchError:
    with pytest.raises(SealbenchError) as caught:
        frozen_id(root, text)
    assert caught.value.fix
    return caught.value


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "data")


def test_the_protocol_holds_policies_and_counts_and_no_path(tmp_path: Path) -> None:
    made = bench(tmp_path)
    text = made.protocol_path.read_text()
    assert str(tmp_path) not in text
    assert "toy/pair" not in text
    rules = made.protocol.rules
    assert rules["ids"] == "opaque"
    assert rules["independence"] == "by_groups"
    assert rules["threshold_policy"] == {"type": "fixed", "value": 0.5}
    assert made.protocol.dataset("toy-pair").counts["pairs"] == 4
    assert made.protocol.splits == ("all", "test")


def test_no_groups_no_claim_of_independence(tmp_path: Path) -> None:
    assert bench(tmp_path, split=CONTENT).protocol.rules["independence"] == "not_claimed"


def test_one_protocol_wherever_the_data_lie(tmp_path: Path, root: Path) -> None:
    there = write_toy(tmp_path / "elsewhere")
    shutil.move(there / "toy", there / "moved")
    text = freeze_text(root)
    assert frozen_id(root, text) == frozen_id(there, text.replace("path: toy/", "path: moved/"))


CHANGES: dict[str, tuple[str, str]] = {
    "seed": ("category:", "seed: 3\ncategory:"),
    "k": ("top_k: 3", "top_k: 5"),
    "metrics": (", accuracy", ""),
    "threshold": ("value: 0.5", "value: 0.6"),
    "split description": ("by assignment", "by course"),
    "group fields": ("group_fields: [group]", "group_fields: []"),
    "budget": ("wall: 1m", "wall: 2m"),
    "selection": ("all pairs", "all the pairs"),
    "name": ("name: toy-pair", "name: toy-pilot"),
    "language": ("code_language: java", "code_language: c"),
    "licence": ("CC0-1.0", "MIT"),
    "version": ('"1.0.0"', '"1.0.1"'),
    "revision": ("own:1", "own:2"),
    "split name": ("split: whole", "split: part"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_any_other_declaration_is_another_protocol(case: str, root: Path) -> None:
    old, new = CHANGES[case]
    text = freeze_text(root)
    if case == "group fields":
        text = text.replace("group_disjoint", "content_disjoint")
    changed = text.replace(old, new, 1)
    assert changed != text
    assert frozen_id(root, changed) != frozen_id(root, text)


REVISIONS = ["main", "HEAD", "latest", "origin/main", "v1", "v1.0.0", "f07e951", "master", "1.0"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_revision_that_can_move_is_refused(revision: str, root: Path) -> None:
    text = freeze_text(root).replace("own:1", f'"{revision}"', 1)
    error = refused(root, text)
    assert error.code == "manifest.mutable-revision"
    assert isinstance(error, ManifestError)


REFUSALS: dict[str, tuple[str, str, str]] = {
    "an unknown key": ("similarity_options:", "similarity_option:", "schema.unknown-key"),
    "an unknown option": ("code_language:", "code_lang:", "schema.unknown-key"),
    "an unknown policy": ("fixed, value: 0.5", "guessed", "schema.value"),
    "a fixed threshold of none": ("fixed, value: 0.5", "fixed", "schema.missing-key"),
    "a threshold above 1": ("value: 0.5", "value: 1.5", "schema.bound"),
    "an absolute path": ("path: toy/pair", "path: /toy/pair", "schema.pattern"),
    "a parent path": ("path: toy/pair", "path: ../toy/pair", "schema.pattern"),
    "an unknown metric": ("auroc", "auc", "metric.unknown"),
    "a metric beyond k": ("ndcg_at_3", "ndcg_at_9", "metric.beyond-top-k"),
    "a hash split": (
        "budget:",
        "splits: {algorithm: sha256-id-order, calibration: 1}\nbudget:",
        "protocol.bad-calibration",
    ),
    "disjoint groups of no field": ("fields: [group]", "fields: []", "protocol.split-policy"),
    "a missing group column": ("[group]", "[course]", "protocol.missing-groups"),
    "no data": ("path: toy/pair", "path: toy/nowhere", "data.missing"),
    "other counts": ("split: whole", "expect: {pairs: 5}", "protocol.wrong-shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_a_declaration_that_makes_no_protocol_is_refused(case: str, root: Path) -> None:
    old, new, code = REFUSALS[case]
    text = freeze_text(root)
    assert old in text
    assert refused(root, text.replace(old, new, 1)).code == code


def test_a_misspelt_key_gets_a_suggestion(root: Path) -> None:
    error = refused(root, freeze_text(root).replace("source_checksum:", "source_checksums:", 1))
    assert "did you mean 'source_checksum'" in error.message


def test_the_source_checksum_is_verified(root: Path) -> None:
    text = freeze_text(root)
    path = root / "toy" / "pair" / "pairs.csv"
    path.write_bytes(path.read_bytes().replace(b"g2", b"g3"))
    path.write_bytes(path.read_bytes().replace(b"g3-", b"g2-"))
    assert refused(root, text).code == "data.wrong-checksum"


def test_a_fitted_threshold_needs_validation_pairs_of_both_classes(root: Path) -> None:
    assert refused(root, freeze_text(root, threshold=FITTED)).code == "protocol.no-validation"
    write_validation(root / "toy" / "pair", VALIDATION_PAIRS[:1])
    text = freeze_text(root, threshold=FITTED, extra=VALIDATED)
    assert refused(root, text).code == "protocol.no-validation"


Write = Callable[[Path], object]


def same_content(folder: Path) -> None:
    """A validation source that differs from a test source by its line ends only."""
    twin = SOURCES["g1-orig"].replace(b"\n", b"  \r\n\r\n")
    write_validation(folder, sources={**VALIDATION_SOURCES, "v-orig": twin})


def same_group(folder: Path) -> None:
    write_validation(folder, [(*row[:4], "g1") for row in VALIDATION_PAIRS])


def blank_group(folder: Path) -> None:
    write_validation(folder, [(*row[:4], " ") for row in VALIDATION_PAIRS])


def no_group(folder: Path) -> None:
    write_pairs(
        folder / "validation",
        [row[:4] for row in VALIDATION_PAIRS],
        VALIDATION_SOURCES,
        PAIR_COLUMNS[:4],
    )


def same_ids(folder: Path) -> None:
    write_validation(folder, [("t1", *row[1:]) for row in VALIDATION_PAIRS[:1]])


OVERLAPS: dict[str, tuple[Write, str, str]] = {
    "content": (same_content, "protocol.overlapping-content", DISJOINT),
    "content without groups": (same_content, "protocol.overlapping-content", CONTENT),
    "a group": (same_group, "protocol.overlapping-groups", DISJOINT),
    "a blank group": (blank_group, "protocol.blank-group", DISJOINT),
    "no group column": (no_group, "data.group-columns", DISJOINT),
    "a pair id": (same_ids, "data.duplicate-id", DISJOINT),
}


@pytest.mark.parametrize("threshold", [FITTED, "{type: fixed, value: 0.5}"])
@pytest.mark.parametrize("case", OVERLAPS)
def test_validation_and_test_are_kept_apart_whatever_the_threshold(
    case: str, threshold: str, root: Path
) -> None:
    write, code, split = OVERLAPS[case]
    write(root / "toy" / "pair")
    text = freeze_text(root, split=split, threshold=threshold, extra=VALIDATED)
    assert refused(root, text).code == code


def test_content_disjoint_allows_a_shared_group(root: Path) -> None:
    same_group(root / "toy" / "pair")
    frozen_id(root, freeze_text(root, split=CONTENT, extra=VALIDATED))


def test_a_blank_group_of_a_test_pair_is_refused_without_validation(root: Path) -> None:
    path = root / "toy" / "pair" / "pairs.csv"
    path.write_bytes(path.read_bytes().replace(b",1,g2", b",1,"))
    assert refused(root, freeze_text(root)).code == "protocol.blank-group"


# --- binding ---------------------------------------------------------------------------------


@pytest.fixture
def frozen(tmp_path: Path) -> Bench:
    return bench(tmp_path)


def changed(frozen: Bench, name: str, data: bytes) -> DataError:
    (frozen.data_root / "toy" / name).write_bytes(data)
    with pytest.raises(DataError) as caught:
        bind(frozen.protocol, frozen.data_root)
    return caught.value


def test_data_are_found_beside_each_other_in_their_collection(frozen: Bench) -> None:
    assert set(bind(frozen.protocol, frozen.data_root)) == {"toy-pair", "toy-retrieval"}


def test_a_changed_source_is_refused_and_named(frozen: Bench) -> None:
    error = changed(frozen, "pair/sources/s0.java", b"int other;\n")
    assert error.code == "data.changed"
    assert "s0.java" in str(error.where)


def test_a_crlf_twin_is_another_dataset(frozen: Bench) -> None:
    folder = frozen.data_root / "toy" / "pair"
    sources = {name: data.replace(b"\n", b"\r\n") for name, data in SOURCES.items()}
    write_pairs(folder, sources=sources)
    with pytest.raises(DataError) as caught:
        bind(frozen.protocol, frozen.data_root)
    assert caught.value.code == "data.changed"
    assert "files.csv" in caught.value.message


def test_changed_labels_are_refused_and_shuffled_rows_are_not(frozen: Bench) -> None:
    path = frozen.data_root / "toy" / "pair" / "pairs.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *reversed(lines[1:])]))
    again = bind(frozen.protocol, frozen.data_root)["toy-pair"]
    assert again.files == frozen.protocol.dataset("toy-pair").files
    error = changed(frozen, "pair/pairs.csv", path.read_bytes().replace(b",0,", b",1,", 1))
    assert "pairs.csv" in error.message


def test_bind_writes_the_local_form_and_refuses_other_data(frozen: Bench, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(frozen.data_root / "toy", moved)
    places = {"toy-pair": Path("pair"), "toy-retrieval": Path("retrieval")}
    local = attach(frozen.protocol, moved, places)
    path = write_local(local, tmp_path / "toy.local.json")
    bound = load_protocol(path)
    assert bound.protocol_id == frozen.protocol.protocol_id
    assert set(bind(bound, None)) == set(places)
    with pytest.raises(ProtocolError, match="no dataset"):
        attach(frozen.protocol, moved, {"toy-pear": Path("pair")})
    swapped = {"toy-pair": Path("retrieval"), "toy-retrieval": Path("pair")}
    with pytest.raises(DataError):
        attach(frozen.protocol, moved, swapped)


def test_freezing_again_is_the_same_and_another_benchmark_may_not_take_the_name(
    frozen: Bench,
) -> None:
    path = frozen.folder / "toy-v1.yaml"
    protocol, local = freeze(load_freeze_manifest(path), frozen.data_root)
    write_frozen(protocol, local, frozen.protocol_path.parent)
    path.write_text(path.read_text().replace("top_k: 3", "top_k: 4"))
    protocol, local = freeze(load_freeze_manifest(path), frozen.data_root)
    with pytest.raises(SealbenchError) as caught:
        write_frozen(protocol, local, frozen.protocol_path.parent)
    assert caught.value.code == "storage.other-protocol"


def test_a_protocol_that_contradicts_its_validation_is_refused(tmp_path: Path) -> None:
    made = bench(tmp_path, validation=True, threshold=FITTED)
    document = json.loads(made.protocol_path.read_bytes())
    entry = document["datasets"][0]
    assert set(entry["splits"]) == {"all", "validation", "test"}
    assert entry["counts"]["validation_pairs"] == 2
    assert made.protocol.splits == ("all", "test")


def test_a_table_helper_writes_what_the_loader_reads() -> None:
    assert table(("a", "b"), [("1", "x,y")]) == b'a,b\n1,"x,y"\n'
