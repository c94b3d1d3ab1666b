"""Reading: every byte is bound, every odd file is named, nothing is read twice."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import schemas
from runner.bundle import dsse, paths, read
from runner.bundle.admission import Fault, admit
from runner.bundle.documents import parse_utc
from runner.bundle.manifest import BundleManifest, FileEntry, Role, parse_manifest
from runner.bundle.read import CHUNK, BundleView, examine, open_bundle
from runner.bundle.statement import build_statement
from runner.canonical import canonical_bytes, sha256_label
from runner.errors import BundleError
from runner.trust import KeyRole, KeyStatus, Trust, TrustedKey, explicit
from tests.unit.bundle_files import (
    KEY,
    PROTOCOL_ID,
    ROWS,
    TRUST,
    claims,
    files_of,
    seal,
    signing_key,
)

ROWS_FILE = "rows/bm25/tiny/part-00000.jsonl"
LABEL = "sha256:" + "99" * 32


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good bundle, never changed."""
    return seal(tmp_path_factory.mktemp("sealed")).path


@pytest.fixture
def bundle(sealed: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(sealed, tmp_path / "bundle"))


def faults_of(bundle: Path, **options: Any) -> tuple[Fault, ...]:
    asked: dict[str, Any] = {"protocol_id": PROTOCOL_ID, "trust": TRUST}
    with examine(bundle, **(asked | options)) as opening:
        rest = () if opening.view is None else opening.view.check_remaining()
        return (*opening.faults, *rest)


def codes(bundle: Path, **options: Any) -> set[tuple[str, str]]:
    return {(fault.file, fault.code) for fault in faults_of(bundle, **options)}


def test_a_good_bundle_has_no_faults(sealed: Path) -> None:
    with examine(sealed, protocol_id=PROTOCOL_ID, trust=TRUST) as opening:
        assert opening.faults == ()
        view = opening.view
        assert view is not None
        assert view.admission.signer == KEY.public
        assert view.admission.decision is not None
        assert view.admission.decision.trusted
        assert len(view.unverified) == len(view.manifest.files)
        assert view.check_remaining() == ()
        assert view.unverified == ()


