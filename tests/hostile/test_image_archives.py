"""Image archives that lie: each is refused, its file named, and nothing reaches the engine."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.errors import ImageError
from runner.transport import spool, tarindex
from runner.transport.imagefile import open_image_file
from runner.transport.transfer import import_file
from tests.image_archives import (
    Archive,
    LoadingEngine,
    blob,
    config_of,
    digest,
    layer_tar,
    layout,
    saved,
    tar_of,
)

LAYER = layer_tar()


def refused(path: Path) -> str:
    """Import; return the code of the refusal."""
    engine = LoadingEngine()
    with pytest.raises(ImageError) as caught:
        import_file(engine, path)
    assert engine.store == {}
    assert caught.value.where is not None
    assert caught.value.where.file == str(path)
    return caught.value.code


def flipped(data: bytes) -> bytes:
    """Change one bit of a layer's content."""
    return data[:520] + bytes([data[520] ^ 1]) + data[521:]


def changed(archive: Archive, name: str, change: Callable[[bytes], bytes]) -> Archive:
    return archive.with_file(name, change(archive.files[name]))


@pytest.mark.parametrize(
    ("archive", "code"),
    [
        (changed(saved(LAYER), "0/layer.tar", flipped), "archive.digest"),
        (changed(layout(LAYER), blob(digest(LAYER)), flipped), "archive.digest"),
        (saved(LAYER).with_file("0/layer.tar", None), "archive.incomplete"),
        (saved(LAYER).with_file("0/layer.tar", gzip.compress(LAYER)), "archive.compressed"),
        (saved(LAYER).with_file("0/layer.tar", b"\x28\xb5\x2f\xfd...."), "archive.compressed"),
        (saved(LAYER).with_file("manifest.json", b"{}"), "archive.manifest"),
        (saved(LAYER).with_file("manifest.json", b"[{}]"), "archive.manifest"),
        (saved(LAYER).with_file("manifest.json", b"[" * 100_000), "archive.not-json"),
        (saved(LAYER).with_file("manifest.json", b"[]"), "archive.empty"),
        (saved(LAYER).with_file("manifest.json", None), "archive.empty"),
        (
            layout(LAYER).with_file("index.json", b'{"manifests":[{"digest":"x"}]}'),
            "archive.digest",
        ),
        (layout(LAYER).with_file("index.json", b'{"a":1,"a":2}'), "archive.not-json"),
        (layout(LAYER).with_file("index.json", b" " * (5 << 20)), "archive.too-large"),
        (saved(LAYER, rootfs={"diff_ids": []}), "archive.config"),
        (saved(LAYER, rootfs={"diff_ids": ["md5:1"]}), "archive.config"),
        (saved(LAYER, os="../../etc"), "archive.config"),
    ],
)
def test_content_that_is_not_what_its_digest_says(
    tmp_path: Path, archive: Archive, code: str
) -> None:
    assert refused(archive.write(tmp_path / "image.tar")) == code


def test_a_config_that_was_replaced_under_its_old_name(tmp_path: Path) -> None:
    archive = saved(LAYER)
    name = f"{archive.image_id.partition(':')[2]}.json"
    other = archive.with_file(name, config_of(LAYER, architecture="arm64"))
    assert refused(other.write(tmp_path / "image.tar")) == "archive.digest"


def test_a_manifest_that_names_another_config_is_another_image(tmp_path: Path) -> None:
    archive, other = saved(LAYER), saved(layer_tar("other"))
    path = other.write(tmp_path / "image.tar")
    engine = LoadingEngine()
    with pytest.raises(ImageError) as caught:
        import_file(engine, path, frozenset({archive.image_id}))
    assert caught.value.code == "archive.other-image"
    assert other.image_id in caught.value.message
    assert engine.store == {}


