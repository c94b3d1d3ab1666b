"""Only valid rows from one regular file cross, whatever else a method left in its folder."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from runner import harvest as module
from runner.errors import StorageError
from runner.harvest import Harvest, harvest
from runner.outcome import classify
from runner.purge import purge
from runner.rows.faults import MAX_BAD_LINES
from runner.rows.retrieval import RetrievalIds, RetrievalRows
from tests.unit.test_outcome import DONE
from tests.unit.test_purge import as_an_ordinary_user, build_chain
from tests.unit.units import LIMITS

IDS = RetrievalIds.of(["q1", "q2", "q3"], ["d1", "d2"])
MIB = 1 << 20


def row(query: str = "q1", ranking: object = (("d1", 2.0), ("d2", 1.0)), **more: object) -> bytes:
    fields = {"query_id": query, "ranking": ranking, "latency_ms": 1.5, "error": None, **more}
    return json.dumps(fields).encode() + b"\n"


GOOD = row("q1") + row("q2") + row("q3", [])


class Place:
    """An output folder and a place for rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out, self.rows = folder / "out", folder / "rows"
        self.out.mkdir()

    def harvest(self, **changes: int) -> Harvest:
        limits = replace(LIMITS, **changes)
        return harvest(self.out, limits=limits, checker=RetrievalRows(IDS), rows_dir=self.rows)

    def copied(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.rows.glob("part-*.jsonl")))

    def refused(self, says: str, **changes: int) -> Harvest:
        """Nothing crossed, the reason is told, and the outcome names it."""
        found = self.harvest(**changes)
        assert found.rows is None
        assert not self.rows.exists()
        assert says in found.refused[0]
        evidence = replace(DONE, rows=None, harvest_refused=found.refused)
        word, reason = classify(evidence)
        assert (word, says in reason) == ("invalid_output", True)
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_good_rows_cross_byte_for_byte(place: Place) -> None:
    (place.out / "rows.jsonl").write_bytes(GOOD)
    found = place.harvest()
    assert found.rows is not None
    assert (found.rows.valid, found.rows.missing, found.rows.fault_count) == (3, 0, 0)
    assert (found.source, found.refused) == ("rows.jsonl", ())
    assert place.copied() == GOOD
    (part,) = place.rows.iterdir()
    assert stat.S_IMODE(part.stat().st_mode) == 0o644
    assert part.stat().st_uid == os.geteuid()


BAD_LINES = [
    (b'{"query_id":"q1","ranking":[["d1",NaN]],"latency_ms":1,"error":null}\n', "NaN"),
    (b'{"query_id":"q1","ranking":[["d1",1e999]],"latency_ms":1,"error":null}\n', "overflow"),
    (row("q2"), "duplicate id"),
    (row("q9"), "unknown query"),
    (row("q1", [["d9", 1.0]]), "unknown document"),
    (row("q1", [["d1", 1.0], ["d1", 0.5]]), "document twice"),
    (row("q1", [], extra=1), "unknown key"),
    (row("q1")[:-1].replace(b"}", b"}x") + b"\n", "trailing text"),
    (row("q1")[:20], "half a line"),
    (b"\xff\xfe\n", "no UTF-8"),
    (b"\xef\xbb\xbf" + row("q1"), "byte order mark"),
    (row("q1")[:-1] + b"\r\n", "CRLF"),
    (b"\n", "blank line"),
    (b'{"outcome":"ok","unit_id":"x"}\n', "a forged outcome record"),
    (b'{"query_id":"q1","query_id":"q1","ranking":[],"latency_ms":1,"error":null}\n', "key twice"),
    (b"[" * 100_000 + b"\n", "deep nesting"),
]


@pytest.mark.parametrize(
    "line", [line for line, _ in BAD_LINES], ids=[name for _, name in BAD_LINES]
)
def test_bad_lines_stay_outside_and_are_named(place: Place, line: bytes) -> None:
    good = row("q2") + row("q3")
    (place.out / "rows.jsonl").write_bytes(good + line)
    found = place.harvest()
    assert found.rows is not None
    assert (found.rows.valid, found.rows.missing) == (2, 1)
    assert found.rows.fault_count == 1
    assert found.rows.faults[0].line == 3
    assert place.copied() == good
    assert classify(replace(DONE, rows=found.rows))[0] == "invalid_output"


def test_no_rows_at_all(place: Place) -> None:
    found = place.harvest()
    assert (found.rows, found.refused) == (None, ())
    assert "no rows.jsonl" in classify(replace(DONE, rows=None))[1]


