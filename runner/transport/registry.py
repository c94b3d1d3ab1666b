"""Push an image to a registry, so that its manifest digest is ours and not an engine's.

An engine that pushes compresses layers in its own way, and the manifest digest is another one on
every machine. What is pushed here is the canonical manifest and the layers as they are: the digest
is the one of the lock. Only HTTPS, but for registries on this machine; never a tag.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, NoReturn
from urllib.parse import urlencode, urljoin, urlsplit

from runner.canonical import sha256_label
from runner.errors import ImageError
from runner.imagebuild.oci import MANIFEST_TYPE
from runner.transport.spool import SpooledImage

TIMEOUT_S = 120.0
MAX_ANSWER = 1 << 20
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_REPOSITORY = re.compile(
    r"(?P<host>\[[0-9a-f:]+\]|[A-Za-z0-9.-]+)(?P<port>:[0-9]{1,5})?/"
    r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A registry's answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What a request carries; opened anew for every attempt."""

    data: bytes | None = None
    path: str | None = None
    size: int = 0

    def open(self) -> BinaryIO:
        if self.path is not None:
            return open(self.path, "rb")
        return io.BytesIO(self.data or b"")


class Registry:
    """One repository of a registry. ``credentials`` is ``user:password``, sent only when asked."""

    def __init__(self, repository: str, credentials: str | None = None) -> None:
        match = _REPOSITORY.fullmatch(repository)
        if match is None:
            raise ImageError(
                "image.bad-repository",
                f"{repository!r} names no repository of a registry",
                fix="write host[:port]/name, without a tag",
            )
        host = match["host"].strip("[]")
        self.repository = repository
        self._host, self._port = host, int(match["port"][1:]) if match["port"] else None
        self._secure = host not in _LOOPBACK
        self._name = match["name"]
        self._credentials = credentials
        self._authorization: str | None = None

    def push(self, image: SpooledImage) -> str:
        """Upload what the registry lacks; return the manifest digest that it now serves.

        Raises ``ImageError`` when the registry refuses, cannot be reached, or serves another.
        """
        for layer in {layer.digest: layer for layer in image.layers}.values():
            self._upload(layer.digest, Body(path=str(layer.path), size=layer.size))
        self._upload(image.image_id, Body(data=image.config, size=len(image.config)))
        digest = image.manifest_digest
        kind = str(json.loads(image.manifest).get("mediaType", MANIFEST_TYPE))
        answer = self._ask(
            "PUT",
            f"/v2/{self._name}/manifests/{digest}",
            Body(data=image.manifest, size=len(image.manifest)),
            {"Content-Type": kind},
        )
        if answer.status != http.client.CREATED:
            self._refused("take the manifest", answer)
        served = self._ask("GET", f"/v2/{self._name}/manifests/{digest}", None, {"Accept": kind})
        if sha256_label(served.body) != digest:
            self._refused("serve the manifest that it took", served)
        return digest

    def _upload(self, digest: str, body: Body) -> None:
        blob = f"/v2/{self._name}/blobs/{digest}"
        if self._ask("HEAD", blob, None).status == http.client.OK:
            return
        begun = self._ask("POST", f"/v2/{self._name}/blobs/uploads/", None)
        place = begun.headers.get("location")
        if begun.status != http.client.ACCEPTED or place is None:
            self._refused("begin an upload", begun)
        target = self._own(place)
        joint = "&" if "?" in target else "?"
        answer = self._ask(
            "PUT",
            f"{target}{joint}{urlencode({'digest': digest})}",
            body,
            {"Content-Type": "application/octet-stream"},
        )
        if answer.status != http.client.CREATED:
            self._refused("take a layer", answer)

    def _own(self, place: str) -> str:
        """A place to upload to, on this registry only."""
        here = f"{'https' if self._secure else 'http'}://{self._address()}/"
        parts = urlsplit(urljoin(here, place))
        if (parts.hostname, parts.port) != (self._host, self._port):
            raise ImageError(
                "image.push-failed",
                f"the registry sends us to another host, {parts.hostname}",
                fix="name that registry itself, if you trust it",
            )
        return parts.path + (f"?{parts.query}" if parts.query else "")

    def _address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return host if self._port is None else f"{host}:{self._port}"

    def _ask(
        self, method: str, path: str, body: Body | None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        answer = self._once(method, path, body, dict(headers or {}))
        if answer.status == http.client.UNAUTHORIZED and self._authorize(answer):
            answer = self._once(method, path, body, dict(headers or {}))
        return answer

    def _once(self, method: str, path: str, body: Body | None, headers: dict[str, str]) -> Answer:
        if self._authorization is not None:
            headers["Authorization"] = self._authorization
        headers["Content-Length"] = str(body.size if body else 0)
        connection = _connect(self._host, self._port, secure=self._secure)
        try:
            if body is None:
                connection.request(method, path, headers=headers)
            else:
                with body.open() as stream:
                    connection.request(method, path, body=stream, headers=headers)
            found = connection.getresponse()
            data = b"" if method == "HEAD" else found.read(MAX_ANSWER)
            names = {name.lower(): value for name, value in found.getheaders()}
            return Answer(status=found.status, headers=names, body=data)
        except (OSError, http.client.HTTPException) as error:
            raise ImageError(
                "image.push-failed",
                f"the registry of {self.repository} does not answer: {error}",
                fix="check its address and that it runs; only registries on this machine may do "
                "without TLS",
            ) from error
        finally:
            connection.close()

    def _authorize(self, answer: Answer) -> bool:
        """Do what the challenge asks for; False where we cannot."""
        scheme, _, rest = answer.headers.get("www-authenticate", "").partition(" ")
        basic = None
        if self._credentials is not None:
            basic = "Basic " + base64.b64encode(self._credentials.encode()).decode("ascii")
        if scheme.lower() == "basic" and basic is not None:
            self._authorization = basic
            return True
        if scheme.lower() != "bearer":
            return False
        asked = dict(_CHALLENGE.findall(rest))
        realm = urlsplit(asked.pop("realm", ""))
        if realm.scheme != "https" and realm.hostname not in _LOOPBACK:
            return False
        query = urlencode({name: asked[name] for name in ("service", "scope") if name in asked})
        connection = _connect(realm.hostname or "", realm.port, secure=realm.scheme == "https")
        try:
            headers = {"Authorization": basic} if basic else {}
            connection.request("GET", f"{realm.path}?{query}", headers=headers)
            token = json.loads(connection.getresponse().read(MAX_ANSWER))
        except (OSError, ValueError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        found = token.get("token") or token.get("access_token") if isinstance(token, dict) else None
        self._authorization = f"Bearer {found}" if found else None
        return found is not None

    def _refused(self, what: str, answer: Answer) -> NoReturn:
        text = answer.body[:300].decode("utf-8", "replace").strip()
        raise ImageError(
            "image.push-failed",
            f"the registry of {self.repository} does not {what}: HTTP {answer.status} {text}",
            fix="check the repository's name and your rights on it (--credentials FILE)",
        )


def _connect(host: str, port: int | None, *, secure: bool) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    return kind(host, port, timeout=TIMEOUT_S)