def offsets(size: int) -> Iterator[int]:
    """Every byte of a small file, the ends and a sample of a larger one."""
    if size <= 40:
        yield from range(size)
    else:
        yield from {0, 1, size // 3, size // 2, size - 2, size - 1}


def test_no_bit_of_any_file_can_be_flipped(bundle: Path) -> None:
    tried = 0
    for name in files_of(bundle):
        path = bundle / name
        good = path.read_bytes()
        for offset in offsets(len(good)):
            bad = bytearray(good)
            bad[offset] ^= 1 << offset % 8
            path.write_bytes(bad)
            assert name in {fault.file for fault in faults_of(bundle)}, (name, offset)
            tried += 1
        path.write_bytes(good)
    assert tried > 150
    assert faults_of(bundle) == ()


def test_no_byte_of_receipt_and_manifest_can_be_flipped(bundle: Path) -> None:
    """Far more of them, by the part of the reader that judges these two. (That no bit at all of an
    envelope can be flipped is shown where envelopes are tested, on a shorter one.)
    """
    receipt, manifest = ((bundle / name).read_bytes() for name in (paths.RECEIPT, paths.MANIFEST))
    for good, first in ((receipt, True), (manifest, False)):
        for offset in range(0, len(good), 29 if first else 7):
            bad = bytearray(good)
            bad[offset] ^= 1 << offset % 8
            pair = (bytes(bad), manifest) if first else (receipt, bytes(bad))
            admission = admit(*pair, trust=TRUST, protocol_id=PROTOCOL_ID)
            assert admission.manifest is None
            assert admission.faults[0].file == (paths.RECEIPT if first else paths.MANIFEST)


def append(bundle: Path) -> None:
    with (bundle / ROWS_FILE).open("ab") as stream:
        stream.write(b"\n")


def truncate(bundle: Path) -> None:
    os.truncate(bundle / ROWS_FILE, 10)


def crlf(bundle: Path) -> None:
    path = bundle / ROWS_FILE
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def swap_rows(bundle: Path) -> None:
    (bundle / ROWS_FILE).write_bytes(b"".join(reversed(ROWS)))


def swap_files(bundle: Path) -> None:
    (bundle / "plan.json").rename(bundle / "x")
    (bundle / "images.json").rename(bundle / "plan.json")
    (bundle / "x").rename(bundle / "images.json")


def remove(bundle: Path) -> None:
    (bundle / ROWS_FILE).unlink()


def remove_tree(bundle: Path) -> None:
    shutil.rmtree(bundle / "rows")


def add(bundle: Path) -> None:
    (bundle / "rows" / "bm25" / "extra.jsonl").write_bytes(b"")


def add_hidden(bundle: Path) -> None:
    (bundle / ".DS_Store").write_bytes(b"")


def add_odd_name(bundle: Path) -> None:
    (bundle / os.fsdecode(b"\x1b[31m\xff\n")).write_bytes(b"")


def add_empty_folder(bundle: Path) -> None:
    (bundle / "rows" / "empty").mkdir()


def add_full_folder(bundle: Path) -> None:
    (bundle / "more").mkdir()
    (bundle / "more" / "file").write_bytes(b"")


def link_file(bundle: Path) -> None:
    (bundle / ROWS_FILE).rename(bundle.parent / "rows.jsonl")
    (bundle / ROWS_FILE).symlink_to(bundle.parent / "rows.jsonl")


def link_folder(bundle: Path) -> None:
    (bundle / "rows").rename(bundle.parent / "rows")
    (bundle / "rows").symlink_to(bundle.parent / "rows")


def extra_link(bundle: Path) -> None:
    (bundle / "rows" / "link").symlink_to("bm25")


def fifo(bundle: Path) -> None:
    (bundle / ROWS_FILE).unlink()
    os.mkfifo(bundle / ROWS_FILE)


def extra_fifo(bundle: Path) -> None:
    os.mkfifo(bundle / "fifo")


def folder_for_file(bundle: Path) -> None:
    (bundle / ROWS_FILE).unlink()
    (bundle / ROWS_FILE).mkdir()


def file_for_folder(bundle: Path) -> None:
    shutil.rmtree(bundle / "rows")
    (bundle / "rows").write_bytes(b"")


def no_manifest(bundle: Path) -> None:
    (bundle / "manifest.json").unlink()


def no_receipt(bundle: Path) -> None:
    (bundle / "receipt.dsse.json").unlink()


def fifo_receipt(bundle: Path) -> None:
    (bundle / "receipt.dsse.json").unlink()
    os.mkfifo(bundle / "receipt.dsse.json")


def link_manifest(bundle: Path) -> None:
    (bundle / "manifest.json").rename(bundle.parent / "manifest.json")
    (bundle / "manifest.json").symlink_to(bundle.parent / "manifest.json")


def huge_manifest(bundle: Path) -> None:
    os.truncate(bundle / "manifest.json", paths.MAX_METADATA + 1)


def huge_receipt(bundle: Path) -> None:
    os.truncate(bundle / "receipt.dsse.json", 1 << 40)  # sparse


def sparse_rows(bundle: Path) -> None:
    os.truncate(bundle / ROWS_FILE, 1 << 40)


SPOILED: list[tuple[Callable[[Path], None], set[tuple[str, str]]]] = [
    (append, {(ROWS_FILE, "bundle.size")}),
    (truncate, {(ROWS_FILE, "bundle.size")}),
    (sparse_rows, {(ROWS_FILE, "bundle.size")}),
    (crlf, {(ROWS_FILE, "bundle.size")}),
    (swap_rows, {(ROWS_FILE, "bundle.digest")}),
    (swap_files, {("plan.json", "bundle.size"), ("images.json", "bundle.size")}),
    (remove, {(ROWS_FILE, "bundle.missing-file")}),
    (remove_tree, {(ROWS_FILE, "bundle.missing-file")}),
    (add, {("rows/bm25/extra.jsonl", "bundle.unlisted")}),
    (add_hidden, {(".DS_Store", "bundle.unlisted")}),
    (add_odd_name, {("'\\x1b[31m\\udcff\\n'", "bundle.unlisted")}),
    (add_empty_folder, {("rows/empty", "bundle.unlisted")}),
    (add_full_folder, {("more", "bundle.unlisted")}),
    (link_file, {(ROWS_FILE, "bundle.not-regular")}),
    (link_folder, {("rows", "bundle.unlisted"), (ROWS_FILE, "bundle.not-regular")}),
    (extra_link, {("rows/link", "bundle.unlisted")}),
    (fifo, {(ROWS_FILE, "bundle.not-regular")}),
    (extra_fifo, {("fifo", "bundle.unlisted")}),
    (folder_for_file, {(ROWS_FILE, "bundle.not-regular")}),
    (file_for_folder, {("rows", "bundle.unlisted"), (ROWS_FILE, "bundle.not-regular")}),
    (no_manifest, {("manifest.json", "bundle.missing-file")}),
    (link_manifest, {("manifest.json", "bundle.not-regular")}),
    (huge_manifest, {("manifest.json", "bundle.too-large")}),
    (no_receipt, {("receipt.dsse.json", "bundle.unsigned")}),
    (fifo_receipt, {("receipt.dsse.json", "bundle.not-regular")}),
    (huge_receipt, {("receipt.dsse.json", "bundle.too-large")}),
]


@pytest.mark.parametrize(("spoil", "expected"), SPOILED, ids=[row[0].__name__ for row in SPOILED])
def test_every_change_is_named(
    bundle: Path, spoil: Callable[[Path], None], expected: set[tuple[str, str]]
) -> None:
    spoil(bundle)
    assert codes(bundle) == expected
    with (
        pytest.raises(BundleError),
        open_bundle(bundle, protocol_id=PROTOCOL_ID, trust=TRUST) as view,
    ):
        for fault in view.check_remaining():
            raise BundleError(fault.code, fault.message, fix="")


def test_all_faults_are_named_at_once(bundle: Path) -> None:
    for spoil in (swap_rows, add_hidden, add_empty_folder, swap_files):
        spoil(bundle)
    assert {file for file, _ in codes(bundle)} == {
        ROWS_FILE, ".DS_Store", "rows/empty", "plan.json", "images.json",
    }  # fmt: skip


def test_a_flood_of_faults_is_cut(bundle: Path) -> None:
    for number in range(read.MAX_FAULTS + 50):
        (bundle / f"extra-{number}").write_bytes(b"")
    assert len(faults_of(bundle)) == read.MAX_FAULTS


def test_the_folder_itself_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in ("none", "file"):
        with pytest.raises(BundleError) as caught:
            examine(tmp_path / name, protocol_id=PROTOCOL_ID, trust=TRUST)
        assert caught.value.code == "bundle.missing"


def test_an_empty_folder_is_no_bundle(tmp_path: Path) -> None:
    assert codes(tmp_path) == {("manifest.json", "bundle.missing-file")}


# --- whose bundle, and about what -----------------------------------------------------------------


def trusted(**changes: Any) -> Trust:
    return Trust(keys=(replace(TrustedKey(public=KEY.public, principal="me"), **changes),))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"trust": explicit([signing_key(2).public])}, "dsse.unknown-signer"),
        ({"trust": None}, "dsse.unknown-signer"),
        ({"trust": None, "allow_unsigned": True}, "dsse.unknown-signer"),
        ({"trust": trusted(roles=(KeyRole.REVIEWER,))}, "trust.role"),
        ({"trust": trusted(benchmarks=("other-v1",))}, "trust.benchmark"),
        ({"trust": trusted(status=KeyStatus.REVOKED)}, "trust.revoked"),
        ({"trust": trusted(not_after="2026-01-31T12:00:05Z")}, "trust.too-late"),
        ({"protocol_id": LABEL}, "bundle.other-protocol"),
    ],
    ids=str,
)
def test_wrong_key_or_benchmark(sealed: Path, options: dict[str, Any], code: str) -> None:
    assert codes(sealed, **options) == {("receipt.dsse.json", code)}


