"""Part files are whole or absent, of bounded size, and owned by us."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from runner.errors import StorageError
from runner.parts import PartWriter, storage_error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_one_part(tmp_path: Path) -> None:
    folder = tmp_path / "rows" / "m" / "d"
    before = os.umask(0o077)
    try:
        writer = PartWriter(folder)
        writer.write(b"a\nb\n")
        assert names(folder) == ["part-00000.jsonl.new"], "no final name before the end"
        writer.write(b"c\n")
        writer.commit()
    finally:
        os.umask(before)
    part = folder / "part-00000.jsonl"
    assert part.read_bytes() == b"a\nb\nc\n"
    assert stat.S_IMODE(part.stat().st_mode) == 0o644
    assert names(folder) == ["part-00000.jsonl"]


def test_parts_are_bounded_and_split_between_lines(tmp_path: Path) -> None:
    writer = PartWriter(tmp_path, max_bytes=10)
    for line in (b"aaaa\n", b"bbbb\n", b"c\n", b"dddddddddddddddd\n", b"e\n"):
        writer.write(line)
    writer.commit()
    parts = sorted(tmp_path.iterdir())
    assert [part.read_bytes() for part in parts] == [
        b"aaaa\nbbbb\n",
        b"c\n",
        b"dddddddddddddddd\n",
        b"e\n",
    ]
    assert [part.name for part in parts] == [f"part-0000{n}.jsonl" for n in range(4)]


def test_nothing_written_is_no_folder(tmp_path: Path) -> None:
    PartWriter(tmp_path / "rows").commit()
    assert not (tmp_path / "rows").exists()


def test_parts_of_an_earlier_attempt_go_and_other_files_stay(tmp_path: Path) -> None:
    for name in ("part-00000.jsonl", "part-00007.jsonl", "part-00001.jsonl.new", "notes.txt"):
        (tmp_path / name).write_bytes(b"old\n")
    writer = PartWriter(tmp_path)
    writer.write(b"new\n")
    writer.commit()
    assert names(tmp_path) == ["notes.txt", "part-00000.jsonl"]
    assert (tmp_path / "part-00000.jsonl").read_bytes() == b"new\n"


def test_discard_leaves_nothing(tmp_path: Path) -> None:
    writer = PartWriter(tmp_path / "rows", max_bytes=4)
    writer.write(b"aaa\n")
    writer.write(b"bbb\n")
    writer.discard()
    assert not (tmp_path / "rows").exists()
    writer.discard()


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = PartWriter(tmp_path / "rows")
    writer.write(b"aaa\n")

    def full(_descriptor: int, _data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError) as caught:
        writer.write(b"bbb\n")
    assert caught.value.code == "storage.full"
    assert "resumes" in caught.value.fix
    writer.discard()
    assert not (tmp_path / "rows").exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"a file where a folder belongs")
    writer = PartWriter(tmp_path / "rows")
    with pytest.raises(StorageError) as caught:
        writer.write(b"a\n")
    assert caught.value.code == "storage.failed"
    assert "rows" in caught.value.message


def test_a_link_planted_under_a_parts_name_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    writer = PartWriter(tmp_path / "rows")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "part-00000.jsonl.new").symlink_to(target)
    with pytest.raises(StorageError):
        writer.write(b"a\n")
    assert target.read_bytes() == b"kept"


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "storage.full"), (errno.EDQUOT, "storage.full"), (errno.EIO, "storage.failed")],
)
def test_errors_name_the_fix(number: int, code: str) -> None:
    error = storage_error(OSError(number, "x"))
    assert (error.code, error.exit_code) == (code, 9)
    assert error.fix