def member(name: str, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(made, key, value)
    return made


def raw(*members: tuple[tarfile.TarInfo, bytes], fmt: int = tarfile.USTAR_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=fmt) as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data) if data else None)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (raw((member("../escape"), b"x")), "archive.name"),
        (raw((member("/etc/passwd"), b"x")), "archive.name"),
        (raw((member("a/../../b"), b"x")), "archive.name"),
        (raw((member("a\nb"), b"x")), "archive.name"),
        (raw((member("a"), b"1"), (member("./a"), b"2")), "archive.duplicate"),
        (raw((member("f", type=tarfile.FIFOTYPE), b"")), "archive.kind"),
        (raw((member("d", type=tarfile.BLKTYPE), b"")), "archive.kind"),
        (raw((member("l", type=tarfile.SYMTYPE, linkname="/etc/shadow"), b"")), "archive.name"),
        (raw((member("l", type=tarfile.SYMTYPE, linkname="../x"), b"")), "archive.name"),
        (raw((member("l", type=tarfile.SYMTYPE, linkname="nothing"), b"")), "archive.link"),
        (raw((member("l", type=tarfile.LNKTYPE, linkname="l"), b"")), "archive.link"),
        (raw((member("n" * 300), b"x"), fmt=tarfile.PAX_FORMAT), "archive.name"),
        (raw((member("p", pax_headers={"path": "../up"}), b"x"), fmt=tarfile.PAX_FORMAT),
         "archive.name"),
        (raw((member("p", pax_headers={"size": "9" * 15}), b"x"), fmt=tarfile.PAX_FORMAT),
         "archive.truncated"),
        (raw((member("p", pax_headers={"GNU.sparse.major": "1"}), b"x"), fmt=tarfile.PAX_FORMAT),
         "archive.kind"),
        (raw((member("p", pax_headers={"comment": "x" * (1 << 17)}), b"x"), fmt=tarfile.PAX_FORMAT),
         "archive.header"),
        (raw((member("\u00e9"), b"x"), fmt=tarfile.GNU_FORMAT), "archive.name"),
        (tar_of(saved(LAYER).files) + tar_of({"second": b"x"}), "archive.trailing"),
        (tar_of(saved(LAYER).files)[:3000], "archive.truncated"),
        (b"", "archive.truncated"),
        (b"not a tar archive" * 100, "archive.header"),
        (gzip.compress(tar_of(saved(LAYER).files)), "archive.compressed"),
    ],
)  # fmt: skip
def test_archives_that_are_no_plain_archive(tmp_path: Path, data: bytes, code: str) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(data)
    assert refused(path) == code


def test_every_flipped_bit_of_a_header_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    good = tar_of(saved(LAYER).files)
    path = tmp_path / "image.tar"
    for position in range(0, 512, 7):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        try:
            (moved,) = import_file(LoadingEngine(), path)
        except ImageError:
            continue
        assert moved.image_id == saved(LAYER).image_id


def test_a_fifo_and_a_folder_are_no_archives(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name, code in (("fifo", "not-regular"), ("folder", "not-regular"), ("none", "missing")):
        assert refused(tmp_path / name) == f"archive.{code}"


def test_a_crowd_of_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tarindex, "MAX_MEMBERS", 3)
    path = tmp_path / "image.tar"
    path.write_bytes(tar_of({str(number): b"" for number in range(4)}))
    assert refused(path) == "archive.too-many"


def test_a_layer_that_unpacks_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MAX_UNPACKED", 1 << 20)
    path = layout(bytes(8 << 20), compressed=True).write(tmp_path / "image.tar")
    assert path.stat().st_size < 1 << 16
    assert refused(path) == "archive.too-large"


@pytest.mark.parametrize("tail", [b"trailing", gzip.compress(b"second member")])
def test_bytes_behind_a_compressed_layer(tmp_path: Path, tail: bytes) -> None:
    archive = layout(LAYER, compressed=True)
    packed = gzip.compress(LAYER, mtime=0)
    longer = packed + tail
    manifest_name = next(name for name in archive.files if b"schemaVersion" in archive.files[name]
                         and name.startswith("blobs/"))  # fmt: skip
    manifest = json.loads(archive.files[manifest_name])
    manifest["layers"][0].update(digest=digest(longer), size=len(longer))
    data = json.dumps(manifest).encode()
    index = json.loads(archive.files["index.json"])
    index["manifests"][0].update(digest=digest(data), size=len(data))
    other = archive.with_file(blob(digest(longer)), longer).with_file(blob(digest(data)), data)
    other = other.with_file("index.json", json.dumps(index).encode())
    assert refused(other.write(tmp_path / "image.tar")) == "archive.trailing"


def test_indexes_within_indexes_end_somewhere(tmp_path: Path) -> None:
    kind = "application/vnd.oci.image.index.v1+json"
    archive = layout(LAYER)
    inner = archive.files["index.json"]
    for _ in range(4):
        archive = archive.with_file(blob(digest(inner)), inner)
        one = {"mediaType": kind, "digest": digest(inner), "size": len(inner)}
        inner = json.dumps({"mediaType": kind, "manifests": [one]}).encode()
    path = archive.with_file("index.json", inner).write(tmp_path / "image.tar")
    assert refused(path) == "archive.index"


def test_reading_an_archive_writes_nothing(tmp_path: Path) -> None:
    path = saved(LAYER).write(tmp_path / "image.tar")
    before = sorted(tmp_path.iterdir())
    with open_image_file(path) as held:
        assert [image.image_id for image in held.images] == [saved(LAYER).image_id]
    assert sorted(tmp_path.iterdir()) == before