def test_a_forged_keyid_is_refused(bundle: Path) -> None:
    path = bundle / "receipt.dsse.json"
    envelope = json.loads(path.read_bytes())
    payload = dsse.verify(path.read_bytes(), [KEY.public], file="x").payload
    forged = json.loads(dsse.sign(payload, signing_key(2)))
    forged["signatures"][0]["keyid"] = envelope["signatures"][0]["keyid"]
    path.write_bytes(canonical_bytes(forged))
    assert codes(bundle) == {("receipt.dsse.json", "dsse.signature")}


def test_another_runs_manifest_is_refused(bundle: Path, tmp_path: Path) -> None:
    other = seal(tmp_path / "other", run_id=LABEL).path
    shutil.copy(other / "manifest.json", bundle / "manifest.json")
    assert codes(bundle) == {("manifest.json", "bundle.digest")}


def test_another_runs_receipt_is_refused(bundle: Path, tmp_path: Path) -> None:
    other = seal(tmp_path / "other", run_id=LABEL).path
    shutil.copy(other / "receipt.dsse.json", bundle / "receipt.dsse.json")
    assert codes(bundle) == {("manifest.json", "bundle.digest")}


def test_a_bundle_of_another_benchmark_is_refused(tmp_path: Path) -> None:
    other = seal(tmp_path, protocol_id=LABEL).path
    assert codes(other) == {("receipt.dsse.json", "bundle.other-protocol")}
    assert codes(other, protocol_id=LABEL) == set()


