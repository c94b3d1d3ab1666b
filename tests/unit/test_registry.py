"""Merging partial bundles, the registry that only verified ones enter, and its leaderboard."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from runner.errors import BundleError, SealbenchError, StorageError, UsageError
from runner.merge import MergeRequest, merge
from runner.registry import AddRequest, Registry, compare_entries
from runner.report.leaderboard import as_csv, as_html, as_json, rows_of
from tests.plagiarism import Bench, bench
from tests.sealed import KEY, TRUST
from tests.unit.code_files import CONTENT
from tests.unit.test_verify import edit, scale, sign_again


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def parts(made: Bench) -> dict[str, Path]:
    """Three runs of one protocol, sealed: each with methods of its own, one failed."""
    runs: dict[str, Sequence[str]] = {
        "first": ("alike", "crash"), "second": ("lengths",), "third": ("constant", "alike"),
    }  # fmt: skip
    for name, methods in runs.items():
        made.run(made.folder / name, *methods, name=name)
    return {name: made.folder / name / "bundle" for name in runs}


def request(made: Bench, out: Path, *bundles: Path, name: str | None = None) -> MergeRequest:
    return MergeRequest(
        bundles=bundles,
        protocol=made.protocol,
        data_root=made.data_root,
        trust=TRUST,
        out=out,
        key=KEY,
        name=name,
    )


def test_merged_methods_are_ranked_together_and_verify(
    made: Bench, parts: dict[str, Path], tmp_path: Path
) -> None:
    merge(request(made, tmp_path / "m", parts["first"], parts["second"], name="both"))
    report = made.verify(tmp_path / "m")
    assert report.faults == ()
    assert report.recomputed.holds
    results = json.loads((tmp_path / "m/bundle/results.json").read_bytes())
    ranks = {row["method"]: row["rank"] for row in results["aggregate"] if row["metric"] == "auroc"}
    assert ranks == {"alike": 1, "crash": None, "lengths": 2}
    assert {(e["method"], e["other"]) for e in results["comparisons"]} == {("alike", "lengths")}
    note = next(note for note in results["notes"] if note.startswith("merged from"))
    assert "first (sha256:" in note
    assert "second (sha256:" in note
    rows = "rows/alike/toy-pair/part-00000.jsonl"
    assert (tmp_path / "m/bundle" / rows).read_bytes() == (parts["first"] / rows).read_bytes()
    plan = json.loads((tmp_path / "m/bundle/plan.json").read_bytes())
    assert plan["name"] == "both"
    assert [method["name"] for method in plan["methods"]] == ["alike", "crash", "lengths"]


def refused(made: Bench, out: Path, *bundles: Path) -> SealbenchError:
    with pytest.raises(SealbenchError) as caught:
        merge(request(made, out, *bundles))
    assert not (out / "bundle").exists()
    return caught.value


def test_a_method_that_ran_twice_is_not_merged(
    made: Bench, parts: dict[str, Path], tmp_path: Path
) -> None:
    error = refused(made, tmp_path / "m", parts["first"], parts["third"])
    assert error.code == "merge.duplicate-method"


def test_bundles_of_another_protocol_or_split_are_not_merged(
    made: Bench, parts: dict[str, Path], tmp_path: Path
) -> None:
    made.run(tmp_path / "all", "constant", split="all", name="all")
    assert refused(made, tmp_path / "m", parts["first"], tmp_path / "all" / "bundle").code == (
        "merge.other-frame"
    )
    other = bench(tmp_path / "other", split=CONTENT)
    other.run(tmp_path / "o", "constant")
    error = refused(made, tmp_path / "m", parts["first"], tmp_path / "o" / "bundle")
    assert error.code == "merge.unverified"
    assert "protocol" in error.message
    assert refused(made, tmp_path / "m", parts["first"]).code == "merge.nothing"


def test_what_does_not_verify_is_neither_merged_nor_added(
    made: Bench, parts: dict[str, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(parts["second"], copy)
    edit(copy / "results.json", scale(1.1))
    sign_again(copy)
    assert refused(made, tmp_path / "m", parts["first"], copy).code == "merge.unverified"
    registry = Registry(tmp_path / "registry")
    with pytest.raises(BundleError) as caught:
        registry.add(_adding(made, copy))
    assert caught.value.code == "registry.unverified"
    assert registry.entries() == []


def _adding(made: Bench, bundle: Path) -> AddRequest:
    return AddRequest(bundle=bundle, protocol=made.protocol, data_root=made.data_root, trust=TRUST)


@pytest.fixture(scope="module")
def registry(made: Bench, parts: dict[str, Path]) -> Registry:
    found = Registry(made.folder / "registry")
    for bundle in parts.values():
        found.add(_adding(made, bundle))
    return found


def test_entries_are_kept_by_protocol_and_digest(made: Bench, registry: Registry) -> None:
    entries = registry.entries()
    assert {entry.name for entry in entries} == {"first", "second", "third"}
    assert {entry.protocol_id for entry in entries} == {made.protocol.protocol_id}
    for entry in entries:
        assert (entry.folder / "bundle.tar").is_file()
        assert registry.find(entry.bundle_sha256[:10]) == entry
    assert registry.entries("sha256:" + "0" * 64) == []


def test_a_bundle_enters_once(made: Bench, parts: dict[str, Path], registry: Registry) -> None:
    with pytest.raises(StorageError, match="already"):
        registry.add(_adding(made, parts["first"]))


def test_methods_of_one_protocol_are_ranked_over_bundles(registry: Registry) -> None:
    rows = compare_entries(registry.entries(), split="test")
    auroc = [row for row in rows if row["metric"] == "auroc"]
    assert [(row["rank"], row["method"]) for row in auroc] == [
        (1, "alike"), (1, "alike"), (3, "lengths"), (4, "constant"), (None, "crash"),
    ]  # fmt: skip
    assert len({row["bundle"] for row in auroc}) == 3


def test_other_protocols_and_unknown_bundles_are_refused(
    made: Bench, registry: Registry, tmp_path: Path
) -> None:
    other = bench(tmp_path / "other", split=CONTENT)
    other.run(tmp_path / "o", "constant")
    copy = tmp_path / "registry"
    shutil.copytree(made.folder / "registry", copy)
    added = Registry(copy).add(_adding(other, tmp_path / "o" / "bundle"))
    with pytest.raises(UsageError) as caught:
        compare_entries([added, *registry.entries()], split="test")
    assert caught.value.code == "registry.cross-protocol"
    with pytest.raises(UsageError) as caught:
        registry.find("ffff")
    assert caught.value.code == "registry.unknown-bundle"
    tables = rows_of(Registry(copy).entries())
    assert {row["protocol_id"] for row in tables} == {
        made.protocol.protocol_id, other.protocol.protocol_id,
    }  # fmt: skip
    firsts = [r for r in tables if r["metric"] == "auroc" and r["protocol_id"] == added.protocol_id]
    assert [(row["rank"], row["method"]) for row in firsts] == [(1, "constant")]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("results.json", "registry.changed"),
        ("plan.json", "registry.changed"),
        ("manifest.json", "registry.changed"),
        ("entry.json", "registry.legacy"),
    ],
)
def test_an_edited_entry_is_noticed(
    name: str, code: str, made: Bench, registry: Registry, tmp_path: Path
) -> None:
    shutil.copytree(made.folder / "registry", tmp_path / "registry")
    changed = Registry(tmp_path / "registry")
    path = changed.entries()[0].folder / name
    path.write_bytes(path.read_bytes().replace(b"/v1", b"/v0").replace(b"alike", b"alika"))
    if name == "manifest.json":
        path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(BundleError) as caught:
        changed.entries()
    assert caught.value.code == code
    assert registry.entries()


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_stands_alone_and_the_tables_hold_the_same(registry: Registry) -> None:
    rows = rows_of(registry.entries())
    text = as_html(rows)
    page = _Page()
    page.feed(text)
    assert "script" not in page.tags
    assert page.outside == []
    assert "null" in text  # the failed method is shown, with the reason
    assert text.count("crash, first: toy-pair: crashed: exit code 3") == len(
        {(row["split"], row["metric"]) for row in rows if row["task"] == "pair"}
    )
    for row in rows:  # each run once with its whole digest, and who signed it
        assert text.count(row["bundle"]) == 1
    assert text.count("nobody yet") == len({row["bundle"] for row in rows})
    assert "AUROC, higher is better" in text
    found = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert len(found) == len(rows) == len(json.loads(as_json(rows))["rows"])
    crash = [row for row in found if row["method"] == "crash"]
    assert {(row["rank"], row["mean_score"], row["eligible"]) for row in crash} == {
        ("", "", "false")
    }
    beside = {row["method"]: row["beside_first"] for row in found if row["metric"] == "auroc"}
    assert beside["constant"] == "tie"
    assert beside["lengths"] == "other run"
    reasons = {row["method"]: row["reason"] for row in found if row["metric"] == "auroc"}
    assert reasons["constant"] == ""
    assert "exit code 3" in reasons["crash"]
    assert {row["run"] for row in found if row["method"] == "crash"} == {"first"}
    assert "The registry is empty." in as_html([])
