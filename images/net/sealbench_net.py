"""HTTP out of a container without network: over the supervisor's socket, to allowed hosts alone.

A method whose run manifest says ``network: {allow: [...]}`` finds a Unix socket at the path in
``SEALBENCH_PROXY``. Behind it an HTTP proxy reaches the allowed hosts and refuses all else::

    from sealbench_net import request, secret

    reply = request("POST", "https://llm.example.org/v1/chat/completions",
                    {"Authorization": f"Bearer {secret('LLM_KEY')}"}, body, timeout_s=60)

Software that only knows ``HTTP_PROXY`` gets ``forward()``: a port on the container's own loopback
that leads to the same socket. No name is ever resolved in the container. No dependencies.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

PROXY_VARIABLE = "SEALBENCH_PROXY"
SECRETS = Path("/run/secrets")
#: Marks answers of the proxy itself.
REFUSED = "X-Sealbench-Egress"
MAX_REPLY_BYTES = 16 << 20
_MAX_HEAD = 64 << 10
_BLOCK = 1 << 16


class NetworkError(OSError):
    """No answer came; ``kind`` is one word that holds no data: ``timeout``, ``refused``, ...

    ``no-proxy``: the manifest allows no host. ``refused``: not this one, or the bytes are used up.
    ``unreachable``: the host did not answer the proxy. ``tls``: its certificate does not hold.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of a host, whatever its status; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def secret(name: str) -> str:
    """Return the secret that the run manifest gives this method; ``LookupError`` without it."""
    try:
        return (SECRETS / name).read_text(encoding="utf-8")
    except OSError:
        raise LookupError(f"the run manifest gives no secret {name}") from None


def request(  # noqa: PLR0913 - independent options, by keyword only
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    timeout_s: float = 60.0,
    tls: ssl.SSLContext | None = None,
) -> Reply:
    """Ask an allowed host. ``timeout_s`` is for the whole of it. Raises ``NetworkError``.

    Redirects are not followed: where they lead would have to be allowed, and chosen, as well.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("give a http:// or https:// address")
    deadline = time.monotonic() + timeout_s
    connection = _Connection(url, deadline, tls)
    path = parts.path or "/"
    place = f"{path}?{parts.query}" if parts.query else path
    if parts.scheme == "http":
        place = f"http://{parts.netloc.rpartition('@')[2]}{place}"
    try:
        connection.request(method, place, body, dict(headers or {}))
        answer = connection.getresponse()
        _refuse_proxy(answer.status, answer.getheader(REFUSED))
        data = bytearray()
        while block := answer.read1(_BLOCK):
            data += block
            connection.hurry()
            if len(data) > MAX_REPLY_BYTES:
                raise NetworkError("too-long")
    except TimeoutError:
        raise NetworkError("timeout") from None
    except ssl.SSLError:
        raise NetworkError("tls") from None
    except NetworkError:
        raise
    except (OSError, http.client.HTTPException):
        raise NetworkError("broken") from None
    finally:
        connection.close()
    return Reply(
        status=answer.status,
        headers={name.lower(): value for name, value in answer.getheaders()},
        body=bytes(data),
    )


class _Connection(http.client.HTTPConnection):
    """A connection through the proxy's socket, encrypted end to end for https."""

    def __init__(self, url: str, deadline: float, tls: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        super().__init__(host, port)
        self._deadline = deadline
        self._tls = None if parts.scheme == "http" else tls or ssl.create_default_context()

    def connect(self) -> None:
        self.sock = dial()
        self.hurry()
        if self._tls is not None:
            _open_tunnel(self.sock, self.host, self.port)
            self.hurry()
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)
            self.hurry()

    def hurry(self) -> None:
        """Leave each wait no more time than there is in all."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if self.sock is not None:
            self.sock.settimeout(left)


def dial() -> socket.socket:
    """Return a connection to the proxy; ``NetworkError`` where there is none."""
    path = os.environ.get(PROXY_VARIABLE)
    if not path:
        raise NetworkError("no-proxy")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise NetworkError("no-proxy") from None
    return connection


def _open_tunnel(connection: socket.socket, host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    ask = f"CONNECT {shown}:{port} HTTP/1.1\r\nHost: {shown}:{port}\r\n\r\n"
    connection.sendall(ask.encode("ascii"))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        # One byte at a time: what follows the head is the host's.
        byte = connection.recv(1)
        if not byte or len(head) > _MAX_HEAD:
            raise NetworkError("broken")
        head += byte
    status = head.split(b" ", 2)[1]
    if status != b"200":
        _refuse_proxy(int(status), "refused")


def _refuse_proxy(status: int, mark: str | None) -> None:
    if mark is not None:
        raise NetworkError("unreachable" if status == http.client.BAD_GATEWAY else "refused")


def forward(port: int = 0) -> str:
    """Serve the proxy on the container's loopback and return its address, ``http://127.0.0.1:N``.

    ``HTTP_PROXY``, ``HTTPS_PROXY`` and their lower-case forms are set in this process, for the
    libraries and child processes that read them. It serves until the process ends.
    """
    listener = socket.create_server(("127.0.0.1", port))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    threading.Thread(target=_forward, args=(listener,), name="forward", daemon=True).start()
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        os.environ[name] = address
    return address


def _forward(listener: socket.socket) -> None:
    while True:
        client, _ = listener.accept()
        try:
            proxy = dial()
        except NetworkError:
            client.close()
            continue
        for source, sink in ((client, proxy), (proxy, client)):
            threading.Thread(target=_carry, args=(source, sink), daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while block := source.recv(_BLOCK):
            sink.sendall(block)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
