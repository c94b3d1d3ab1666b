"""Pure: the head of a request to the proxy -> where it wants to go, and what to send there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from runner.egress.targets import Target, parse_target

MAX_HEAD = 64 << 10
_LINE = re.compile(rb"([A-Z]{1,16}) ([!-~]{1,16384}) HTTP/1\.[01]")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}):[ \t]*([^\r\n\0]*)")
#: Fields between client and proxy only; the rest is for the host.
_HOP = frozenset({b"connection", b"keep-alive", b"te", b"upgrade", b"host", b"trailer"})
HTTP_PORT = 80


class BadRequest(Exception):
    """No request that the proxy understands. The message holds nothing of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A target, and the head to send to it; a ``tunnel`` has none and hands all bytes on."""

    target: Target
    head: bytes = b""
    tunnel: bool = False


def read_head(head: bytes) -> Wanted:
    """Return what a request's head, without its final blank line, asks for.

    ``CONNECT host:port`` for a tunnel, or ``METHOD http://host[:port]/path``: then the head is
    written anew, for one request on one connection. Raises ``BadRequest``.
    """
    line, *fields = head.split(b"\r\n")
    match = _LINE.fullmatch(line)
    if match is None:
        raise BadRequest("no request line of HTTP/1.1")
    method, place = match[1], match[2].decode("ascii")
    if method == b"CONNECT":
        return Wanted(target=_target(place, None), tunnel=True)
    scheme, mark, rest = place.partition("://")
    if scheme.lower() != "http" or not mark:
        raise BadRequest("give http://host/path, or CONNECT for https")
    authority, path = _split(rest)
    target = _target(authority, HTTP_PORT)
    host = str(target).removesuffix(f":{HTTP_PORT}")
    kept = _kept(fields)
    lines = [b"%s %s HTTP/1.1" % (method, path.encode()), b"Host: " + host.encode(), *kept]
    return Wanted(target=target, head=b"\r\n".join([*lines, b"Connection: close", b"", b""]))


def _split(rest: str) -> tuple[str, str]:
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    path = rest[end:].partition("#")[0]
    return rest[:end], path if path.startswith("/") else f"/{path}"


def _target(authority: str, default_port: int | None) -> Target:
    try:
        return parse_target(authority, default_port)
    except ValueError:
        raise BadRequest("no host and port") from None


def _kept(fields: list[bytes]) -> list[bytes]:
    found: list[tuple[bytes, bytes]] = []
    for field in fields:
        match = _FIELD.fullmatch(field)
        if match is None:
            raise BadRequest("a header field is malformed")
        found.append((match[1], match[2].strip()))
    dropped = set(_HOP)
    for name, value in found:
        if name.lower() == b"connection":
            dropped |= {token.strip().lower() for token in value.split(b",")}
    return [
        name + b": " + value
        for name, value in found
        if name.lower() not in dropped and not name.lower().startswith(b"proxy-")
    ]
