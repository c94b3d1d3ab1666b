"""Layers: the tree decides their bytes, and nothing gets out of the tree."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from runner.errors import ImageError
from runner.imagebuild.layers import SOURCE_DATE_EPOCH, Layer, unpack_layer, write_layer
from runner.imagebuild.tree import Tree


def small_tree(root: Path, *, backwards: bool = False) -> Tree:
    tree = Tree(root)
    files = [("usr/bin/tool", b"#!x\n", True, "p"), ("etc/ü.conf", b"1\n", False, "q")]
    files.append(("a/" + "n" * 150, b"", False, "p"))
    if not backwards:
        tree.add_link("usr/bin/alias", "tool", package="p")
    for path, content, executable, package in reversed(files) if backwards else files:
        tree.add_file(path, io.BytesIO(content), executable=executable, package=package)
    if backwards:
        tree.add_link("usr/bin/alias", "tool", package="p")
    tree.add_folder("tmp", package="f", mode=0o1777)
    return tree


def layer_of(tree: Tree, path: Path) -> Layer:
    return write_layer(tree, "l", {"p": "1.0", "q": None, "f": None}, path)


def test_bytes_do_not_depend_on_order_time_umask_or_place(tmp_path: Path) -> None:
    first = layer_of(small_tree(tmp_path / "one"), tmp_path / "one.tar")
    before = os.umask(0o077)
    try:
        again = small_tree(tmp_path / "another place", backwards=True)
        os.utime(again.root / "usr/bin/tool", (1, 1))
        second = layer_of(again, tmp_path / "two.tar")
    finally:
        os.umask(before)
    assert first.diff_id == second.diff_id
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    assert {k: v for k, v in first.packages.items() if k != "a"} == dict(second.packages)


def test_the_format_never_changes_by_accident(tmp_path: Path) -> None:
    layer = layer_of(small_tree(tmp_path / "t"), tmp_path / "t.tar")
    # Whoever changes this changes the digest of every image: raise BUILDER, write the locks anew.
    assert layer.diff_id == (
        "sha256:8534f790568245f0cc3044297215a0a87ee2d9ab0f3e75fe7fad25a53b9fa03d"
    )
    assert layer.size == (tmp_path / "t.tar").stat().st_size


def test_the_tar_holds_fixed_owners_times_and_modes(tmp_path: Path) -> None:
    layer_of(small_tree(tmp_path / "t"), tmp_path / "t.tar")
    with tarfile.open(tmp_path / "t.tar") as archive:
        members = archive.getmembers()
    assert [m.name for m in members] == [
        "a",
        "a/" + "n" * 150,
        "etc",
        "etc/ü.conf",
        "tmp",
        "usr",
        "usr/bin",
        "usr/bin/alias",
        "usr/bin/tool",
    ]
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {
        (0, 0, "", "", SOURCE_DATE_EPOCH)
    }
    modes = {m.name: m.mode for m in members}
    assert modes["usr/bin/tool"] == 0o755
    assert modes["etc/ü.conf"] == 0o644
    assert modes["tmp"] == 0o1777
    assert modes["usr"] == 0o755


def test_a_changed_file_changes_its_own_package_only(tmp_path: Path) -> None:
    first = layer_of(small_tree(tmp_path / "one"), tmp_path / "one.tar")
    tree = small_tree(tmp_path / "two")
    (tree.root / "etc/ü.conf").write_bytes(b"2\n")
    second = layer_of(tree, tmp_path / "two.tar")
    assert first.diff_id != second.diff_id
    assert first.packages["p"] == second.packages["p"]
    assert first.packages["q"] != second.packages["q"]
    assert first.packages["p"].version == "1.0"


def test_a_layer_unpacks_to_what_it_was_made_of(tmp_path: Path) -> None:
    layer = layer_of(small_tree(tmp_path / "t"), tmp_path / "t.tar")
    unpack_layer(layer.path, tmp_path / "out")
    assert (tmp_path / "out/usr/bin/alias").read_bytes() == b"#!x\n"
    assert os.access(tmp_path / "out/usr/bin/tool", os.X_OK)
    assert hashlib.sha256(layer.path.read_bytes()).hexdigest() == layer.diff_id[7:]


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "", ".", "a\0b"])
def test_paths_outside_the_image_are_refused(tmp_path: Path, path: str) -> None:
    tree = Tree(tmp_path / "t")
    with pytest.raises(ImageError) as caught:
        tree.add_file(path, io.BytesIO(b""), executable=False, package="evil")
    assert caught.value.code == "image.bad-path"
    assert list((tmp_path / "t").iterdir()) == []


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    tree = Tree(tmp_path / "t")
    tree.add_link("etc", str(outside), package="evil")
    with pytest.raises(ImageError) as caught:
        tree.add_file("etc/passwd", io.BytesIO(b"x"), executable=False, package="evil")
    assert caught.value.code == "image.not-a-folder"
    assert list(outside.iterdir()) == []


def test_one_path_from_two_packages_is_an_error_that_names_both(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "t")
    tree.add_file("a", io.BytesIO(b""), executable=False, package="first")
    with pytest.raises(ImageError, match="first and again by second"):
        tree.add_file("a", io.BytesIO(b""), executable=False, package="second")
