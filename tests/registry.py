"""A registry on loopback that serves one image, so that pulls by digest are tested offline."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.tiny_image import TinyImage

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Where the image is, its manifest's digest, and the paths that were asked for."""

    repository: str
    manifest_digest: str
    requests: list[tuple[str, str, str | None]]


@contextmanager
def serve(image: TinyImage, name: str = "tiny") -> Iterator[Served]:
    """Serve ``image`` as ``127.0.0.1:<port>/<name>``; engines take loopback without TLS."""
    layer = gzip.compress(image.layer, mtime=0)
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _entry("application/vnd.docker.container.image.v1+json", image.config),
            "layers": [_entry("application/vnd.docker.image.rootfs.diff.tar.gzip", layer)],
        }
    ).encode()
    bodies = {
        "/v2/": (b"{}", "application/json"),
        f"/v2/{name}/manifests/{_digest(manifest)}": (manifest, MANIFEST_TYPE),
        f"/v2/{name}/blobs/{_digest(image.config)}": (image.config, "application/octet-stream"),
        f"/v2/{name}/blobs/{_digest(layer)}": (layer, "application/octet-stream"),
    }
    requests: list[tuple[str, str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.command, self.path, self.headers.get("Authorization")))
            body, kind = bodies.get(self.path, (b"", ""))
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            if "/manifests/" in self.path and kind:
                self.send_header("Docker-Content-Digest", _digest(body))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: an engine first tries TLS, which would be reported as a bad request."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Served(
            repository=f"127.0.0.1:{server.server_port}/{name}",
            manifest_digest=_digest(manifest),
            requests=requests,
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _entry(kind: str, body: bytes) -> dict[str, object]:
    return {"mediaType": kind, "size": len(body), "digest": _digest(body)}


def _digest(body: bytes) -> str:
    return "sha256:" + hashlib.sha256(body).hexdigest()