def test_an_empty_file_is_a_report_with_everything_missing(place: Place) -> None:
    (place.out / "rows.jsonl").touch()
    found = place.harvest()
    assert found.rows is not None
    assert (found.rows.valid, found.rows.missing) == (0, 3)
    assert not place.rows.exists()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("link", "rows.jsonl: symbolic link"),
        ("dangling", "rows.jsonl: symbolic link"),
        ("fifo", "rows.jsonl: fifo"),
        ("socket", "rows.jsonl: socket"),
        ("folder", "rows.jsonl: folder"),
        ("hard", "rows.jsonl: has 2 names"),
        ("giant", "rows.jsonl: 5368709120 bytes, more than the limit of 1048576"),
        ("device", "rows.jsonl: device"),
    ],
)
def test_what_is_no_plain_file_is_refused(place: Place, kind: str, says: str) -> None:
    rows = place.out / "rows.jsonl"
    (place.folder / "secret").write_bytes(GOOD)
    if kind == "link":
        rows.symlink_to(place.folder / "secret")
    elif kind == "dangling":
        rows.symlink_to("/nowhere")
    elif kind == "fifo":
        os.mkfifo(rows)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as plug:
            plug.bind(os.path.relpath(rows))
    elif kind == "folder":
        rows.mkdir()
    elif kind == "hard":
        os.link(place.folder / "secret", rows)
    elif kind == "giant":
        with rows.open("wb") as stream:
            stream.truncate(5 << 30)
    else:
        make_device(rows)
    place.refused(says)


def make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero: endless if it is read
    except PermissionError:
        assert os.geteuid() != 0
        pytest.skip("only root makes devices")


def test_a_file_without_rights(place: Place) -> None:
    rows = place.out / "rows.jsonl"
    rows.write_bytes(GOOD)
    rows.chmod(0)
    if os.geteuid() == 0:
        report = place.harvest().rows
        assert report is not None
        assert report.valid == 3
        purge(place.rows)

        def unprivileged() -> None:
            found = harvest(
                Path("out"), limits=LIMITS, checker=RetrievalRows(IDS), rows_dir=Path("rows")
            )
            assert found.refused == ("rows.jsonl: cannot be opened: Permission denied",)

        as_an_ordinary_user(place.folder, unprivileged)
    else:
        place.refused("Permission denied")


def test_a_folder_without_rights(place: Place) -> None:
    def unprivileged() -> None:
        found = harvest(
            Path("out"), limits=LIMITS, checker=RetrievalRows(IDS), rows_dir=Path("rows")
        )
        assert found.rows is None
        assert found.refused == ("/out cannot be opened: Permission denied",)

    place.out.chmod(0)
    if os.geteuid() == 0:
        as_an_ordinary_user(place.folder, unprivileged)
    else:
        os.chdir(place.folder)
        unprivileged()


