"""Images as archives: canonical whoever saved them, found by digest, obtained from wherever."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from runner.bundle import durable
from runner.engine.api import Engine
from runner.engine.fake import FakeEngine, fake_image
from runner.errors import ImageError, StorageError
from runner.imagelock import ImageLock, LockEntry, Locks
from runner.model import ImagePin
from runner.obtain import Sources, obtain
from runner.transport.imagefile import open_image_file
from runner.transport.registry import Registry
from runner.transport.transfer import archive_name, export_image, import_file
from tests.image_archives import (
    Archive,
    LoadingEngine,
    blob,
    digest,
    layer_tar,
    layout,
    saved,
    tar_of,
)

LAYERS = (layer_tar("one"), layer_tar("two"))
IMAGE = saved(*LAYERS)
PIN = ImagePin(name="some/tool", image_id=IMAGE.image_id)


def engine_with(*archives: Archive) -> LoadingEngine:
    engine = LoadingEngine()
    for archive in archives:
        engine.hold(fake_image(archive.image_id), tar_of(archive.files))
    return engine


def test_one_image_gives_one_archive_whoever_saved_it(tmp_path: Path) -> None:
    one = export_image(engine_with(IMAGE), PIN, tmp_path / "one.tar")
    # An engine that keeps layers elsewhere and in another order, with links for those that recur.
    other = replace(IMAGE, files=dict(sorted(IMAGE.files.items(), reverse=True)))
    two = export_image(engine_with(other), PIN, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    assert one.manifest_digest == two.manifest_digest
    assert one.image_id == IMAGE.image_id
    # What was exported is itself an archive that exports to the same bytes.
    engine = LoadingEngine()
    import_file(engine, tmp_path / "one.tar")
    export_image(engine, PIN, tmp_path / "three.tar")
    assert (tmp_path / "three.tar").read_bytes() == (tmp_path / "one.tar").read_bytes()


def test_a_layer_that_recurs_is_stored_once(tmp_path: Path) -> None:
    layer = layer_tar("x" * 5000)
    image = saved(layer, layer)
    pin = replace(PIN, image_id=image.image_id)
    export_image(engine_with(image), pin, tmp_path / "one.tar")
    assert (tmp_path / "one.tar").stat().st_size < 2 * len(layer)
    with open_image_file(tmp_path / "one.tar") as held:
        assert len(held.images[0].layers) == 2


@pytest.mark.parametrize("compressed", [False, True])
def test_an_oci_layout_keeps_its_manifest(tmp_path: Path, compressed: bool) -> None:
    image = layout(*LAYERS, compressed=compressed)
    (moved,) = import_file(LoadingEngine(), image.write(tmp_path / "image.tar"))
    assert moved.image_id == IMAGE.image_id
    assert blob(moved.manifest_digest) in image.files


def test_a_store_that_names_images_by_their_manifest(tmp_path: Path) -> None:
    path = layout(*LAYERS).write(tmp_path / "image.tar")
    engine = LoadingEngine(by_manifest=True)
    (moved,) = import_file(engine, path)
    assert list(engine.store) == [moved.manifest_digest]
    assert import_file(engine, path)[0].present is True
    pin = replace(PIN, manifest_digest=moved.manifest_digest)
    assert obtain(engine, [pin], Sources()) == {pin: "engine"}


def test_an_engine_that_makes_something_else_of_an_archive(tmp_path: Path) -> None:
    class Wrong(LoadingEngine):
        def load_image(self, archive: BinaryIO) -> tuple[str, ...]:
            archive.read()
            return ("sha256:" + "0" * 64,)

    with pytest.raises(ImageError) as caught:
        import_file(Wrong(), IMAGE.write(tmp_path / "image.tar"))
    assert caught.value.code == "image.load-mismatch"


def test_an_engine_that_saves_another_image(tmp_path: Path) -> None:
    engine = engine_with(IMAGE)
    engine.store[IMAGE.image_id] = tar_of(saved(layer_tar("other")).files)
    with pytest.raises(ImageError) as caught:
        export_image(engine, PIN, tmp_path / "one.tar")
    assert caught.value.code == "image.save-mismatch"
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "one.tar").write_text("mine")
    with pytest.raises(StorageError) as caught:
        export_image(engine_with(IMAGE), PIN, tmp_path / "one.tar")
    assert caught.value.code == "storage.occupied"
    assert (tmp_path / "one.tar").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["one.tar"]


def test_a_disk_that_fills_up_in_the_middle_of_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = IMAGE.write(tmp_path / "image.tar")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    written: list[int] = []
    write_all = durable.write_all

    def full(descriptor: int, data: bytes) -> None:
        written.append(len(data))
        if len(written) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(descriptor, data)

    monkeypatch.setattr(durable, "write_all", full)
    engine = LoadingEngine()
    with pytest.raises(StorageError) as caught:
        import_file(engine, path)
    assert caught.value.code == "storage.full"
    assert len(written) == 2
    assert (engine.store, list((tmp_path / "tmp").iterdir())) == ({}, [])


def test_a_disk_without_room_is_told_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 10

    monkeypatch.setattr("shutil.disk_usage", lambda _path: Usage)
    with pytest.raises(StorageError) as caught:
        import_file(LoadingEngine(), IMAGE.write(tmp_path / "image.tar"))
    assert caught.value.code == "storage.full"


def test_the_name_of_an_archive_is_safe() -> None:
    assert archive_name(PIN) == f"tool-{IMAGE.image_id[7:19]}.oci.tar"
    odd = replace(PIN, name="../../etc/pass wd")
    assert archive_name(odd).startswith("pass-wd-")


# Obtaining ------------------------------------------------------------------------------------


def archives(folder: Path, *images: Archive) -> Path:
    folder.mkdir()
    for index, image in enumerate(images):
        image.write(folder / f"{index}.tar")
    return folder


def test_what_the_engine_has_is_not_looked_for(tmp_path: Path) -> None:
    assert obtain(engine_with(IMAGE), [PIN, PIN], Sources(archives=tmp_path)) == {PIN: "engine"}


def test_the_archive_with_the_digest_is_found_among_others(tmp_path: Path) -> None:
    folder = archives(tmp_path / "images", saved(layer_tar("other")), IMAGE)
    (folder / "note.txt").write_text("no archive")
    engine = LoadingEngine()
    told: list[str] = []
    found = obtain(engine, [PIN], Sources(archives=folder, tell=told.append))
    assert found == {PIN: "archive"}
    assert list(engine.store) == [IMAGE.image_id]
    assert told == [f"image some/tool: archive, {IMAGE.image_id}"]


def test_a_wrong_archive_is_named_and_never_loaded(tmp_path: Path) -> None:
    folder = archives(tmp_path / "images", saved(layer_tar("other")))
    (folder / "damaged.tar").write_bytes(tar_of(IMAGE.files)[:2000])
    engine = LoadingEngine()
    with pytest.raises(ImageError) as caught:
        obtain(engine, [PIN], Sources(archives=folder))
    assert caught.value.code == "image.nowhere"
    assert "0.tar holds another image" in caught.value.message
    assert "damaged.tar" in caught.value.message
    assert engine.store == {}


def test_no_archive_at_all(tmp_path: Path) -> None:
    for place in (archives(tmp_path / "images"), tmp_path / "none.tar"):
        with pytest.raises(ImageError) as caught:
            obtain(LoadingEngine(), [PIN], Sources(archives=place))
        assert caught.value.code == "image.nowhere"


def test_a_tag_that_moved_does_not_matter() -> None:
    """Same name, another digest: names are for people."""
    other = saved(layer_tar("newer"))
    with pytest.raises(ImageError) as caught:
        obtain(engine_with(other), [PIN], Sources())
    assert caught.value.code == "image.nowhere"


def test_a_registry_is_asked_by_digest() -> None:
    manifest = "sha256:" + "cd" * 32
    pin = replace(PIN, manifest_digest=manifest, repository="example.invalid/tool")
    image = replace(fake_image(IMAGE.image_id), repo_digests=(f"{pin.repository}@{manifest}",))
    engine = FakeEngine(images=[], pullable=[image])
    assert obtain(engine, [pin], Sources()) == {pin: "registry"}


def locks(image_id: str) -> Locks:
    entry = LockEntry(image_id=image_id)
    return Locks(published=ImageLock(images={"tool": {"linux/amd64": entry}}, methods={}))


def test_a_rebuild_counts_only_when_its_digest_is_the_one() -> None:
    def right(engine: Engine, name: str) -> None:
        assert name == "tool"
        assert isinstance(engine, LoadingEngine)
        engine.hold(fake_image(IMAGE.image_id), b"")

    def wrong(engine: Engine, _name: str) -> None:
        assert isinstance(engine, LoadingEngine)
        engine.hold(fake_image("sha256:" + "1" * 64), b"")

    known = locks(IMAGE.image_id)
    assert obtain(LoadingEngine(), [PIN], Sources(rebuild=right, locks=known)) == {PIN: "built"}
    with pytest.raises(ImageError):
        obtain(LoadingEngine(), [PIN], Sources(rebuild=wrong, locks=known))


def test_an_image_that_the_lock_does_not_have_is_not_rebuilt() -> None:
    def never(_engine: Engine, name: str) -> None:
        raise AssertionError(name)

    for known in (Locks(), locks("sha256:" + "2" * 64)):
        with pytest.raises(ImageError):
            obtain(LoadingEngine(), [PIN], Sources(rebuild=never, locks=known))


def test_the_platform_is_part_of_the_identity() -> None:
    with pytest.raises(ImageError) as caught:
        obtain(engine_with(IMAGE), [replace(PIN, platform="linux/arm64")], Sources())
    assert caught.value.code == "image.platform"


# Registries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["tool", "host/tool:1", "host/tool@sha256:0", "https://h/t", "h/T"]
)
def test_a_repository_is_a_host_and_a_name(name: str) -> None:
    with pytest.raises(ImageError) as caught:
        Registry(name)
    assert caught.value.code == "image.bad-repository"


def test_only_loopback_goes_without_tls() -> None:
    assert [
        Registry(f"{host}/tool")._secure
        for host in (
            "127.0.0.1:5000",
            "localhost:1",
            "[::1]:5000",
            "example.invalid",
            "10.0.0.1:5000",
        )
    ] == [False, False, False, True, True]


def test_an_upload_never_follows_to_another_host() -> None:
    registry = Registry("127.0.0.1:5000/tool")
    assert registry._own("/v2/tool/blobs/uploads/1?state=x") == "/v2/tool/blobs/uploads/1?state=x"
    assert registry._own("http://127.0.0.1:5000/up") == "/up"
    for place in ("http://example.invalid/up", "http://127.0.0.1:5001/up", "//example.invalid/up"):
        with pytest.raises(ImageError) as caught:
            registry._own(place)
        assert caught.value.code == "image.push-failed"


def test_digests_of_the_samples_are_those_of_their_content() -> None:
    assert (
        saved(*LAYERS).image_id
        == layout(*LAYERS).image_id
        == digest(
            next(data for name, data in IMAGE.files.items() if name.startswith(IMAGE.image_id[7:]))
        )
    )
