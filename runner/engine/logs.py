"""The attached output of a container: bytes in, (stream, bytes) out, nothing decoded.

The engine multiplexes stdout and stderr into frames: one byte stream number, three zero bytes,
a big-endian 32-bit length, the payload. A frame may arrive in any number of reads.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator

_HEADER = struct.Struct(">BxxxL")
_READ_SIZE = 1 << 16


class Demultiplexer:
    """Pure: feed bytes as they come, take (stream, chunk) pairs; payloads are passed on at once."""

    def __init__(self) -> None:
        self._header = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield what the bytes hold; a frame's payload may come out in several chunks."""
        offset, end = 0, len(data)
        while offset < end:
            if self._left == 0:
                take = min(_HEADER.size - len(self._header), end - offset)
                self._header += data[offset : offset + take]
                offset += take
                if len(self._header) == _HEADER.size:
                    self._stream, self._left = _HEADER.unpack(self._header)
                    self._header = b""
                continue
            take = min(self._left, end - offset)
            yield self._stream, data[offset : offset + take]
            self._left -= take
            offset += take


class AttachedLogs:
    """The log stream over the hijacked connection of an attach call.

    ``descriptor`` is duplicated, so that the HTTP client may drop its own end. ``close`` from
    another thread ends the iteration.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))
        # The client's read timeout would end the stream of a method that is silent for a while.
        self._socket.settimeout(None)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        frames = Demultiplexer()
        while True:
            try:
                data = self._socket.recv(_READ_SIZE)
            except OSError:  # closed here, or reset by an engine that died: wait() tells which
                return
            if not data:
                return
            yield from frames.feed(data)

    def close(self) -> None:
        """End the stream; callable twice and from any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
