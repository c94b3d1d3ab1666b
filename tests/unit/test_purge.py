"""Whatever a method built is removed, and nothing beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.errors import StorageError
from runner.purge import purge


def build_chain(folder: Path, depth: int) -> None:
    """A chain of folders deeper than any path may be, with a file at its end."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("leaf", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


def test_every_kind_of_entry(tmp_path: Path) -> None:
    out, beside = tmp_path / "out", tmp_path / "beside"
    beside.mkdir()
    (beside / "kept").write_bytes(b"kept")
    for folder in (out / "a" / "b", out / "a" / "c", out / "d"):
        folder.mkdir(parents=True)
        (folder / "file").touch()
        (folder / "link").symlink_to(beside)
        os.mkfifo(folder / "fifo")
    (Path(os.fsdecode(os.fsencode(out) + b"/\xff\n"))).mkdir()
    purge(out)
    assert not out.exists()
    assert (beside / "kept").read_bytes() == b"kept"


def test_depth(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    build_chain(out, 3000)
    purge(out)
    assert not out.exists()


def test_breadth(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for first in range(30):
        (out / f"{first}").mkdir(parents=True)
        for second in range(60):
            (out / f"{first}" / f"{second}").mkdir()
            (out / f"f{first}-{second}").touch()
    purge(out)
    assert not out.exists()


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o444])
def test_folders_without_rights(tmp_path: Path, mode: int) -> None:
    out = tmp_path / "out"
    (out / "a" / "b" / "c").mkdir(parents=True)
    (out / "a" / "b" / "c" / "file").touch()
    for folder in (out / "a" / "b" / "c", out / "a" / "b", out / "a", out):
        folder.chmod(mode)
    if os.geteuid() == 0:
        as_an_ordinary_user(tmp_path, lambda: purge(Path("out")))
    else:
        purge(out)
    assert not out.exists()


def as_an_ordinary_user(folder: Path, act: Callable[[], None]) -> None:
    """Run ``act`` within ``folder`` in a child that gave up root, over files that are its own."""
    for path in [folder, *folder.rglob("*")]:
        os.lchown(path, 65534, 65534)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(folder)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            act()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_absent_is_no_error(tmp_path: Path) -> None:
    purge(tmp_path / "absent")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    with pytest.raises(StorageError) as caught:
        purge(tmp_path / "link")
    assert caught.value.code == "storage.not-removable"
    assert (tmp_path / "kept").is_dir()
