"""Files that people name: no fifo blocks, no device fills memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import imagelock, trust
from runner.bundle.archive import import_archive
from runner.config_freeze import read_freeze_file
from runner.errors import SealbenchError
from runner.files import read_regular
from runner.imagelock import load_lock
from runner.protocol.load import load_protocol


def test_a_regular_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("f")
    assert read_regular(tmp_path / "f", 9) == b"12345"
    assert read_regular(tmp_path / "link", 3) == b"123"


@pytest.mark.parametrize("read", [load_protocol, load_lock, trust.load, read_freeze_file])
def test_what_is_no_file_is_refused_at_once(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(SealbenchError, match=r"regular file|directory"):
            read(path)


def test_an_archive_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "b.tar")
    with pytest.raises(SealbenchError, match="no regular file"):
        import_archive(tmp_path / "b.tar", tmp_path / "bundle", trust=None)
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]


def test_a_broken_local_lock_may_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = tmp_path / "images.local.json"
    local.write_text("{")
    monkeypatch.setattr(imagelock, "LOCAL_LOCK", local)
    with pytest.raises(SealbenchError) as caught:
        load_lock(local)
    assert caught.value.fix.startswith("delete the file")


def test_a_trust_file_has_a_size(tmp_path: Path) -> None:
    with (tmp_path / "trust.json").open("wb") as stream:
        stream.truncate(trust.MAX_TRUST_BYTES + 1)
    with pytest.raises(SealbenchError, match="too large"):
        trust.load(tmp_path / "trust.json")
