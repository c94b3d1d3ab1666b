"""Writing: all or nothing, whatever fails and whenever; nothing but what was registered."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runner import schemas
from runner.bundle import durable
from runner.bundle.manifest import Role, parse_manifest
from runner.bundle.read import examine
from runner.bundle.write import LOG, SCORES, BundleWriter
from runner.errors import BundleError, SealbenchError, StorageError
from tests.unit.bundle_files import (
    INFO,
    KEY,
    PROTOCOL_ID,
    ROWS,
    TRUST,
    claims,
    files_of,
    seal,
    stage,
)

ROOT = Path(__file__).resolve().parents[2]


def faults_of(bundle: Path) -> list[str]:
    with examine(bundle, protocol_id=PROTOCOL_ID, trust=TRUST) as opening:
        found = list(opening.faults)
        if opening.view is not None:
            found += opening.view.check_remaining()
    return [str(fault) for fault in found]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_sealed_bundle_is_what_the_layout_says(tmp_path: Path) -> None:
    sealed = seal(tmp_path / "out")
    assert sealed.path == tmp_path / "out" / "bundle"
    assert names(tmp_path / "out") == ["bundle", "bundle.sigs"]
    assert names(tmp_path / "out" / "bundle.sigs") == ["manifest.json.sig"]
    data = (sealed.path / "manifest.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == sealed.manifest_sha256
    manifest = parse_manifest(data)
    listed = [entry.path for entry in manifest.files]
    assert files_of(sealed.path) == sorted([*listed, "manifest.json", "receipt.dsse.json"])
    rows = manifest.entry("rows/bm25/tiny/part-00000.jsonl")
    assert (rows.rows, rows.role, rows.schema) == (2, Role.ROWS, "sealbench/row-retrieval/v1")
    assert (sealed.path / rows.path).read_bytes() == b"".join(ROWS)
    assert faults_of(sealed.path) == []


def test_the_rows_of_a_table_are_those_below_its_header(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "test") as writer:
        cases = {b"": 0, b"a,b\n": 0, b"a,b\n1,2\n3,4\n": 2}
        for number, (data, rows) in enumerate(cases.items()):
            assert writer.add_bytes(f"scores/m/d{number}.csv", data, SCORES).rows == rows
        assert writer.add_bytes("outcomes.jsonl", b"{}\n{}\n").rows == 2
        assert writer.add_bytes("run.yaml", b"a: 1\n").rows is None


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = seal(tmp_path / "a").path, seal(tmp_path / "b").path
    assert files_of(first) == files_of(second)
    for name in files_of(first):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        bundle = seal(tmp_path).path
    finally:
        os.umask(before)
    for path in [bundle, *bundle.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)


def test_schema_copies_are_those_that_the_files_name(tmp_path: Path) -> None:
    sealed = seal(tmp_path)
    copies = {path.name.split(".")[0]: path for path in (sealed.path / "schemas").iterdir()}
    assert sorted(copies) == [
        "bundle-manifest", "host", "images", "outcome", "plan", "protocol", "receipt", "results",
        "row-retrieval", "run",
    ]  # fmt: skip
    for kind, path in copies.items():
        assert path.read_bytes() == schemas.schema_bytes(kind)
        assert sealed.claims.schemas[kind] == f"sha256:{schemas.schema_sha256(kind)}"


def test_an_unsigned_bundle_has_no_receipt_and_says_so(tmp_path: Path) -> None:
    sealed = seal(tmp_path, key=None)
    assert not sealed.signed
    assert not (sealed.path / "receipt.dsse.json").exists()
    assert names(tmp_path) == ["bundle"]
    assert [text.rpartition("[")[2] for text in faults_of(sealed.path)] == ["bundle.unsigned]"]


@pytest.mark.parametrize("taken", ["bundle", "bundle.sigs", "bundle.tar"])
@pytest.mark.parametrize("kind", ["file", "empty folder", "full folder", "dangling link"])
def test_nothing_is_ever_overwritten(tmp_path: Path, taken: str, kind: str) -> None:
    target = tmp_path / taken
    if kind == "file":
        target.write_bytes(b"mine")
    elif kind == "dangling link":
        target.symlink_to(tmp_path / "nowhere")
    else:
        target.mkdir()
        if kind == "full folder":
            (target / "mine").write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        BundleWriter(tmp_path, "test")
    assert caught.value.code == "storage.occupied"
    assert names(tmp_path) == [taken]


@pytest.mark.parametrize("without_syscall", [False, True])
def test_a_target_that_appears_while_staging_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_syscall: bool
) -> None:
    """The trap: os.rename onto an *empty* existing folder succeeds silently."""
    if without_syscall:
        monkeypatch.setattr(durable, "_rename_no_replace", lambda *_: False)
    with BundleWriter(tmp_path, "test") as writer:
        stage(writer)
        (tmp_path / "bundle").mkdir()
        with pytest.raises(StorageError) as caught:
            writer.seal(claims(), key=KEY, info=INFO)
        assert caught.value.code == "storage.occupied"
        assert names(tmp_path / "bundle") == []
        (tmp_path / "bundle").rmdir()
        sealed = writer.seal(claims(), key=KEY, info=INFO)  # and sealing can be tried again
    assert faults_of(sealed.path) == []


def test_the_trap_is_real(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").rename(tmp_path / "empty")
    assert names(tmp_path) == ["empty"]
    with pytest.raises(StorageError):
        (tmp_path / "again").mkdir()
        durable.rename_new(tmp_path / "empty", tmp_path / "again")


def test_two_writers_of_one_bundle_do_not_meet(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "test") as first:
        with pytest.raises(StorageError) as caught:
            BundleWriter(tmp_path, "test")
        assert caught.value.code == "storage.busy"
        stage(first)
        first.seal(claims(), key=KEY, info=INFO)


def test_what_a_dead_process_left_is_emptied(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "test") as writer:
        stage(writer)
        (writer.staging / "link").symlink_to(tmp_path)
    assert names(tmp_path) == [".partial-test"]
    sealed = seal(tmp_path)
    assert faults_of(sealed.path) == []
    assert "link" not in names(sealed.path)


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "../up", "a/../b", "a//b", "a/", "./a", ".hidden", "a/.b", "UPPER",
        "sp ace", "new\nline", "a\n", "é", "a\\b", "x" * 65, "/".join(["x" * 50] * 2) + "y",
        "manifest.json", "receipt.dsse.json",
    ],
)  # fmt: skip
def test_odd_paths_are_refused(tmp_path: Path, path: str) -> None:
    with BundleWriter(tmp_path, "test") as writer, pytest.raises(BundleError) as caught:
        writer.add_bytes(path, b"", LOG)
    assert caught.value.code == "bundle.path"
    assert names(tmp_path / ".partial-test") == []


def test_the_longest_path_fits(tmp_path: Path) -> None:
    path = "/".join(["x" * 49, "y" * 50])
    assert len(path) == 100
    with BundleWriter(tmp_path, "test") as writer:
        assert writer.add_bytes(path, b"", LOG).path == path


def test_files_are_copied_and_odd_sources_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff" * 3_000_000)
    (tmp_path / "link").symlink_to(tmp_path / "log")
    os.mkfifo(tmp_path / "fifo")
    with BundleWriter(tmp_path / "out", "test") as writer:
        entry = writer.add_file("logs/a.log", tmp_path / "log", LOG)
        assert entry.sha256 == hashlib.sha256(b"\xff" * 3_000_000).hexdigest()
        for name in ("link", "fifo", "none", "out"):
            with pytest.raises(StorageError) as caught:
                writer.add_file(f"logs/{name}", tmp_path / name, LOG)
            assert caught.value.code == "storage.source"


def unregistered(writer: BundleWriter) -> None:
    (writer.staging / "rows" / "extra.jsonl").write_bytes(b"")


def replaced(writer: BundleWriter) -> None:
    (writer.staging / "host.json").unlink()
    (writer.staging / "host.json").symlink_to("images.json")


def longer(writer: BundleWriter) -> None:
    with (writer.staging / "host.json").open("ab") as stream:
        stream.write(b" ")


def gone(writer: BundleWriter) -> None:
    (writer.staging / "host.json").unlink()


def still_open(writer: BundleWriter) -> None:
    writer.open_part("logs/open.log", LOG)


def required(writer: BundleWriter) -> None:
    writer.discard("results.json")


def a_file_for_a_folder(writer: BundleWriter) -> None:
    writer.add_bytes("scores/bm25/x.csv", b"", SCORES)
    writer._register(replace(writer.entries[0], path="scores/bm25"))


@pytest.mark.parametrize(
    ("spoil", "code", "file"),
    [
        (unregistered, "bundle.unlisted", "rows/extra.jsonl"),
        (replaced, "bundle.changed", "host.json"),
        (longer, "bundle.changed", "host.json"),
        (gone, "bundle.changed", "host.json"),
        (still_open, "bundle.open-part", "logs/open.log"),
        (required, "bundle.required", "results.json"),
        (a_file_for_a_folder, "bundle.path-clash", "manifest.json"),
    ],
)
def test_what_is_not_as_registered_is_not_sealed(
    tmp_path: Path, spoil: Callable[[BundleWriter], None], code: str, file: str
) -> None:
    with BundleWriter(tmp_path, "test") as writer:
        stage(writer)
        spoil(writer)
        with pytest.raises(BundleError) as caught:
            writer.seal(claims(), key=KEY, info=INFO)
    assert caught.value.code == code
    assert caught.value.where is not None
    assert caught.value.where.file == file
    assert names(tmp_path) == [".partial-test"]


def test_a_path_is_added_once(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "test") as writer:
        writer.add_bytes("logs/a.log", b"1", LOG)
        writer.open_part("logs/b.log", LOG)
        for path in ("logs/a.log", "logs/b.log"):
            with pytest.raises(BundleError) as caught:
                writer.add_bytes(path, b"2", LOG)
            assert caught.value.code == "bundle.duplicate-path"
        with pytest.raises(BundleError) as caught:
            writer.add_bytes("notes.txt", b"")
        assert caught.value.code == "bundle.kind"


def test_impossible_claims_leave_nothing(tmp_path: Path) -> None:
    with BundleWriter(tmp_path, "test") as writer:
        stage(writer)
        with pytest.raises(BundleError):
            writer.seal(claims(finished="2020-01-01T00:00:00Z"), key=KEY, info=INFO)
        assert names(tmp_path) == [".partial-test"]
        sealed = writer.seal(claims(), key=KEY, info=INFO)
    assert faults_of(sealed.path) == []


@pytest.mark.parametrize("bundle_id", ["", "../x", "a/b", ".x", "x" * 65])
def test_odd_ids_are_refused(tmp_path: Path, bundle_id: str) -> None:
    with pytest.raises(BundleError):
        BundleWriter(tmp_path, bundle_id)


def test_a_link_in_place_of_the_staging_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".partial-test").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        BundleWriter(tmp_path, "test")


def seal_or_fail(folder: Path) -> SealbenchError | None:
    try:
        seal(folder)
    except SealbenchError as error:
        return error
    return None


def test_a_full_disk_is_an_error_and_never_half_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    budget = 0

    def limited(descriptor: int, data: bytes) -> int:
        nonlocal budget
        if budget <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = real(descriptor, data[:budget])  # the last write before the end is a short one
        budget -= count
        return count

    total = sum(path.stat().st_size for path in seal(tmp_path / "x").path.rglob("*"))
    outcomes = []
    for step in range(0, total * 2, 7_001):
        folder, budget = tmp_path / str(step), step
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", limited)
            error = seal_or_fail(folder)
        outcomes.append(error is None)
        if error is not None:
            assert isinstance(error, StorageError)
            assert error.code == "storage.full"
            if (folder / "bundle").exists():  # then only the convenience beside it is missing
                assert faults_of(folder / "bundle") == []
    assert outcomes[0] is False
    assert outcomes[-1] is True


@pytest.mark.parametrize("number", [errno.EIO, errno.EDQUOT, errno.EROFS])
def test_a_failing_fsync_is_not_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def failing(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    assert isinstance(seal_or_fail(tmp_path), StorageError)
    assert "bundle" not in names(tmp_path)


def test_the_order_on_disk_is_the_one_that_survives_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, manifest, receipt last, folders, rename, parent; no file is written after that."""
    trace: list[tuple[str, str]] = []
    fsync, rename = os.fsync, durable._rename_no_replace

    def traced_fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        trace.append(("fsync", str(path.relative_to(tmp_path))))
        fsync(descriptor)

    def traced_rename(source: Path, target: Path) -> bool:
        trace.append(("rename", str(target.relative_to(tmp_path))))
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(durable, "_rename_no_replace", traced_rename)
    bundle = seal(tmp_path / "out").path
    at = trace.index(("rename", "out/bundle"))
    before = [path.removeprefix("out/.partial-test").lstrip("/") for _, path in trace[:at]]
    files = files_of(bundle)
    folders = [str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_dir()]
    assert sorted(before[: len(files)]) == files
    assert before[len(files) - 2 : len(files)] == ["manifest.json", "receipt.dsse.json"]
    assert sorted(before[len(files) :]) == sorted([*folders, ""])
    assert before[-1] == ""
    for folder in folders:
        parent = str(Path(folder).parent)
        assert before.index(folder) < before.index("" if parent == "." else parent)
    assert trace[at + 1] == ("fsync", "out")
    assert all("bundle.sigs" in path or path == "out" for _, path in trace[at + 2 :])


@pytest.mark.slow
def test_killed_at_any_step_there_is_no_bundle_or_a_whole_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.bundle_crash", str(tmp_path)],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert int(done.stdout) > 150
    whole = 0
    for place in tmp_path.iterdir():
        if (place / "bundle").exists():
            assert faults_of(place / "bundle") == []
            whole += 1
        elif place.exists():
            assert {name for name in names(place) if not name.startswith(".partial-")} == set()
    assert 2 < whole < int(done.stdout) / 2  # some died after the rename, most before it