def test_unsigned_bundles_are_read_only_on_request(tmp_path: Path) -> None:
    unsigned = seal(tmp_path, key=None).path
    assert codes(unsigned) == {("receipt.dsse.json", "bundle.unsigned")}
    assert codes(unsigned, allow_unsigned=True) == set()
    assert codes(unsigned, allow_unsigned=True, trust=None) == set()
    assert codes(unsigned, allow_unsigned=True, protocol_id=LABEL) == {
        ("manifest.json", "bundle.other-protocol")
    }
    (unsigned / ROWS_FILE).write_bytes(b"")
    assert codes(unsigned, allow_unsigned=True) == {(ROWS_FILE, "bundle.size")}


def test_a_bad_receipt_is_never_taken_for_none(bundle: Path) -> None:
    (bundle / "receipt.dsse.json").write_bytes(b"{}")
    assert codes(bundle, allow_unsigned=True) == {("receipt.dsse.json", "dsse.form")}


# --- what a signer may not sign -------------------------------------------------------------------


def resigned(bundle: Path, manifest: bytes, **changes: Any) -> None:
    """Put another manifest in and sign it, as a runner that lies would."""
    copies = {
        path.name.split(".")[0]: sha256_label(path.read_bytes())
        for path in (bundle / "schemas").iterdir()
    }
    made = claims(**({"schemas": copies} | changes))
    statement = build_statement(sha256_label(manifest).removeprefix("sha256:"), made)
    (bundle / "manifest.json").write_bytes(manifest)
    (bundle / "receipt.dsse.json").write_bytes(dsse.sign(statement, KEY))


def manifest_of(bundle: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((bundle / "manifest.json").read_bytes())
    return document


def edit(document: dict[str, Any], index: int, **changes: Any) -> dict[str, Any]:
    files = list(document["files"])
    files[index] = files[index] | changes
    return document | {"files": files}


def duplicated(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"files": [document["files"][0], *document["files"]]}


def unsorted(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"files": document["files"][::-1]}


EDITS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "duplicate path": (duplicated, "bundle.duplicate-path"),
    "unsorted": (unsorted, "bundle.unsorted"),
    "parent path": (lambda d: edit(d, 0, path="../host.json"), "schema.pattern"),
    "absolute path": (lambda d: edit(d, 0, path="/etc/passwd"), "schema.pattern"),
    "line feed in a path": (lambda d: edit(d, 0, path="host.json\n"), "schema.pattern"),
    "long path": (lambda d: edit(d, 0, path="a/" * 50 + "a"), "schema.bound"),
    "long segment": (lambda d: edit(d, 0, path="a" * 65), "schema.pattern"),
    "own name": (lambda d: edit(d, 0, path="manifest.json"), "bundle.path"),
    "receipt's name": (lambda d: edit(d, 0, path="receipt.dsse.json"), "bundle.path"),
    "a folder's name": (lambda d: edit(d, 2, path="logs/bm25"), "bundle.path-clash"),
    "9 GiB": (lambda d: edit(d, 0, size=9 << 30), "schema.bound"),
    "negative size": (lambda d: edit(d, 0, size=-1), "schema.bound"),
    "float size": (lambda d: edit(d, 0, size=1.5), "schema.type"),
    "size as text": (lambda d: edit(d, 0, size="11"), "schema.type"),
    "short digest": (lambda d: edit(d, 0, sha256="ab"), "schema.pattern"),
    "unknown role": (lambda d: edit(d, 0, role="label"), "schema.value"),
    "unknown key": (lambda d: edit(d, 0, mode="0755"), "schema.unknown-key"),
    "no files": (lambda d: d | {"files": []}, "schema.bound"),
    "version 2": (lambda d: d | {"bundle_version": 2}, "schema.value"),
    "float version": (lambda d: d | {"bundle_version": 1.5}, "schema.type"),
}


