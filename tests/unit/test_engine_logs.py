"""The engine's frames, in whatever pieces they arrive."""

from __future__ import annotations

import os
import socket
import struct
import threading

from hypothesis import given
from hypothesis import strategies as st

from runner.engine.logs import AttachedLogs, Demultiplexer


def frame(stream: int, payload: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(payload)) + payload


def joined(chunks: list[tuple[int, bytes]]) -> dict[int, bytes]:
    texts: dict[int, bytes] = {}
    for stream, chunk in chunks:
        texts[stream] = texts.get(stream, b"") + chunk
    return texts


@given(
    frames=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=8),
    cuts=st.lists(st.integers(min_value=1, max_value=13), min_size=1, max_size=5),
)
def test_any_cutting_gives_the_same_streams(
    frames: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    wire = b"".join(frame(stream, payload) for stream, payload in frames)
    demultiplexer, chunks, offset, turn = Demultiplexer(), list[tuple[int, bytes]](), 0, 0
    while offset < len(wire):
        size = cuts[turn % len(cuts)]
        chunks += demultiplexer.feed(wire[offset : offset + size])
        offset, turn = offset + size, turn + 1
    assert joined(chunks) == joined([item for item in frames if item[1]])


def test_a_character_split_across_frames_stays_whole() -> None:
    text = "né".encode()
    wire = frame(1, text[:2]) + frame(2, b"!") + frame(1, text[2:])
    assert joined(list(Demultiplexer().feed(wire))) == {1: text, 2: b"!"}


def test_a_payload_is_passed_on_before_its_frame_is_complete() -> None:
    wire = frame(1, b"x" * 100)
    assert list(Demultiplexer().feed(wire[:50])) == [(1, b"x" * 42)]


def test_the_stream_ends_with_the_connection_and_a_cut_frame_is_kept() -> None:
    near, far = socket.socketpair()
    near.settimeout(0.01)  # as the client library leaves it
    logs = AttachedLogs(near.fileno())
    near.close()
    far.sendall(frame(1, b"one") + frame(2, b"two")[:-1])
    far.close()
    assert list(logs) == [(1, b"one"), (2, b"tw")]
    logs.close()


def test_silence_is_no_end() -> None:
    near, far = socket.socketpair()
    near.settimeout(0.01)
    logs = AttachedLogs(near.fileno())
    near.close()

    def speak() -> None:
        far.sendall(frame(1, b"late"))
        far.close()

    threading.Timer(0.1, speak).start()
    assert list(logs) == [(1, b"late")]
    logs.close()


def test_close_ends_a_reader_in_another_thread() -> None:
    near, far = socket.socketpair()
    logs = AttachedLogs(near.fileno())
    near.close()
    chunks: list[tuple[int, bytes]] = []
    reader = threading.Thread(target=lambda: chunks.extend(logs))
    reader.start()
    logs.close()
    logs.close()
    reader.join(10)
    assert not reader.is_alive()
    assert chunks == []
    far.close()


def test_the_descriptor_is_our_own() -> None:
    near, far = socket.socketpair()
    logs = AttachedLogs(near.fileno())
    logs.close()
    os.fstat(near.fileno())  # still open
    near.close()
    far.close()
