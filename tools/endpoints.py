"""Where a container engine may listen, and whether one answers there."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

PROBE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address in the form of DOCKER_HOST, and where we have it from."""

    url: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back from an endpoint."""

    ok: bool
    detail: str  # "Docker 20.10.24", or why there is no answer
    denied: bool = False  # there, but not for this user


def candidates(env: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Return where to look, best first. A DOCKER_HOST is an order: nothing else is tried."""
    if env.get("DOCKER_HOST"):
        return (Endpoint(url=env["DOCKER_HOST"], origin="DOCKER_HOST"),)
    user_runtime = env.get("XDG_RUNTIME_DIR")
    places = [("/var/run/docker.sock", "the Docker socket")]
    if user_runtime:
        places.append((f"{user_runtime}/docker.sock", "the rootless Docker socket"))
        places.append((f"{user_runtime}/podman/podman.sock", "the rootless Podman socket"))
    places.append(("/run/podman/podman.sock", "the Podman socket"))
    return tuple(Endpoint(url=f"unix://{path}", origin=origin) for path, origin in places)


def probe(endpoint: Endpoint, timeout_s: float = PROBE_TIMEOUT_S) -> Answer:
    """Ask an endpoint for its version. Never raises, never hangs."""
    parts = urlsplit(endpoint.url)
    if parts.scheme == "unix" and not Path(parts.path).exists():
        return Answer(ok=False, detail="no socket there")
    if parts.scheme not in {"unix", "tcp", "http"}:
        # ssh:// and TLS need the engine client, which is not installed yet: it will tell.
        return Answer(ok=True, detail="not asked yet")
    status, body = get(endpoint, "/version", timeout_s)
    if status == 200:
        return Answer(ok=True, detail=describe(body))
    denied = isinstance(body, str) and "Permission denied" in body
    return Answer(ok=False, detail=f"{body or f'HTTP status {status}'}", denied=denied)


def describe(version: object) -> str:
    """Name an engine from its /version document."""
    if not isinstance(version, dict):
        return "an engine of unknown version"
    components = version.get("Components")
    first = components[0] if isinstance(components, list) and components else {}
    name = str(first.get("Name", "")) if isinstance(first, dict) else ""
    product = "Podman" if "podman" in name.lower() else "Docker"
    return f"{product} {version.get('Version', 'of unknown version')}"


def has_image(endpoint: Endpoint, image_id: str, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """Whether the engine's store holds an image; False also when it cannot be asked."""
    return get(endpoint, f"/images/{quote(image_id)}/json", timeout_s)[0] == 200


def get(endpoint: Endpoint, path: str, timeout_s: float) -> tuple[int, object]:
    """GET a JSON document: (status, document), or (0, why not) without an answer."""
    parts = urlsplit(endpoint.url)
    connection: http.client.HTTPConnection
    if parts.scheme == "unix":
        connection = _UnixConnection(parts.path, timeout_s)
    else:
        host, port = parts.hostname or "localhost", parts.port or 2375
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return 0, str(error) or type(error).__name__
    finally:
        connection.close()


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path, self._timeout_s = path, timeout_s

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        self.sock.connect(self._path)
