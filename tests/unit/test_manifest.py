"""Manifests: what they become, and how every mistake is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import ManifestError
from runner.manifest import (
    lint_freeze_manifest,
    lint_run_manifest,
    load_freeze_manifest,
    load_run_manifest,
)
from runner.model import Limits, Outcome
from tests.unit.manifest_samples import FREEZE, RUN, digest, edited, write_run


def faults_of(folder: Path, text: str, kind: str = "run") -> list[tuple[str, int, int]]:
    """Code, line and column of every fault."""
    lint = lint_run_manifest if kind == "run" else lint_freeze_manifest
    _, faults = lint(write_run(folder, text))
    found = []
    for fault in faults:
        assert fault.where is not None
        assert fault.fix
        found.append((fault.code, fault.where.line or 0, fault.where.column or 0))
    return found


def test_a_run_manifest(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    manifest = load_run_manifest(path)
    assert manifest.raw == RUN.encode()
    assert manifest.path == path
    assert manifest.name == "toy-lexical"
    assert manifest.protocol == tmp_path / "toy-v1.protocol.json"
    assert (manifest.protocol_id, manifest.data_root) == (None, None)
    assert manifest.splits == ("all", "heldout")
    assert (manifest.seed, manifest.repeats, manifest.jobs) == (7, 2, 1)
    assert manifest.limits == {"wall_ms": 600_000, "memory_bytes": 1 << 30, "cpus_milli": 1000}
    okapi, mine = manifest.methods
    assert (okapi.name, okapi.image, okapi.method, okapi.command) == (
        "okapi",
        "lexical",
        None,
        None,
    )
    assert okapi.config == {"k1": 1.2}
    assert (okapi.cache, okapi.expect) == (None, Outcome.OK)
    assert mine.command == ("python3", "-m", "ranker")
    assert mine.limits == {"memory_bytes": 512 << 20, "pids": 64}
    assert (mine.waive, mine.expect) == (("swap",), Outcome.TIMEOUT)
    assert str(manifest.places.where("methods", 1, "limits", "pids")).startswith(f"{path}:16:")


def test_every_optional_key(tmp_path: Path) -> None:
    more = "output: 5MB, output_files: 7, logs: 64KiB, tmp: 1048576, shm: 1MiB"
    text = edited(
        RUN,
        ("seed:", f"protocol_id: {digest('9')}\ndata_root: ../data\njobs: 2\nwaive: [pids]\nseed:"),
        ("    image: lexical\n", "    image: lexical\n    method: okapi\n    cache: true\n"),
        ("wall: 10m", f"wall: 10m, grace: 2s, {more}"),
    )
    manifest = load_run_manifest(write_run(tmp_path, text))
    assert manifest.protocol_id == digest("9")
    assert manifest.data_root == tmp_path / "../data"
    assert (manifest.jobs, manifest.waive) == (2, ("pids",))
    assert (manifest.methods[0].method, manifest.methods[0].cache) == ("okapi", True)
    assert manifest.limits == {
        "wall_ms": 600_000,
        "grace_ms": 2_000,
        "output_bytes": 5_000_000,
        "output_files": 7,
        "log_bytes": 65_536,
        "tmp_bytes": 1_048_576,
        "shm_bytes": 1_048_576,
        "memory_bytes": 1 << 30,
        "cpus_milli": 1000,
    }


def test_defaults(tmp_path: Path) -> None:
    text = edited(RUN, ("seed: 7\n", ""), ("repeats: 2\n", ""))
    manifest = load_run_manifest(write_run(tmp_path, text))
    assert (manifest.seed, manifest.repeats, manifest.jobs) == (None, 1, 1)


@pytest.mark.parametrize(
    ("edit", "fault", "words"),
    [
        (("seed: 7", "sed: 7"), ("schema.unknown-key", 5, 1), "did you mean 'seed'"),
        (("    config: {k1", "    confg: {k1"), ("schema.unknown-key", 11, 5), "'config'"),
        (("wall: 10m", "wal: 10m"), ("schema.unknown-key", 7, 10), "did you mean 'wall'"),
        (("name: toy-lexical\n", ""), ("schema.missing-key", 1, 1), "'name' is missing"),
        (("    image: lexical\n", ""), ("schema.missing-key", 9, 5), "'image' is missing"),
        (("name: toy-lexical", "name: Toy"), ("schema.pattern", 2, 7), "'Toy'"),
        (("name: toy-lexical", "name: 1.5"), ("schema.type", 2, 7), "1.5"),
        (("sealbench/run/v1", "sealbench/run/v2"), ("schema.value", 1, 9), "sealbench/run/v1"),
        (("heldout", "heldot"), ("schema.value", 4, 15), "did you mean 'heldout'"),
        (("timeout", "time_out"), ("schema.value", 18, 13), "did you mean 'timeout'"),
        (("timeout", "cancelled"), ("schema.value", 18, 13), "cancelled"),
        (("[swap]", "[swp]"), ("schema.value", 17, 13), "did you mean 'swap'"),
        (("seed: 7", "seed: -1"), ("schema.bound", 5, 7), "-1"),
        (("seed: 7", "seed: 1.5"), ("schema.type", 5, 7), "1.5"),
        (("repeats: 2", "repeats: 0"), ("schema.bound", 6, 10), "0"),
        (("repeats: 2", "repeats: 101"), ("schema.bound", 6, 10), "101"),
        (("repeats: 2", "jobs: 65"), ("schema.bound", 6, 7), "65"),
        (("wall: 10m", "wall: 10"), ("manifest.bad-duration", 7, 16), "10"),
        (("wall: 10m", "wall: 10min"), ("manifest.bad-duration", 7, 16), "10min"),
        (("wall: 10m", "wall: 1m1h"), ("manifest.bad-duration", 7, 16), "1m1h"),
        (("1GiB", "1G"), ("manifest.bad-size", 7, 29), "1G"),
        (("1GiB", "1MiB"), ("manifest.too-little-memory", 7, 29), "1MiB"),
        (("cpus: 1", "cpus: 0"), ("manifest.bad-cpus", 7, 41), "0"),
        (("cpus: 1", "cpus: 0.3333"), ("manifest.bad-cpus", 7, 41), "0.3333"),
        (("pids: 64", "pids: 1"), ("schema.bound", 16, 36), "1"),
        (("[python3, -m, ranker]", "python3 -m ranker"), ("schema.type", 14, 14), "an array"),
        (("[python3, -m, ranker]", "[]"), ("schema.bound", 14, 14), "too short"),
        (("[all, heldout]", "[all, all]"), ("manifest.duplicate", 4, 15), "second time"),
        (("name: mine", "name: okapi"), ("manifest.duplicate-method", 12, 11), "methods[0]"),
        (("protocol: toy", "protocol: /toy"), ("manifest.absolute-path", 3, 11), "one machine"),
        (("protocol: toy", "protocol: ~/toy"), ("manifest.absolute-path", 3, 11), "one machine"),
        (("seed: 7", "data_root: /data"), ("manifest.absolute-path", 5, 12), "one machine"),
        (("seed: 7", "seed: yes"), ("manifest.implicit-boolean", 5, 7), "yes"),
        (("seed: 7", "seed: 07"), ("manifest.ambiguous-number", 5, 7), "07"),
        (("seed: 7", "name: again"), ("manifest.duplicate-key", 5, 1), "line 2"),
    ],
)
def test_one_mistake_is_one_fault_with_its_place(
    tmp_path: Path, edit: tuple[str, str], fault: tuple[str, int, int], words: str
) -> None:
    path = write_run(tmp_path, edited(RUN, edit))
    assert faults_of(tmp_path, path.read_text()) == [fault]
    with pytest.raises(ManifestError) as caught:
        load_run_manifest(path)
    assert caught.value.code == fault[0]
    assert words in f"{caught.value.message} {caught.value.fix}"
    assert str(caught.value).startswith(f"{path}:{fault[1]}:{fault[2]}")


def test_a_number_where_text_belongs_is_to_be_quoted(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        load_run_manifest(write_run(tmp_path, edited(RUN, ("name: toy-lexical", "name: 1.5"))))
    assert caught.value.fix == 'quote it: "1.5"'
    with pytest.raises(ManifestError) as caught:
        load_run_manifest(write_run(tmp_path, edited(RUN, ("-m, ranker", "-m, true"))))
    assert caught.value.fix == 'quote it: "true"'


def test_a_setting_named_limits_is_no_limit(tmp_path: Path) -> None:
    text = edited(RUN, ("config: {depth: 3}", "config: {limits: {wall: 3}}"))
    manifest = load_run_manifest(write_run(tmp_path, text))
    assert manifest.methods[1].config == {"limits": {"wall": 3}}


def test_all_faults_at_once_in_file_order_but_a_misspelt_key_is_raised_first(
    tmp_path: Path,
) -> None:
    text = edited(RUN, ("seed: 7", "seed: -7"), ("image: lexical", "imge: lexical"), ("10m", "10"))
    assert [code for code, _, _ in faults_of(tmp_path, text)] == [
        "schema.bound",
        "manifest.bad-duration",
        "schema.missing-key",
        "schema.unknown-key",
    ]
    with pytest.raises(ManifestError, match=r"did you mean 'image'.*3 other faults") as caught:
        load_run_manifest(write_run(tmp_path, text))
    assert caught.value.code == "schema.unknown-key"


@pytest.mark.parametrize("text", ["[]", "text", "3", "null", "- schema: sealbench/run/v1"])
def test_a_manifest_is_a_mapping(tmp_path: Path, text: str) -> None:
    assert faults_of(tmp_path, text)[0][0] == "schema.type"


def test_files_that_are_none(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, code in (
        (tmp_path / "absent.yaml", "manifest.unreadable"),
        (tmp_path / "a\0b", "manifest.unreadable"),
        (tmp_path, "manifest.not-a-file"),
        (fifo, "manifest.not-a-file"),
    ):
        with pytest.raises(ManifestError) as caught:
            load_run_manifest(path)
        assert caught.value.code == code
        assert caught.value.exit_code == 3


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(ManifestError) as caught:
        load_run_manifest(path)
    assert caught.value.code == "manifest.too-large"


# --- freeze manifests -----------------------------------------------------------------------------


def test_a_freeze_manifest(tmp_path: Path) -> None:
    path = write_run(tmp_path, FREEZE)
    manifest = load_freeze_manifest(path)
    assert manifest.raw == FREEZE.encode()
    assert (manifest.benchmark, manifest.version, manifest.category) == (
        "toy-v1",
        "1.0.0",
        "retrieval",
    )
    assert manifest.metrics == ("ndcg_at_10", "recall_at_1")
    assert (manifest.primary_metric, manifest.top_k, manifest.seed) == ("ndcg_at_10", 10, 3)
    assert (manifest.split_algorithm, manifest.calibration) == ("sha256-id-order", 2)
    assert manifest.rules == {"queries_without_positives": "count_as_zero"}
    assert manifest.budget == Limits(wall_ms=3_600_000, memory_bytes=2 << 30, cpus_milli=2000)
    (dataset,) = manifest.datasets
    assert (dataset.name, dataset.options["qrels"], dataset.format) == ("toy", "test", "beir")
    assert dataset.options["expect"] == {"documents": 4, "queries": 3}
    assert dataset.files == {"corpus.jsonl": "b" * 64}
    assert dataset.source_revision == "own:1.0.0"


def test_a_freeze_manifest_without_splits_has_only_all(tmp_path: Path) -> None:
    text = edited(FREEZE, ("splits: {algorithm: sha256-id-order, calibration: 2}\n", ""))
    manifest = load_freeze_manifest(write_run(tmp_path, text))
    assert (manifest.split_algorithm, manifest.calibration) == (None, None)


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (('version: "1.0.0"', "version: 1.0"), "schema.type"),
        (('version: "1.0.0"', 'version: "1.0"'), "schema.pattern"),
        (("category: retrieval", "category: retrival"), "schema.value"),
        (("primary_metric: ndcg_at_10", "primary_metric: ndcg_at_5"), "manifest.primary-metric"),
        (("recall_at_1]", "ndcg_at_10]"), "manifest.duplicate"),
        (("calibration: 2", "calibration: 3"), "manifest.calibration"),
        (("calibration: 2", "calibration: 0"), "schema.bound"),
        (("sha256-id-order", "random"), "schema.value"),
        (("count_as_zero", "drop"), "schema.value"),
        (("wall: 1h", "wall: 1"), "manifest.bad-duration"),
        (("wall: 1h", "time: 1h"), "schema.unknown-key"),
        (("corpus.jsonl:", "../corpus.jsonl:"), "schema.pattern"),
        (("corpus.jsonl:", "/corpus.jsonl:"), "schema.pattern"),
        (("b" * 64, "b" * 63), "schema.pattern"),
        (("b" * 64, "sha256:" + "b" * 57), "schema.pattern"),
        (("    licence: CC0-1.0\n", ""), "schema.missing-key"),
        (("    selection: All judged queries.\n", '    selection: ""\n'), "schema.bound"),
    ],
)
def test_refused_freeze_manifests(tmp_path: Path, edit: tuple[str, str], code: str) -> None:
    assert code in [found for found, _, _ in faults_of(tmp_path, edited(FREEZE, edit), "freeze")]


@pytest.mark.parametrize("revision", ["main", "HEAD", "latest", "v1", "master", "1.0", "refs/x"])
def test_a_source_that_can_move_is_refused_where_it_stands(tmp_path: Path, revision: str) -> None:
    text = edited(FREEZE, ("own:1.0.0", f'"{revision}"'))
    assert faults_of(tmp_path, text, "freeze") == [("manifest.mutable-revision", 22, 22)]


@pytest.mark.parametrize("revision", ["a" * 40, digest("a"), "doi:10.5281/zenodo.123456", "own:2"])
def test_a_source_that_cannot_move_is_accepted(tmp_path: Path, revision: str) -> None:
    text = edited(FREEZE, ("own:1.0.0", revision))
    (dataset,) = load_freeze_manifest(write_run(tmp_path, text)).datasets
    assert dataset.source_revision == revision


def test_two_datasets_of_one_name(tmp_path: Path) -> None:
    text = FREEZE + FREEZE[FREEZE.index("  - name: toy") :]
    assert faults_of(tmp_path, text, "freeze") == [("manifest.duplicate-dataset", 27, 11)]


# --- properties -----------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(RUN)), st.text(max_size=6), st.integers(0, 8))
def test_a_damaged_manifest_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, at: int, text: str, cut: int
) -> None:
    path = tmp_path_factory.mktemp("m") / "run.yaml"
    damaged = RUN[:at] + text + RUN[at + cut :]
    path.write_bytes(damaged.encode("utf-8", "surrogatepass"))
    manifest, faults = lint_run_manifest(path)
    assert manifest is not None or faults
    for fault in faults:
        assert fault.fix
        assert fault.where is not None
        assert fault.where.file == str(path)
