"""Connects to allowed targets, each name resolved once: what was judged is what is connected to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from runner.egress.targets import Target, usable

CONNECT_S = 15.0
#: Addresses of one target that are tried, one after the other.
MAX_TRIED = 4

Resolve = Callable[[str, int], list[str]]


class DialError(Exception):
    """No connection; the message names no address of the host's network."""


def resolve_name(host: str, port: int) -> list[str]:
    """Ask the host's resolver; addresses in its order, each once."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Dialer:
    """One unit's connections. A name that resolved keeps its addresses to the unit's end: a name
    server that changes its mind in between (DNS rebinding) changes nothing."""

    def __init__(self, resolve: Resolve = resolve_name) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._known: dict[Target, list[str]] = {}

    def dial(self, target: Target) -> socket.socket:
        """Return a connection to an allowed target, or raise ``DialError``."""
        problem = "no address"
        for address in self._addresses(target)[:MAX_TRIED]:
            try:
                return socket.create_connection((address, target.port), timeout=CONNECT_S)
            except OSError as error:
                problem = error.strerror or "timed out"
        raise DialError(f"cannot connect to {target}: {problem}")

    def _addresses(self, target: Target) -> list[str]:
        if target.address is not None:
            return [target.host]
        with self._lock:
            known = self._known.get(target)
        if known is not None:
            return known
        try:
            found = self._resolve(target.host, target.port)
        except (OSError, UnicodeError) as error:
            raise DialError(f"{target.host} does not resolve") from error
        good = usable(target, found)
        if not good:
            raise DialError(f"{target.host} has no public address")
        with self._lock:  # the first answer stays
            return self._known.setdefault(target, good)
