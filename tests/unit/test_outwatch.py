"""The output folder is measured whatever a method builds in it, with bounded work."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from runner import outwatch
from runner.outwatch import OutputSize, OutputWatch
from runner.purge import purge
from tests.unit.test_purge import build_chain

MIB = 1 << 20


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def measured(out: Path, max_bytes: int = 100 * MIB, max_files: int = 1000) -> OutputSize:
    watch = OutputWatch(out, max_bytes=max_bytes, max_files=max_files)
    try:
        size = watch.measure()
        ticked = watch.tick()
        assert ticked == size.exceeded or size.entries >= outwatch.TICK_ENTRIES
        return size
    finally:
        watch.close()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_plain_tree(out: Path) -> None:
    (out / "rows.jsonl").write_bytes(b"x" * 5000)
    (out / "artifacts").mkdir()
    (out / "artifacts" / "a").write_bytes(b"y" * 10)
    size = measured(out)
    assert (size.apparent_bytes, size.entries, size.unseen, size.exceeded) == (5010, 3, 0, None)
    assert size.allocated_bytes >= 5010


def test_an_empty_folder(out: Path) -> None:
    assert measured(out, 0, 0) == OutputSize(
        apparent_bytes=0, allocated_bytes=0, entries=0, unseen=0, exceeded=None
    )


@pytest.mark.parametrize(
    ("size", "cap", "exceeded"), [(MIB, MIB, None), (MIB + 1, MIB, "output_bytes")]
)
def test_the_cap_is_exact(out: Path, size: int, cap: int, exceeded: str | None) -> None:
    (out / "a").write_bytes(b"x" * size)
    assert measured(out, cap).exceeded == exceeded


@pytest.mark.parametrize(("count", "exceeded"), [(20, None), (21, "output_files")])
def test_every_kind_of_entry_counts(out: Path, count: int, exceeded: str | None) -> None:
    for index in range(count - 5):
        (out / f"f{index}").touch()
    (out / "link").symlink_to("/etc/passwd")
    os.mkfifo(out / "fifo")
    (out / "folder").mkdir()
    os.link(out / "f0", out / "again")
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind(os.path.relpath(out / "plug"))
    assert measured(out, max_files=20).exceeded == exceeded


def test_a_sparse_giant_counts_by_its_apparent_size(out: Path) -> None:
    with (out / "giant").open("wb") as stream:
        stream.truncate(5 << 30)
    size = measured(out)
    assert (size.apparent_bytes, size.exceeded) == (5 << 30, "output_bytes")
    assert size.allocated_bytes < MIB


def test_space_reserved_beyond_the_end_counts_too(out: Path) -> None:
    with (out / "small").open("wb") as stream:
        stream.write(b"x")
        stream.flush()
        os.posix_fallocate(stream.fileno(), 0, 4 * MIB)
        stream.truncate(1)
    hidden = measured(out, MIB)
    assert hidden.apparent_bytes == 1
    assert hidden.exceeded == ("output_bytes" if hidden.allocated_bytes > 3 * MIB else None)


def test_a_second_name_counts_once_in_bytes(out: Path) -> None:
    (out / "a").write_bytes(b"x" * 100)
    os.link(out / "a", out / "b")
    assert (measured(out).apparent_bytes, measured(out).entries) == (100, 2)


def test_links_lead_nowhere(out: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "big").write_bytes(b"x" * 1000)
    (out / "folder").symlink_to(elsewhere)
    (out / "loop").symlink_to(out)
    (out / "file").symlink_to(elsewhere / "big")
    assert (measured(out).apparent_bytes, measured(out).entries) == (0, 3)


@pytest.mark.parametrize("name", [b"\xff", b"a\nb", b" ", b"\x1b[2J", b"..."])
def test_names_that_are_no_text(out: Path, name: bytes) -> None:
    folder = out / os.fsdecode(name)
    folder.mkdir()
    (folder / os.fsdecode(name)).write_bytes(b"123")
    assert (measured(out).apparent_bytes, measured(out).entries) == (3, 2)


def test_depth_costs_no_descriptors_and_no_recursion(out: Path) -> None:
    build_chain(out, 3000)
    before = open_descriptors()
    size = measured(out, max_files=10_000)
    assert (size.entries, size.exceeded) == (3001, None)
    assert measured(out, max_files=100).exceeded == "output_files"
    assert open_descriptors() == before
    purge(out)  # pytest itself cannot remove it


def test_breadth_and_depth_together(out: Path) -> None:
    for first in range(5):
        for second in range(4):
            folder = out / f"{first}" / f"{second}"
            folder.mkdir(parents=True)
            (folder / "file").write_bytes(b"1234")
    assert (measured(out).entries, measured(out).apparent_bytes) == (45, 80)


def test_a_large_tree_takes_several_ticks_and_bounded_work(out: Path) -> None:
    for index in range(1200):
        (out / f"{index}").touch()
    (out / "big").write_bytes(b"x" * 200)
    watch = OutputWatch(out, max_bytes=100, max_files=5000)
    verdicts = [watch.tick() for _ in range(3)]
    assert verdicts.count("output_bytes") >= 1, "found wherever it lies in the order of the folder"
    watch.close()
    calm = OutputWatch(out, max_bytes=1000, max_files=5000)
    assert [calm.tick() for _ in range(6)] == [None] * 6
    calm.close()


def test_growth_is_noticed(out: Path) -> None:
    watch = OutputWatch(out, max_bytes=100 * MIB, max_files=10)
    found = []
    for size in (0, 10, 2 * MIB, 2 * MIB + 10):
        (out / "f").write_bytes(bytes(size))
        watch.tick()
        found.append(watch.growing)
    assert found == [False, False, True, False]
    watch.close()


def test_rows_are_counted_as_they_grow(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outwatch, "COUNT_BYTES", 4)
    counter = outwatch.RowCounter(out)
    assert counter.count() is None
    (out / "rows.jsonl").write_bytes(b"a\nb\nc\n")
    assert [counter.count() for _ in range(3)] == [2, 3, 3]
    with (out / "rows.jsonl").open("ab") as stream:
        stream.write(b"d")
    assert counter.count() == 3
    counter.close()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_rows_that_are_no_file_are_not_counted(out: Path, kind: str) -> None:
    rows = out / "rows.jsonl"
    if kind == "link":
        rows.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(rows)
    else:
        rows.mkdir()
    counter = outwatch.RowCounter(out)
    assert counter.count() is None
    counter.close()


def test_files_that_never_were_there_together_do_not_add_up(out: Path) -> None:
    for index in range(outwatch.TICK_ENTRIES):
        (out / f"{index}").write_bytes(b"x" * 100)
    last = out / "z"
    watch = OutputWatch(out, max_bytes=100 * outwatch.TICK_ENTRIES + 50, max_files=5000)
    assert watch.tick() is None
    for index in range(outwatch.TICK_ENTRIES):
        (out / f"{index}").unlink()
    for index in range(200):
        last.with_name(f"z{index}").write_bytes(b"x" * 100)
    for _ in range(4):
        assert watch.tick() is None
    watch.close()


def test_a_tree_that_changes_while_it_is_read(out: Path) -> None:
    stop = threading.Event()

    def churn() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            deep = out / "a" / "b" / "c"
            deep.mkdir(parents=True, exist_ok=True)
            (deep / "f").write_bytes(b"x")
            if turn % 2:
                (out / "a" / "b").rename(out / f"moved{turn % 3}")
            for index in range(3):
                if turn % 4 == 0 and (out / f"moved{index}" / "c" / "f").exists():
                    (out / f"moved{index}" / "c" / "f").unlink()
                    (out / f"moved{index}" / "c").rmdir()
                    (out / f"moved{index}").rmdir()

    def tolerant() -> None:
        while not stop.is_set():
            try:
                churn()
            except OSError:
                continue

    before = open_descriptors()
    thread = threading.Thread(target=tolerant)
    thread.start()
    watch = OutputWatch(out, max_bytes=MIB, max_files=1000)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert watch.tick() is None
        assert watch.measure().exceeded is None
    stop.set()
    thread.join()
    watch.close()
    assert open_descriptors() == before


def test_a_folder_moved_while_we_are_inside(out: Path, tmp_path: Path) -> None:
    """Going up must not follow ``..`` into a place where we did not come from."""
    (out / "a" / "b").mkdir(parents=True)
    (out / "a" / "b" / "f").write_bytes(b"12")
    (out / "q").mkdir()
    (out / "q" / "g").write_bytes(b"345")
    root = os.open(out, os.O_RDONLY)
    walk = outwatch._Walk(root)
    while walk.entries < 2 or walk.apparent == 0:
        assert walk.step()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("a", "q"):
        if not (out / name / "g").exists():
            (out / name / "b").rename(elsewhere / "b")
    (elsewhere / "secret").write_bytes(b"x" * 999)
    while walk.step():
        pass
    walk.close()
    os.close(root)
    assert walk.apparent <= 5


def test_something_else_than_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "absent"):
        with pytest.raises(OSError, match=name):
            OutputWatch(tmp_path / name, max_bytes=1, max_files=1)
