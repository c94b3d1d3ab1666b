"""An HTTP proxy on a Unix socket: the only way out of one container.

The container has no network of its own; this socket, mounted into it, leads here. The proxy
connects to the targets of the allow-list and refuses all else. It sees no more of an encrypted
connection (``CONNECT``) than its target and length. One thread accepts, and each connection has
two: a unit has few of them.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from runner.egress.dial import Dialer, DialError
from runner.egress.head import MAX_HEAD, BadRequest, Wanted, read_head
from runner.egress.meter import Meter
from runner.egress.targets import Target, parse_allowed
from runner.model import NetworkPolicy, NetworkUse

#: Connections at a time; the next one waits.
MAX_CONNECTIONS = 32
HEAD_S = 30.0
#: A connection on which nothing moves for this long is closed: a model may think for minutes.
IDLE_S = 900.0
_BLOCK = 1 << 16
_JOIN_S = 5.0
NOT_A_NAME = "(not a host and port)"


class Proxy:
    """Serves from ``start`` to ``close``; a context manager does both.

    ``path`` is made with mode 0600 and handed to ``owner`` (uid, gid) where that is not ourselves.
    ``hide`` is asked what may be recorded of a target that was refused.
    """

    def __init__(
        self,
        path: Path,
        policy: NetworkPolicy,
        *,
        owner: tuple[int, int] | None = None,
        dialer: Dialer | None = None,
        hide: Callable[[str], str] | None = None,
    ) -> None:
        self._path, self._owner, self._hide = path, owner, hide
        allowed = parse_allowed(policy.allow)
        self._allowed = frozenset(allowed)
        self._meter = Meter(allowed, policy.max_bytes)
        self._dialer = dialer or Dialer()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closing = False

    def start(self) -> None:
        """Listen; ``OSError`` where the socket cannot be made."""
        self._listener = listen(self._path)
        try:
            self._path.chmod(0o600)
            if self._owner is not None:
                os.chown(self._path, *self._owner)
        except OSError:
            self._listener.close()
            raise
        self._thread = threading.Thread(target=self._accept, name="egress", daemon=True)
        self._thread.start()

    def close(self) -> NetworkUse:
        """End every connection, remove the socket, and say what went through."""
        with self._lock:
            self._closing = True
            open_now = list(self._open)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        for connection in open_now:
            _end(connection)
        self._thread.join(_JOIN_S)
        self._listener.close()
        self._path.unlink(missing_ok=True)
        return self._meter.use()

    def use(self) -> NetworkUse:
        """What went through so far."""
        return self._meter.use()

    def __enter__(self) -> Proxy:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            self._slots.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._slots.release()
                return
            threading.Thread(
                target=self._serve, args=(connection,), name="egress", daemon=True
            ).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self._hold(client):
                with suppress(OSError):
                    self._answer(client)
        finally:
            self._let_go(client)
            self._slots.release()

    def _answer(self, client: socket.socket) -> None:
        client.settimeout(HEAD_S)
        head, _, rest = _head_of(client)
        try:
            wanted = read_head(head)
        except BadRequest as error:
            self._meter.refuse(NOT_A_NAME)
            _say(client, 400, str(error))
            return
        target = wanted.target
        if target not in self._allowed:
            self._meter.refuse(str(target) if self._hide is None else self._hide(str(target)))
            _say(client, 403, f"{target} is not in this method's allow-list")
        elif self._meter.exhausted:
            _say(client, 429, "the bytes that this method may move are used up")
        else:
            self._connect(client, wanted, rest)

    def _connect(self, client: socket.socket, wanted: Wanted, rest: bytes) -> None:
        target = wanted.target
        try:
            host = self._dialer.dial(target)
        except DialError as error:
            self._meter.connected(target, failed=True)
            _say(client, 502, str(error))
            return
        try:
            if not self._hold(host):
                return
            self._meter.connected(target)
            for end in (client, host):
                end.settimeout(IDLE_S)
            if wanted.tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            first = wanted.head + rest
            if first and not self._meter.sent(target, len(first)):
                return
            host.sendall(first)
            self._relay(client, host, target)
        finally:
            self._let_go(host)

    def _relay(self, client: socket.socket, host: socket.socket, target: Target) -> None:
        """Hand on both ways until the host has said all, or nothing moves any more."""

        def upwards() -> None:
            with suppress(OSError):
                while block := client.recv(_BLOCK):
                    if not self._meter.sent(target, len(block)):
                        _end(client)
                        _end(host)
                        return
                    host.sendall(block)
                host.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=upwards, name="egress", daemon=True)
        thread.start()
        try:
            while block := host.recv(_BLOCK):
                if not self._meter.received(target, len(block)):
                    break
                client.sendall(block)
        finally:
            _end(client)
            _end(host)
            thread.join(_JOIN_S)

    def _hold(self, connection: socket.socket) -> bool:
        """Note an open connection; False once the proxy is closing."""
        with self._lock:
            if not self._closing:
                self._open.add(connection)
            return not self._closing

    def _let_go(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()


def listen(path: Path) -> socket.socket:
    """Listen at a path of any length: a socket's address holds 107 bytes, so it is named by its
    open folder."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
            listener.listen(MAX_CONNECTIONS)
        except OSError:
            listener.close()
            raise
    finally:
        os.close(folder)
    return listener


def _head_of(client: socket.socket) -> tuple[bytes, bytes, bytes]:
    """Read up to the blank line; (head, the blank line, what came behind it)."""
    data = b""
    while b"\r\n\r\n" not in data:
        block = client.recv(_BLOCK)
        if not block or len(data) + len(block) > MAX_HEAD + _BLOCK:
            raise OSError("no whole head")
        data += block
    return data.partition(b"\r\n\r\n")


def _say(client: socket.socket, status: int, text: str) -> None:
    body = f"sealbench: {text}\n".encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nX-Sealbench-Egress: refused\r\nConnection: close\r\n\r\n"
    )
    client.sendall(head.encode("ascii") + body)
    # The rest of the request must be taken in, or the answer is lost in a reset.
    client.shutdown(socket.SHUT_WR)
    client.settimeout(1.0)
    for _ in range(16):
        if not client.recv(_BLOCK):
            return


_REASONS = {400: "Bad Request", 403: "Forbidden", 429: "Too Many Requests", 502: "Bad Gateway"}


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
