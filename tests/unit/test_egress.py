"""The proxy: what is allowed goes through and is counted, all else is refused and counted."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import sealbench_net
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from runner.egress import proxy as proxy_module
from runner.egress.dial import Dialer, DialError
from runner.egress.head import BadRequest, read_head
from runner.egress.meter import MAX_REFUSED, Meter
from runner.egress.proxy import Proxy
from runner.egress.targets import Target, parse_target, usable
from runner.model import HostUse, NetworkPolicy


class Upstream:
    """A server that keeps what it is sent and answers with fixed bytes."""

    def __init__(self, reply: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.reply = reply
        self.heard: list[bytes] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, contextlib.suppress(OSError):
                    self.heard.append(connection.recv(1 << 16))
                    connection.sendall(self.reply)

    def close(self) -> None:
        self._listener.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
Serve = Callable[..., Proxy]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream(OK)
    yield server
    server.close()


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    with contextlib.ExitStack() as closing:

        def make(*allow: str, max_bytes: int = 1 << 20, dialer: Dialer | None = None) -> Proxy:
            path = tmp_path / "proxy.sock"
            policy = NetworkPolicy(allow=tuple(sorted(allow)), max_bytes=max_bytes)
            proxy = closing.enter_context(Proxy(path, policy, dialer=dialer))
            monkeypatch.setenv("SEALBENCH_PROXY", str(path))
            return proxy

        yield make


def ask(data: bytes) -> bytes:
    with sealbench_net.dial() as connection:
        connection.settimeout(10)
        connection.sendall(data)
        found = b""
        while block := connection.recv(1 << 16):
            found += block
        return found


def settled(proxy: Proxy, host: str) -> HostUse:
    """The counts of a host once the last bytes were counted."""
    return proxy.use().hosts[host]


def test_an_allowed_host_is_reached_and_counted(serve: Serve, upstream: Upstream) -> None:
    host = f"127.0.0.1:{upstream.port}"
    proxy = serve(host)
    reply = sealbench_net.request("POST", f"http://{host}/v1?x=1", {"A": "b"}, b"body")
    assert (reply.status, reply.body) == (200, b"hello")
    (heard,) = upstream.heard
    assert heard.startswith(b"POST /v1?x=1 HTTP/1.1\r\nHost: %s\r\n" % host.encode())
    assert b"A: b\r\n" in heard
    assert b"Connection: close\r\n" in heard
    use = settled(proxy, host)
    assert (use.connections, use.failed) == (1, 0)
    assert use.bytes_sent == len(heard)
    assert use.bytes_received == len(OK)
    assert proxy.use().refused_total == 0


def test_a_tunnel_hands_bytes_on_untouched(serve: Serve, upstream: Upstream) -> None:
    host = f"127.0.0.1:{upstream.port}"
    proxy = serve(host)
    upstream.reply = bytes(range(256))
    found = ask(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() + b"\x16\x03\x01\x00")
    assert found.endswith(b"\r\n\r\n" + bytes(range(256)))
    assert upstream.heard == [b"\x16\x03\x01\x00"]
    assert settled(proxy, host) == HostUse(connections=1, bytes_sent=4, bytes_received=256)


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("127.0.0.1:{other}", "127.0.0.1:{other}"),
        ("localhost:{port}", "localhost:{port}"),
        ("example.org:{port}", "example.org:{port}"),
        ("169.254.169.254:80", "169.254.169.254:80"),
        ("metadata.google.internal:80", "metadata.google.internal:80"),
        ("[::1]:{port}", "[::1]:{port}"),
        ("127.1:{port}", "(not a host and port)"),
        ("2130706433:{port}", "(not a host and port)"),
        ("me@127.0.0.1:{port}", "(not a host and port)"),
    ],
)
@pytest.mark.parametrize("form", ["CONNECT {} HTTP/1.1", "GET http://{}/ HTTP/1.1"])
def test_everything_else_is_refused(
    serve: Serve, upstream: Upstream, place: str, shown: str, form: str
) -> None:
    ports = {"port": upstream.port, "other": upstream.port - 1}
    proxy = serve(f"127.0.0.1:{upstream.port}")
    found = ask(form.format(place.format(**ports)).encode() + b"\r\n\r\n")
    assert found.split()[1] in (b"400", b"403")
    assert b"X-Sealbench-Egress: refused" in found
    assert dict(proxy.use().refused) == {shown.format(**ports): 1}
    assert upstream.heard == []


def test_the_sdk_says_why(serve: Serve, upstream: Upstream) -> None:
    serve(f"127.0.0.1:{upstream.port}", "127.0.0.1:1")
    for url, kind in (
        ("http://example.org/", "refused"),
        ("https://example.org/", "refused"),
        ("http://127.0.0.1:1/", "unreachable"),
        (f"https://127.0.0.1:{upstream.port}/", "tls"),
    ):
        with pytest.raises(sealbench_net.NetworkError) as caught:
            sealbench_net.request("GET", url, timeout_s=5)
        assert caught.value.kind == kind


def certificate(folder: Path) -> Path:
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "certificate.pem"
    path.write_bytes(made.public_bytes(pem) + private)
    return path


def test_encrypted_end_to_end(serve: Serve, tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    listener = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{listener.getsockname()[1]}"
    heard = []

    def answer() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(connection, server_side=True) as c,
            ):
                heard.append(c.recv(1 << 16))
                c.sendall(OK)

    threading.Thread(target=answer, daemon=True).start()
    proxy = serve(host)
    with listener:
        with pytest.raises(sealbench_net.NetworkError, match="tls"):
            sealbench_net.request("GET", f"https://{host}/")
        trusted = ssl.create_default_context(cafile=str(pem))
        reply = sealbench_net.request("GET", f"https://{host}/x", tls=trusted)
    assert reply.body == b"hello"
    assert heard[-1].startswith(b"GET /x HTTP/1.1\r\n")
    assert settled(proxy, host).connections == 2


def test_without_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEALBENCH_PROXY", raising=False)
    with pytest.raises(sealbench_net.NetworkError, match="no-proxy"):
        sealbench_net.request("GET", "http://example.org/")


def test_the_whole_request_has_one_deadline(serve: Serve) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{silent.getsockname()[1]}"
    serve(host)
    before = time.monotonic()
    with silent, pytest.raises(sealbench_net.NetworkError, match="timeout"):
        sealbench_net.request("GET", f"http://{host}/", timeout_s=0.3)
    assert time.monotonic() - before < 5


def test_bytes_are_bounded(serve: Serve, upstream: Upstream) -> None:
    host = f"127.0.0.1:{upstream.port}"
    proxy = serve(host, max_bytes=1000)
    upstream.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000
    with pytest.raises(sealbench_net.NetworkError):
        sealbench_net.request("GET", f"http://{host}/")
    assert proxy.use().capped
    assert settled(proxy, host).bytes_received <= 1000
    with pytest.raises(sealbench_net.NetworkError, match="refused"):
        sealbench_net.request("GET", f"http://{host}/")


def test_loopback_port_for_software_that_knows_http_proxy(
    serve: Serve, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "x")
    host = f"127.0.0.1:{upstream.port}"
    serve(host)
    address = sealbench_net.forward()
    assert os.environ["http_proxy"] == os.environ["HTTPS_PROXY"] == address
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=5)
    connection.request("GET", f"http://{host}/")
    assert connection.getresponse().read() == b"hello"
    connection.close()


def test_close_ends_what_is_open(serve: Serve) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{silent.getsockname()[1]}"
    proxy = serve(host)
    with silent, sealbench_net.dial() as connection:
        connection.sendall(f"CONNECT {host} HTTP/1.1\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        proxy.close()
        connection.settimeout(5)
        assert connection.recv(100) == b""
    with pytest.raises(sealbench_net.NetworkError, match="no-proxy"):
        sealbench_net.dial()


def test_socket_is_for_its_owner_and_its_path_may_be_long(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with Proxy(folder / "s", NetworkPolicy(allow=("a.example:1",))):
        assert (folder / "s").stat().st_mode & 0o777 == 0o600
    assert not (folder / "s").exists()


def test_more_connections_than_slots_wait(serve: Serve, upstream: Upstream) -> None:
    host = f"127.0.0.1:{upstream.port}"
    proxy = serve(host)
    held = [sealbench_net.dial() for _ in range(proxy_module.MAX_CONNECTIONS)]
    with contextlib.ExitStack() as closing:
        for connection in held:
            closing.enter_context(connection)
        waiting = closing.enter_context(sealbench_net.dial())
        waiting.sendall(f"GET http://{host}/ HTTP/1.1\r\n\r\n".encode())
        waiting.settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting.recv(10)
        held[0].close()
        waiting.settimeout(5)
        assert waiting.recv(10).startswith(b"HTTP/1.1 2")
    assert proxy.use().hosts[host].connections == 1


def test_names_are_resolved_once(upstream: Upstream) -> None:
    answers = iter([["8.8.8.8", "10.0.0.1"], ["127.0.0.1"]])
    asked = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return next(answers)

    dialer = Dialer(resolve)
    target = Target("rebinding.example", upstream.port)
    assert dialer._addresses(target) == ["8.8.8.8"]
    assert dialer._addresses(target) == ["8.8.8.8"]
    assert asked == [("rebinding.example", upstream.port)]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "100.64.0.1",
     "0.0.0.1", "::", "::1", "fe80::1", "fd00::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1",
     "2002:7f00:1::", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1"],
)  # fmt: skip
def test_a_name_does_not_lead_to_private_addresses(address: str) -> None:
    target = Target("inside.example", 443)
    assert usable(target, [address, "93.184.216.34"]) == ["93.184.216.34"]
    with pytest.raises(DialError, match="no public address"):
        Dialer(lambda _host, _port: [address]).dial(target)


def test_an_explicit_address_and_localhost_mean_themselves(upstream: Upstream) -> None:
    Dialer().dial(Target("127.0.0.1", upstream.port)).close()
    dialer = Dialer(lambda _host, _port: ["10.0.0.1", "127.0.0.1"])
    dialer.dial(Target("localhost", upstream.port)).close()


def test_only_so_many_refused_targets_are_named() -> None:
    meter = Meter([], 10)
    for number in range(100):
        meter.refuse(f"host{number}.example:80")
    meter.refuse("host0.example:80")
    use = meter.use()
    assert (len(use.refused), use.refused_total) == (MAX_REFUSED, 101)
    assert use.refused["host0.example:80"] == 2


@pytest.mark.parametrize(
    "head",
    [
        b"", b"GET / HTTP/1.1", b"GET https://a.example/ HTTP/1.1",
        b"GET ftp://a.example/ HTTP/1.1",
        b"get http://a.example/ HTTP/1.1", b"GET http://a.example/ HTTP/2", b"CONNECT a HTTP/1.1",
        b"GET  http://a.example/ HTTP/1.1", b"GET http://a.example/\tx HTTP/1.1",
        b"GET http:///x HTTP/1.1", b"CONNECT a:b:1 HTTP/1.1", b"CONNECT http://a:1 HTTP/1.1",
        b"GET http://a.example/ HTTP/1.1\r\nA b", b"GET http://a.example/ HTTP/1.1\r\n A: b",
        b"GET http://a.example/ HTTP/1.1\r\nA: b\nHost: evil.example",
        b"GET http://a.example\\@b.example/ HTTP/1.1", b"GET http://a.example%00/ HTTP/1.1",
    ],
)  # fmt: skip
def test_heads_that_are_refused(head: bytes) -> None:
    with pytest.raises(BadRequest):
        read_head(head)


def test_a_head_is_written_anew() -> None:
    head = read_head(
        b"GET http://A.example?q=1#part HTTP/1.0\r\nHost: evil.example\r\nX: y\r\n"
        b"Connection: keep-alive, X-Drop\r\nX-Drop: 1\r\nProxy-Authorization: z\r\nTE: trailers"
    )
    assert head.target == Target("a.example", 80)
    assert head.head == (
        b"GET /?q=1 HTTP/1.1\r\nHost: a.example\r\nX: y\r\nConnection: close\r\n\r\n"
    )


@given(st.binary(max_size=300))
def test_any_head_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        read_head(data)
    with contextlib.suppress(BadRequest):
        wanted = read_head(b"GET http://a.example/ HTTP/1.1\r\n" + data)
        assert wanted.target == Target("a.example", 80)
        assert wanted.head.lower().count(b"\r\nhost:") == 1
        assert wanted.head.count(b"\n") == wanted.head.count(b"\r\n")


@given(st.text(max_size=40))
def test_a_target_reads_back(text: str) -> None:
    with contextlib.suppress(ValueError):
        target = parse_target(text)
        assert parse_target(str(target), None) == target
        assert str(target).isascii()
