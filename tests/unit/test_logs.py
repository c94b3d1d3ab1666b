"""Logs keep bytes, head and tail, in constant memory, and survive what a method prints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import logs
from runner.errors import EngineError
from runner.logs import CappedLog, LogPump, LogSummary


def written(path: Path, cap: int, *chunks: bytes) -> tuple[bytes, LogSummary]:
    log = CappedLog(path, cap)
    for chunk in chunks:
        log.write(chunk)
    summary = log.close()
    return path.read_bytes(), summary


@pytest.mark.parametrize(
    ("cap", "chunks", "expected"),
    [
        (10, [], b""),
        (10, [b""], b""),
        (10, [b"0123456789"], b"0123456789"),
        (10, [b"01", b"23456", b"789"], b"0123456789"),
        (10, [b"0123456789A"], b"01234\n[... 1 bytes left out ...]\n6789A"),
        (10, [b"a" * 100, b"end"], b"aaaaa\n[... 93 bytes left out ...]\naaend"),
        (3, [b"abcdef"], b"ab\n[... 3 bytes left out ...]\nf"),
        (1, [b"abc"], b"a\n[... 2 bytes left out ...]\n"),
        (0, [b"abc"], b"\n[... 3 bytes left out ...]\n"),
        (
            99,
            [b"\xff\xfe\x00", b"\x1b[2J\r\n", b"caf\xc3", b"\xa9"],
            b"\xff\xfe\0\x1b[2J\r\ncaf\xc3\xa9",
        ),
    ],
)
def test_head_mark_tail(tmp_path: Path, cap: int, chunks: list[bytes], expected: bytes) -> None:
    data, summary = written(tmp_path / "log", cap, *chunks)
    assert data == expected
    assert summary.total == sum(map(len, chunks))
    assert summary.fault is None


@given(cap=st.integers(0, 40), chunks=st.lists(st.binary(max_size=30), max_size=12))
def test_kept_and_left_out_add_up(
    tmp_path_factory: pytest.TempPathFactory, cap: int, chunks: list[bytes]
) -> None:
    data, summary = written(tmp_path_factory.mktemp("log") / "log", cap, *chunks)
    whole = b"".join(chunks)
    if len(whole) <= cap:
        assert (data, summary.left_out) == (whole, 0)
        return
    mark = b"\n[... %d bytes left out ...]\n" % summary.left_out
    tail = cap // 2
    head = cap - tail
    assert data == whole[:head] + mark + whole[len(whole) - tail :]
    assert summary.left_out == len(whole) - cap


def test_memory_stays_flat_in_a_flood(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "log", 64 << 20)
    chunk = bytes(1 << 20)
    for _ in range(200):
        log.write(chunk)
        assert len(log._tail) <= 2 * logs.MAX_TAIL_BYTES
    summary = log.close()
    assert summary.total - summary.left_out == 64 << 20
    assert (tmp_path / "log").stat().st_size < (64 << 20) + 100


def test_an_old_log_is_replaced_and_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"older and longer")
    assert written(tmp_path / "log", 100, b"new")[0] == b"new"
    (tmp_path / "link").symlink_to(tmp_path / "log")
    with pytest.raises(OSError, match="symbolic"):
        CappedLog(tmp_path / "link", 10)


def test_a_full_disk_is_told_and_never_raised() -> None:
    log = CappedLog(Path("/dev/full"), 100)
    log.write(b"lost")
    log.write(b"lost too")
    summary = log.close()
    assert summary.fault == "No space left on device"
    assert log.close() == summary


class Stream:
    """A scripted stream; an exception in the list is raised in its place."""

    def __init__(self, items: list[tuple[int, bytes] | Exception], *, hangs: bool = False) -> None:
        self.items, self.hangs, self.closed = items, hangs, False

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item
        while self.hangs and not self.closed:
            time.sleep(0.002)

    def close(self) -> None:
        self.closed = True


def pump(
    tmp_path: Path, stream: Stream, cap: int = 1000
) -> tuple[bytes, bytes, bool, tuple[str, ...]]:
    out, err = CappedLog(tmp_path / "out", cap), CappedLog(tmp_path / "err", cap)
    left_out, warnings = LogPump(stream, out, err).finish(0.05 if stream.hangs else 5)
    assert stream.closed
    return (tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes(), left_out, warnings


def test_streams_stay_apart(tmp_path: Path) -> None:
    found = pump(tmp_path, Stream([(1, b"a"), (2, b"\xff"), (1, b"b")]))
    assert found == (b"ab", b"\xff", False, ())


def test_left_out_is_told(tmp_path: Path) -> None:
    assert pump(tmp_path, Stream([(2, b"x" * 50)]), cap=10)[2] is True


def test_a_broken_stream_keeps_what_came(tmp_path: Path) -> None:
    lost = EngineError("engine.lost", "gone", fix="start it")
    out, _, _, warnings = pump(tmp_path, Stream([(1, b"kept"), lost]))
    assert out == b"kept"
    assert warnings == ("logs: the stream broke: engine.lost",)
    out, _, _, warnings = pump(tmp_path, Stream([(1, b"kept"), TimeoutError()]))
    assert (out, warnings) == (b"kept", ("logs: the stream broke: connection lost",))


def test_a_stream_without_end_is_closed(tmp_path: Path) -> None:
    out, _, _, warnings = pump(tmp_path, Stream([(1, b"kept")], hangs=True))
    assert (out, warnings) == (b"kept", ())


def test_a_flood_is_read_slowly_until_the_end_is_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "FLOOD_BYTES_PER_S", 20 << 20)
    chunk = bytes(1 << 20)
    out, err = CappedLog(tmp_path / "out", 10), CappedLog(tmp_path / "err", 10)
    stream = Stream([(1, chunk)] * 100)
    began = time.monotonic()
    running = LogPump(stream, out, err)
    time.sleep(0.15)
    assert running._thread.is_alive(), "100 MiB at 20 MiB/s last 5 s"
    left_out, _ = running.finish(5)
    assert left_out
    assert time.monotonic() - began < 3, "what is left is drained at once"
    assert out.close().total == 100 << 20
