"""The registry that only verified bundles enter, what it believes later, and its leaderboard."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runner.bundle import dsse
from runner.bundle.archive import export_archive
from runner.bundle.read import open_bundle
from runner.bundle.reviews import Property, write_review
from runner.canonical import canonical_bytes
from runner.cli import main
from runner.errors import EXIT_OK, BundleError, StorageError, UsageError
from runner.keys import SigningKey
from runner.registry import AddRequest, AlreadyKept, Registry, compare_entries
from runner.registry_entry import CHECKED, ENTRY_SCHEMA, UNCHECKED
from runner.report.leaderboard import as_csv, as_html, as_json, rows_of
from runner.trust import KeyRole, KeyStatus, Trust, TrustedKey, explicit
from tests.plagiarism import Bench, bench, three_runs
from tests.sealed import DATA_ROOT, KEY, TRUST, protocol, sandbox
from tests.unit.code_files import CONTENT
from tests.unit.test_verify import edit, scale, sign_again

OTHER = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([5]) * 32))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def parts(made: Bench) -> dict[str, Path]:
    return three_runs(made)


def test_what_does_not_verify_is_not_added(
    made: Bench, parts: dict[str, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(parts["second"], copy)
    edit(copy / "results.json", scale(1.1))
    sign_again(copy)
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
    with pytest.raises(AlreadyKept, match="already") as caught:
        registry.add(_adding(made, parts["first"]))
    assert caught.value.entry.name == "first"


def test_adding_a_bundle_twice_is_no_failure(
    made: Bench, parts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key.pem"
    key.write_text(KEY.public.pem)
    again = ["registry", "add", str(parts["second"]), "--registry", str(tmp_path / "kept")]
    again += ["--protocol", str(made.protocol_path), "--data-root", str(made.data_root)]
    again += ["--key", str(key)]
    for told in ("added second", "already there, as it was added: second"):
        assert main(again) == EXIT_OK
        assert capsys.readouterr().out.startswith(told)
    next((tmp_path / "kept").glob("*/*/plan.json")).write_text("{}")
    assert main(again) == BundleError.exit_code


def test_what_a_registry_does_not_have_is_said(
    made: Bench, registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, digest = str(made.folder / "registry"), registry.entries()[0].bundle_sha256
    (tmp_path / "empty").mkdir()
    compare = ("registry", "compare", digest)
    for command, code, words in (
        (("registry", "list", "--registry", f"{folder}y"), "missing", "mean 'registry'?"),
        (("leaderboard", "--registry", f"{folder}y"), "missing", "mean 'registry'?"),
        (("registry", "list", "--registry", folder, "--protocol-id", "ffff"),
            "unknown-protocol", made.protocol.protocol_id),
        ((*compare, "--registry", folder, "--split", "tst"), "unknown-split", "mean 'test'?"),
        ((*compare, "--registry", folder, "--split", "test", "--metric", "aurc"),
            "unknown-metric", "mean 'auroc'?"),
    ):  # fmt: skip
        assert main([*command]) == UsageError.exit_code
        told = capsys.readouterr().err
        assert f"[registry.{code}]" in told
        assert words in told
    assert main(["registry", "list", "--registry", str(tmp_path / "empty")]) == EXIT_OK
    assert capsys.readouterr().out.startswith("no bundle is kept in")


def test_who_dies_while_adding_leaves_no_entry_and_can_add_again(
    made: Bench, parts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        os._exit(9)  # as SIGKILL does: nothing is put away

    registry, adding = Registry(tmp_path / "registry"), _adding(made, parts["first"])
    monkeypatch.setattr("runner.registry._keep_reviews", dies)
    if (child := os.fork()) == 0:
        registry.add(adding)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    monkeypatch.undo()
    assert registry.entries() == []
    added = registry.add(adding)
    assert [entry.folder for entry in registry.entries()] == [added.folder]


def test_who_comes_second_takes_nothing_from_who_was_first(
    made: Bench, parts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, adding = Registry(tmp_path / "registry"), _adding(made, parts["first"])

    def meanwhile(*_: object) -> None:
        monkeypatch.undo()
        registry.add(adding)

    monkeypatch.setattr("runner.registry._keep_reviews", meanwhile)
    with pytest.raises(StorageError) as caught:
        registry.add(adding)
    assert caught.value.code == "storage.occupied"
    assert len(registry.entries()) == 1


def test_methods_of_one_protocol_are_ranked_over_bundles(registry: Registry) -> None:
    rows = compare_entries(registry.entries(), split="test")
    auroc = [row for row in rows if row["metric"] == "auroc"]
    assert [(row["rank"], row["method"]) for row in auroc] == [
        (1, "alike"), (1, "alike"), (3, "lengths"), (4, "constant"), (None, "crash"),
    ]  # fmt: skip
    assert len({row["bundle"] for row in auroc}) == 3


def test_a_method_in_two_bundles_takes_two_places_and_that_is_said(
    made: Bench, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = [entry.bundle_sha256 for entry in registry.entries()]
    compare = ["registry", "compare", "--registry", str(made.folder / "registry")]
    compare += ["--split", "test", "--metric", "auroc"]
    assert main([*compare, *digests]) == EXIT_OK
    said = "a method in several has a row and takes a place for each: alike (2)\n"
    assert said in capsys.readouterr().out
    assert main([*compare, digests[0]]) == EXIT_OK
    assert "several" not in capsys.readouterr().out


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
        ("receipt.dsse.json", "registry.broken"),
        ("bundle.tar", "registry.changed"),
    ],
)
def test_an_edited_entry_is_noticed_and_named(
    name: str, code: str, made: Bench, registry: Registry, tmp_path: Path
) -> None:
    changed = copied(made, tmp_path)
    folder = changed.entries()[0].folder
    path = folder / name
    path.write_bytes(path.read_bytes().replace(b"/v1", b"/v0").replace(b"alike", b"alika"))
    if name in ("manifest.json", "receipt.dsse.json", "bundle.tar"):
        path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(BundleError) as caught:
        changed.entries()
    assert caught.value.code == code
    assert folder.name[:12] in caught.value.message
    assert registry.entries()
    path.unlink()
    with pytest.raises(BundleError, match=f"{name} cannot be read") as caught:
        changed.entries()
    assert caught.value.code == "registry.incomplete"


def copied(made: Bench, tmp_path: Path, trust: Trust | None = None) -> Registry:
    shutil.copytree(made.folder / "registry", tmp_path / "registry")
    return Registry(tmp_path / "registry", trust)


def test_who_signed_is_what_the_receipt_shows_and_no_word_beside_it(
    made: Bench, registry: Registry, tmp_path: Path
) -> None:
    known = Registry(made.folder / "registry", TRUST).entries()[0]
    assert (known.signer.name, known.signer.standing) == (f"key:{KEY.public.keyid[:16]}", CHECKED)
    for trust in (None, explicit([OTHER.public])):
        entry = Registry(made.folder / "registry", trust).entries()[0]
        assert (entry.signer.keyid, entry.signer.standing) == (KEY.public.keyid, UNCHECKED)
        assert entry.as_dict()["signature"] == UNCHECKED
    theirs = TrustedKey(public=KEY.public, principal="ann", status=KeyStatus.REVOKED)
    revoked = Registry(made.folder / "registry", Trust(keys=(theirs,))).entries()[0]
    assert (revoked.signer.name, revoked.signer.standing) == (
        "ann", "NOT TRUSTED: the key is revoked",
    )  # fmt: skip
    told = copied(made, tmp_path)
    edit(told.entries()[0].folder / "entry.json", lambda entry: entry.update(signer="ann"))
    with pytest.raises(BundleError, match="signer") as caught:
        told.entries()
    assert caught.value.code == "schema.unknown-key"


def entry_of(bundle: Path, root: Path) -> Path:
    """Lay a bundle into a registry by hand, all copies in accord, without verifying anything."""
    manifest = (bundle / "manifest.json").read_bytes()
    protocol: str = json.loads((bundle / "plan.json").read_bytes())["protocol_id"]
    folder = root / protocol.removeprefix("sha256:") / hashlib.sha256(manifest).hexdigest()
    folder.mkdir(parents=True)
    for name in ("manifest.json", "plan.json", "results.json", "receipt.dsse.json"):
        shutil.copy(bundle / name, folder / name)
    entry = {"schema": ENTRY_SCHEMA, "protocol_id": protocol, "added": "2026-01-31T12:00:00Z"}
    (folder / "entry.json").write_bytes(canonical_bytes(entry))
    keys = explicit([KEY.public, OTHER.public])
    with open_bundle(bundle, protocol_id=None, trust=keys) as view:
        export_archive(view, folder / "bundle.tar")
    return folder


def test_a_fabricated_entry_has_nobodys_signature(parts: dict[str, Path], tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    shutil.copytree(parts["second"], forged)
    edit(forged / "results.json", scale(1.1))
    honest = (forged / "receipt.dsse.json").read_bytes()
    sign_again(forged)
    payload = dsse.verify((forged / "receipt.dsse.json").read_bytes(), [KEY.public], file="r")
    mine = dsse.sign(payload.payload, OTHER)
    (forged / "receipt.dsse.json").write_bytes(mine)
    folder = entry_of(forged, tmp_path / "registry")
    (entry,) = Registry(tmp_path / "registry", TRUST).entries()
    assert (entry.signer.name, entry.signer.standing) == (
        f"key:{OTHER.public.keyid[:16]}", UNCHECKED,
    )  # fmt: skip
    # The other's id on one's own signature: nobody without the key can tell, and so it is said.
    named = mine.replace(OTHER.public.keyid.encode(), KEY.public.keyid.encode())
    replaced(folder, named)
    (entry,) = Registry(tmp_path / "registry").entries()
    assert entry.signer.standing == UNCHECKED
    with pytest.raises(BundleError, match="the signature is not by key") as caught:
        Registry(tmp_path / "registry", TRUST).entries()
    assert caught.value.code == "registry.broken"
    assert folder.name[:12] in caught.value.message
    # An honest receipt beside other figures is about another bundle.
    replaced(folder, honest)
    with pytest.raises(BundleError, match="its receipt is about another bundle"):
        Registry(tmp_path / "registry").entries()


def replaced(folder: Path, receipt: bytes) -> None:
    """Put another receipt into an entry and its archive."""
    before = (folder / "receipt.dsse.json").read_bytes()
    (folder / "receipt.dsse.json").write_bytes(receipt)
    archive = (folder / "bundle.tar").read_bytes()
    assert len(before) == len(receipt)
    (folder / "bundle.tar").write_bytes(archive.replace(before, receipt))


def test_reviewers_are_those_whose_countersignatures_are_checked_here(
    made: Bench, parts: dict[str, Path], tmp_path: Path
) -> None:
    digest = hashlib.sha256((parts["second"] / "manifest.json").read_bytes()).hexdigest()
    sigs = tmp_path / "bundle.sigs"
    kinds = [Property.BUNDLE_VALID, Property.SCORES_RECOMPUTED, Property.RUN_REPRODUCED]
    stamp = "2026-01-31T12:00:00Z"
    file = write_review(sigs, digest, kinds, time_created=stamp, key=OTHER)
    both = Trust(
        keys=(
            *TRUST.keys,
            TrustedKey(public=OTHER.public, principal="eve", roles=(KeyRole.REVIEWER,)),
        )
    )
    root = tmp_path / "registry"
    added = replace(_adding(made, parts["second"]), signatures=sigs, trust=both)
    entry = Registry(root).add(added)
    assert (entry.reproduced_by, entry.unchecked) == (("eve",), 0)
    (entry,) = Registry(root).entries()
    assert (entry.reproduced_by, entry.unchecked) == ((), 1)
    rows = rows_of([entry])
    assert {row["reproduced_by"] for row in rows} == {"1 countersignature not checked here"}
    kept = entry.folder / "reviews" / file.name
    kept.write_bytes(kept.read_bytes().replace(b'"sig":"', b'"sig":"A'))
    with pytest.raises(BundleError, match=f"countersignature {file.name}") as caught:
        Registry(root, both).entries()
    assert caught.value.code == "registry.broken"


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
    assert UNCHECKED in text
    assert CHECKED not in text
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
    assert {row["executed"] for row in found} == {"true"}
    assert {row["signature"] for row in found} == {UNCHECKED}
    assert "(imported)" not in text
    assert "The registry is empty." in as_html([])


def test_f1_stands_beside_what_saying_yes_to_all_would_have(registry: Registry) -> None:
    rows = rows_of(registry.entries())
    chance = {row["metric"]: row["chance"] for row in rows if row["task"] == "pair"}
    assert "saying so of every pair has F1" in chance["f1"]
    assert {text for metric, text in chance.items() if metric != "f1"} == {""}
    assert as_html(rows).count(chance["f1"]) == 1


def test_imported_results_are_marked_wherever_they_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEALBENCH_KEYS", str(tmp_path / "keys"))
    box = sandbox(tmp_path / "box", "overlap")
    (box.folder / "run.trec").write_text("q1 Q0 d1 1 1.0 t\n", encoding="utf-8")
    lines = "  - name: theirs\n    precomputed: run.trec\n"
    box.manifest.write_text(box.manifest.read_text() + lines, encoding="utf-8")
    box.run()
    root = tmp_path / "registry"
    Registry(root).add(
        AddRequest(bundle=box.out / "bundle", protocol=protocol(), data_root=DATA_ROOT, trust=TRUST)
    )
    rows = rows_of(Registry(root).entries())
    found = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert {(row["method"], row["executed"]) for row in found} == {
        ("overlap", "true"), ("theirs", "false"),
    }  # fmt: skip
    assert {r["method"] for r in json.loads(as_json(rows))["rows"] if not r["executed"]} == {
        "theirs"
    }
    assert ">theirs (imported)<" in as_html(rows)
    assert ">overlap<" in as_html(rows)
    (entry,) = Registry(root).entries()
    assert main(["registry", "compare", entry.bundle_sha256, "--registry", str(root)]) == EXIT_OK
    told = capsys.readouterr().out
    assert "theirs (imported)" in told
    assert f"key:{KEY.public.keyid[:16]}: {UNCHECKED}" in told
    assert main(["registry", "list", "--registry", str(root)]) == EXIT_OK
    assert "not checked here" in capsys.readouterr().out
    key = tmp_path / "own.pem"
    key.write_text(KEY.public.pem, encoding="utf-8")
    asked = ["registry", "list", "--registry", str(root), "--key", str(key), "--json"]
    assert main(asked) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["entries"][0]["signature"] == CHECKED


@pytest.mark.parametrize("command", ["registry add x", "merge x y --out z"])
def test_there_is_no_way_in_for_what_nobody_signed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--protocol", "p", "--data-root", "d", "--allow-unsigned"]
    assert main([*command.split(), *more]) == UsageError.exit_code
    assert "--allow-unsigned" in capsys.readouterr().err