@pytest.mark.parametrize("name", EDITS)
def test_even_a_signed_manifest_must_be_well_formed(bundle: Path, name: str) -> None:
    change, code = EDITS[name]
    resigned(bundle, canonical_bytes(change(manifest_of(bundle))))
    found = faults_of(bundle)
    assert [(fault.file, fault.code) for fault in found] == [("manifest.json", code)]


@pytest.mark.parametrize(
    ("spell", "code"),
    [
        (lambda data: b"\xef\xbb\xbf" + data, "bundle.not-json"),
        (lambda data: data + b"\n", "bundle.not-canonical"),
        (lambda data: data.replace(b":", b": ", 1), "bundle.not-canonical"),
        (lambda data: data.replace(b'"run"', b'"\\u0072un"'), "bundle.not-canonical"),
        (
            lambda data: data.replace(b'{"benchmark"', b'{"benchmark":{},"benchmark"', 1),
            "bundle.not-canonical",
        ),
        (lambda data: data.replace(b'"bundle_version":1', b'"bundle_version":NaN'),
         "bundle.not-json"),
        (lambda data: data.replace(b'"bundle_version":1', b'"bundle_version":1.0'),
         "bundle.not-canonical"),
        (lambda data: data.replace(b'"bundle_version":1', b'"bundle_version":9007199254740993'),
         "canonical.unsafe-number"),
        (lambda data: data.replace(b'"bundle_version":1', b'"bundle_version":1e999'),
         "bundle.not-json"),
        (lambda data: data.replace(b"tiny-v1", b"\xff"), "bundle.not-json"),
        (lambda data: data.replace(b"tiny-v1", b"\\ud800"), "bundle.not-json"),
        (lambda _: b"[1]", "bundle.not-json"),
        (lambda _: b"", "bundle.not-json"),
    ],
)  # fmt: skip
def test_even_a_signed_manifest_has_one_spelling(
    bundle: Path, spell: Callable[[bytes], bytes], code: str
) -> None:
    resigned(bundle, spell((bundle / "manifest.json").read_bytes()))
    assert codes(bundle) == {("manifest.json", code)}


@pytest.mark.parametrize(
    "changes",
    [
        {"benchmark_id": "other-v1"},
        {"benchmark_version": "2.0.0"},
        {"run_id": LABEL},
        {"protocol_id": LABEL},
        {"schemas": {}},
        {"schemas": {"run": LABEL}},
    ],
    ids=str,
)
def test_receipt_and_manifest_must_say_the_same(bundle: Path, changes: dict[str, Any]) -> None:
    resigned(bundle, (bundle / "manifest.json").read_bytes(), **changes)
    assert codes(bundle) == {("receipt.dsse.json", "receipt.contradiction")}


def relisted(bundle: Path, **files: bytes | None) -> bytes:
    """Return a manifest in which some files have other contents or are left out."""
    manifest = parse_manifest((bundle / "manifest.json").read_bytes())
    entries = []
    for entry in manifest.files:
        data = files.get(entry.path, b"?")
        if data == b"?":
            entries.append(entry)
        elif data is not None:
            (bundle / entry.path).write_bytes(data)
            digest = sha256_label(data).removeprefix("sha256:")
            entries.append(replace(entry, size=len(data), sha256=digest))
        else:
            (bundle / entry.path).unlink()
    return replace(manifest, files=tuple(entries)).to_bytes()