def test_a_swap_between_look_and_open(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = place.out / "rows.jsonl"
    rows.write_bytes(GOOD)
    (place.out / "other").write_bytes(b"x" * 10)
    real_open = os.open

    def swapping(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "rows.jsonl":
            (place.out / "other").replace(rows)
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapping)
    place.refused("changed while it was opened")


def test_a_swap_to_a_link_between_look_and_open(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = place.out / "rows.jsonl"
    rows.write_bytes(GOOD)
    real_open = os.open

    def swapping(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "rows.jsonl":
            rows.unlink()
            rows.symlink_to("/etc/passwd")
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapping)
    place.refused("cannot be opened")


def test_a_file_that_grows_is_read_to_its_size_at_opening(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = place.out / "rows.jsonl"
    rows.write_bytes(GOOD)
    real = os.preadv

    def growing(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        with rows.open("ab") as stream:
            stream.write(row("q1"))
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", growing)
    found = place.harvest()
    assert found.rows is not None
    assert (found.rows.valid, found.rows.fault_count) == (3, 0)


def test_a_disk_that_cannot_be_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.out / "rows.jsonl").write_bytes(GOOD)

    def broken(_descriptor: int, _buffers: list[memoryview], _offset: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    place.refused("reading failed: Input/output error")


def test_a_full_disk_while_copying_leaves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.out / "rows.jsonl").write_bytes(GOOD)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError) as caught:
        place.harvest()
    assert caught.value.code == "storage.full"
    assert not place.rows.exists()


def test_an_interrupt_while_copying_leaves_nothing(place: Place) -> None:
    (place.out / "rows.jsonl").write_bytes(GOOD)

    def interrupt(_rows: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        harvest(
            place.out,
            limits=LIMITS,
            checker=RetrievalRows(IDS),
            rows_dir=place.rows,
            on_block=interrupt,
        )
    assert not place.rows.exists()


def test_an_earlier_attempts_rows_do_not_survive(place: Place) -> None:
    place.rows.mkdir()
    (place.rows / "part-00000.jsonl").write_bytes(row("q1"))
    assert place.harvest().rows is None
    assert not place.rows.exists()


def test_a_trec_run_is_converted(place: Place) -> None:
    (place.out / "run.trec").write_text("q1 Q0 d2 1 2.5 t\nq1 Q0 d1 2 1.5 t\nq2 Q0 d1 1 1 t\n")
    found = place.harvest()
    assert found.rows is not None
    assert (found.source, found.rows.valid, found.rows.missing) == ("run.trec", 2, 1)
    first = json.loads(place.copied().splitlines()[0])
    assert first["ranking"] == [["d2", 2.5], ["d1", 1.5]]


def test_rows_go_before_trec_and_a_refused_row_file_does_not_give_way(place: Place) -> None:
    (place.out / "run.trec").write_text("q1 Q0 d2 1 2.5 t\n")
    (place.out / "rows.jsonl").write_bytes(GOOD)
    found = place.harvest()
    assert (found.source, found.refused) == (
        "rows.jsonl",
        ("run.trec: rows.jsonl was taken instead",),
    )
    (place.out / "rows.jsonl").unlink()
    (place.out / "rows.jsonl").symlink_to("run.trec")
    assert place.harvest().rows is None


def test_everything_else_is_named_and_stays(place: Place) -> None:
    (place.out / "rows.jsonl").write_bytes(GOOD)
    (place.out / "artifacts" / "deep").mkdir(parents=True)
    (place.out / "artifacts" / "deep" / "a").write_bytes(b"12345")
    (place.out / "results.json").write_text('{"score": 1.0}')
    (place.out / "evil").symlink_to("/etc/shadow")
    (place.out / os.fsdecode(b"\xff\n\x1b[2J")).touch()
    (place.out / "caf\u00e9").touch()
    (place.out / ("n" * 200)).touch()
    found = place.harvest()
    assert found.rows is not None
    assert found.rows.fault_count == 0
    assert set(found.refused) == {
        "artifacts: 2 entries, 5 bytes, not carried",
        "results.json: file, not part of the contract",
        "evil: symbolic link, not part of the contract",
        "\\xff\\n\\x1b[2J: file, not part of the contract",
        "caf\u00e9: file, not part of the contract",
        f"{'n' * 80}...: file, not part of the contract",
    }
    for text in found.refused:
        text.encode("utf-8")
    assert classify(replace(DONE, rows=found.rows, harvest_refused=found.refused))[0] == "ok"


def test_the_list_of_the_refused_is_bounded(place: Place) -> None:
    for number in range(module.MAX_LISTED + 20):
        (place.out / f"f{number:03}").touch()
    found = place.harvest(output_files=1000)
    assert len(found.refused) == module.MAX_LISTED + 1
    assert found.refused[-1] == "and 20 more"


def test_deep_artifacts(place: Place) -> None:
    (place.out / "artifacts").mkdir()
    build_chain(place.out / "artifacts", 2000)
    (place.out / "rows.jsonl").write_bytes(GOOD)
    assert place.harvest().refused == ("artifacts: 2001 entries, 0 bytes, not carried",)
    purge(place.out)


@pytest.mark.parametrize("name", ["rows.jsonl", "run.trec"])
def test_a_giant_line_costs_no_memory(place: Place, name: str) -> None:
    with (place.out / name).open("wb") as stream:
        stream.truncate(400 * MIB)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = place.harvest(output_bytes=500 * MIB)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found.rows is not None
    assert (found.rows.valid, found.rows.missing) == (0, 3)
    assert found.rows.fault_count >= 1
    assert grown_kib < 100 << 10


@pytest.mark.parametrize("name", ["rows.jsonl", "run.trec"])
@pytest.mark.parametrize("line", [b"\n", b"x\n", b"not a row at all, and long enough\n"])
def test_millions_of_bad_lines_are_not_all_read(place: Place, name: str, line: bytes) -> None:
    (place.out / name).write_bytes(row("q1") + line * (12 * MIB // len(line)))
    assert count_reads(place, output_bytes=100 * MIB) <= 2 * 12 * MIB + 1000
    found = place.harvest(output_bytes=100 * MIB)
    assert found.rows is not None
    assert found.rows.fault_count < MIB
    assert len(found.rows.faults) <= 100
    if name == "rows.jsonl":
        assert not found.rows.whole
        assert found.rows.fault_count <= MAX_BAD_LINES + 1
        reason = classify(replace(DONE, rows=found.rows))[1]
        assert ("more than 20,000 bad lines" if len(line) > 10 else "bad lines") in reason
        assert (found.rows.valid, found.rows.missing) == (1, 2)


def count_reads(place: Place, **changes: int) -> int:
    total = 0
    real = os.preadv

    def counting(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        nonlocal total
        done = real(descriptor, buffers, offset)
        total += done
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "preadv", counting)
        place.harvest(**changes)
    return total


def test_no_descriptor_stays_open(place: Place) -> None:
    (place.out / "rows.jsonl").write_bytes(GOOD)
    place.harvest()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        place.harvest()
    (place.out / "rows.jsonl").unlink()
    os.mkfifo(place.out / "rows.jsonl")
    for _ in range(5):
        place.harvest()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_nothing_blocks_on_a_fifo(place: Place) -> None:
    os.mkfifo(place.out / "rows.jsonl")
    thread = threading.Thread(target=place.harvest, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