def test_a_schema_of_the_bundles_own_is_refused(bundle: Path) -> None:
    """A runner that ships a laxer schema and signs it is still held to the verifier's."""
    path = "schemas/row-retrieval.v1.schema.json"
    resigned(bundle, relisted(bundle, **{path: b"true"}))
    assert codes(bundle) == {(path, "bundle.schema-differs")}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, f"by its receipt sealbench 0.1.0 of commit {'ab' * 20}; how"),
        ({"source_dirty": True}, f"of commit {'ab' * 20}, with changes that no commit has; how"),
        ({"source_commit": None, "source_dirty": None}, "of a commit that it does not name; how"),
        ({"runner_version": "0.0.9"}, "by its receipt sealbench 0.0.9 of commit"),
        (None, "which host.json names; how"),
    ],
)
def test_a_bundle_of_another_version_says_which_one_can_judge_it(
    bundle: Path, changes: dict[str, Any] | None, says: str
) -> None:
    names = ("plan", "results", "row-retrieval")
    other = {f"schemas/{name}.v1.schema.json": b"true" for name in names}
    manifest = relisted(bundle, **other)
    if changes is None:
        (bundle / "manifest.json").write_bytes(manifest)
        (bundle / "receipt.dsse.json").unlink()
    else:
        resigned(bundle, manifest, **changes)
    opening = examine(bundle, protocol_id=PROTOCOL_ID, trust=TRUST, allow_unsigned=True)
    with opening:
        (fault,) = opening.faults
    assert (fault.code, fault.file) == ("bundle.schema-differs", next(iter(other)))
    assert "its schemas (plan, results, row-retrieval) are not those of this verifier" in (
        fault.message
    )
    assert says in fault.message


@pytest.mark.parametrize("path", paths.REQUIRED)
def test_required_files_are_required(bundle: Path, path: str) -> None:
    resigned(bundle, relisted(bundle, **{path: None}))
    assert codes(bundle) == {(path, "bundle.required")}


def test_unknown_schemas_are_named(bundle: Path) -> None:
    manifest = parse_manifest((bundle / "manifest.json").read_bytes())
    odd = replace(manifest.files[0], schema="sealbench/unknown/v1")
    extra = FileEntry(
        path="schemas/extra.json", size=0, sha256=sha256_label(b"")[7:], role=Role.ARTIFACT,
        media_type="application/json",
    )  # fmt: skip
    files = sorted([odd, extra, *manifest.files[1:]], key=lambda entry: entry.path)
    resigned(bundle, replace(manifest, files=tuple(files)).to_bytes())
    (bundle / "schemas" / "extra.json").write_bytes(b"")
    assert codes(bundle) == {
        ("host.json", "bundle.schema-unknown"),
        ("schemas/extra.json", "bundle.schema-unknown"),
    }


# --- reading --------------------------------------------------------------------------------------


@pytest.fixture
def view(bundle: Path) -> Iterator[BundleView]:
    with open_bundle(bundle, protocol_id=PROTOCOL_ID, trust=TRUST) as opened:
        yield opened


def test_files_are_verified_by_the_read_that_serves(view: BundleView) -> None:
    with view.open_verified(ROWS_FILE) as stream:
        assert tuple(stream) == ROWS
    assert ROWS_FILE not in {entry.path for entry in view.unverified}
    assert view.read_verified("plan.json") == b'{"schema":"sealbench/plan/v1"}'
    with view.open_verified("host.json") as stream:
        stream.read(3)
    assert "host.json" in {entry.path for entry in view.unverified}


def test_a_change_after_opening_is_seen_at_the_end_of_the_read(
    bundle: Path, view: BundleView
) -> None:
    swap_rows(bundle)
    with view.open_verified(ROWS_FILE) as stream, pytest.raises(BundleError) as caught:
        for _ in stream:
            pass
    assert (caught.value.code, caught.value.where and caught.value.where.file) == (
        "bundle.digest", ROWS_FILE,
    )  # fmt: skip
    with pytest.raises(BundleError):
        view.read_verified(ROWS_FILE)
    assert {fault.file for fault in view.check_remaining()} == {ROWS_FILE}


def test_a_file_that_grows_while_it_is_read_is_refused(bundle: Path, view: BundleView) -> None:
    with view.open_verified(ROWS_FILE) as stream:
        append(bundle)
        with pytest.raises(BundleError) as caught:
            stream.read()
    assert caught.value.code == "bundle.size"


def test_a_file_that_shrinks_while_it_is_read_is_refused(bundle: Path, view: BundleView) -> None:
    with view.open_verified(ROWS_FILE) as stream:
        truncate(bundle)
        with pytest.raises(BundleError) as caught:
            stream.read()
    assert caught.value.code == "bundle.size"


def test_a_folder_swapped_for_a_link_after_opening_is_not_followed(
    bundle: Path, view: BundleView
) -> None:
    link_folder(bundle)
    with pytest.raises(BundleError) as caught:
        view.open_verified(ROWS_FILE)
    assert caught.value.code == "bundle.not-regular"


def test_the_view_stays_with_the_folder_that_was_opened(
    bundle: Path, view: BundleView, tmp_path: Path
) -> None:
    bundle.rename(tmp_path / "moved")
    bundle.mkdir()
    assert view.check_remaining() == ()


def test_only_listed_files_can_be_read(view: BundleView) -> None:
    for path in ("manifest.json", "../x", "rows", "none"):
        with pytest.raises(BundleError) as caught:
            view.open_verified(path)
        assert caught.value.code == "bundle.not-listed"


def test_small_reads_have_a_cap(view: BundleView) -> None:
    with pytest.raises(BundleError) as caught:
        view.read_verified("plan.json", limit=10)
    assert caught.value.code == "bundle.too-large"


def test_large_files_come_in_blocks(tmp_path: Path) -> None:
    line = b"x" * 999 + b"\n"
    rows = [line] * (3 * CHUNK // 1000)
    bundle = seal(tmp_path, rows=rows).path
    with open_bundle(bundle, protocol_id=PROTOCOL_ID, trust=TRUST) as view:
        with view.open_verified(ROWS_FILE) as stream:
            assert sum(1 for _ in stream) == len(rows)
        with view.open_verified(ROWS_FILE) as stream:
            assert stream.read(CHUNK * 2) == (line * len(rows))[: CHUNK * 2]
            stream.read()
        assert ROWS_FILE not in {entry.path for entry in view.unverified}


def test_nothing_stays_open(sealed: Path) -> None:
    def open_files() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = open_files()
    for options in ({}, {"protocol_id": LABEL}, {"trust": None}):
        faults_of(sealed, **options)
    with pytest.raises(BundleError):
        open_bundle(sealed, protocol_id=LABEL, trust=TRUST)
    assert open_files() == before


def test_an_unreadable_folder_is_a_fault(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def scandir(folder: int) -> Any:
        if stat.S_ISDIR(os.fstat(folder).st_mode) and os.fstat(folder).st_ino == inode:
            raise PermissionError(13, "Permission denied")
        return real(folder)

    inode = (bundle / "scores").stat().st_ino
    monkeypatch.setattr(os, "scandir", scandir)
    assert ("scores/", "bundle.unreadable") in codes(bundle)


# --- the manifest as a value ----------------------------------------------------------------------


def test_manifest_round_trip(sealed: Path) -> None:
    data = (sealed / "manifest.json").read_bytes()
    manifest = parse_manifest(data)
    assert manifest.to_bytes() == data
    assert manifest == parse_manifest(data)
    assert schemas.is_valid("bundle-manifest", json.loads(data))
    assert manifest.total_bytes == sum(entry.size for entry in manifest.files)
    assert {entry.path for entry in manifest.by_role(Role.LOG)} == {
        "logs/bm25/tiny.stderr.log", "logs/bm25/tiny.stdout.log",
    }  # fmt: skip
    assert "rows/bm25/tiny" in manifest.directories()


def test_too_many_files_are_refused() -> None:
    entry = FileEntry(path="x", size=0, sha256="ab" * 32, role=Role.LOG, media_type="text/plain")
    files = tuple(replace(entry, path=f"f{number:06d}") for number in range(paths.MAX_FILES + 1))
    manifest = BundleManifest(
        benchmark_id="a", benchmark_version="1", benchmark_digest=LABEL, run_id=LABEL, files=files
    )
    with pytest.raises(BundleError) as caught:
        manifest.to_bytes()
    assert caught.value.code == "bundle.too-many-files"


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("2026-01-31T12:00:00Z", True),
        ("2026-01-31T12:00:00.123456Z", True),
        ("2024-02-29T23:59:59Z", True),
        ("2023-02-29T23:59:59Z", False),
        ("2026-01-31T24:00:00Z", False),
        ("2026-01-31T23:59:60Z", False),
        ("2026-01-31T12:00:00.1234567Z", False),
        ("2026-01-31T12:00:00+00:00", False),
        ("2026-01-31T12:00:00", False),
        ("2026-01-31 12:00:00Z", False),
        ("2026-01-31T12:00:00Z\n", False),
        ("٢٠٢٦-01-31T12:00:00Z", False),
        ("", False),
    ],
)
def test_times(text: str, good: bool) -> None:
    assert (parse_utc(text) is not None) is good
