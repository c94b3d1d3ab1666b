"""Pure: what an allow-list may name, and which addresses a name may lead to.

A name or an address with a port, 443 when none is given. No wildcards: a list that names every host
can be read and judged. A *name* may only lead to public addresses, so that nobody's name server can
point it at the host, its network or a cloud's metadata service; who means a private address writes
the address itself (or ``localhost``). Link-local addresses are never allowed: metadata live there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

DEFAULT_PORT = 443
LOCALHOST = "localhost"
MAX_HOST = 253
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*")
#: Addresses that carry an IPv4 address in their last 32 bits.
_NAT64 = IPv6Network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A host and a port to connect to; ``host`` is lower case, an IPv6 address without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def address(self) -> Address | None:
        """The address that the host is; None for a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


def parse_target(text: str, default_port: int | None = DEFAULT_PORT) -> Target:
    """Return the target that ``host[:port]`` names; ``ValueError`` says what is wrong with it."""
    host, port = _split(text)
    if port is None:
        port = str(default_port or "")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise ValueError("its port is no number from 1 to 65535")
    return Target(_host(host), int(port))


def _split(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in host or (rest and not rest.startswith(":")):
            raise ValueError("it is no [IPv6 address]:port")
        return host, rest[1:] if rest else None
    host, colon, port = text.partition(":")
    if ":" in port:
        raise ValueError("an IPv6 address stands in brackets")
    return host, port if colon else None


def _host(text: str) -> str:
    host = text.lower().removesuffix(".")
    try:
        if "%" in host:
            raise ValueError("it names a zone")
        return str(ip_address(host))
    except ValueError:
        pass
    if len(host) > MAX_HOST or _NAME.fullmatch(host) is None or _NUMERIC.fullmatch(host):
        # 127.1 and 0x7f000001 are addresses to a resolver: write them as people do.
        raise ValueError("it is no host name and no address; wildcards, schemes and paths are none")
    return host


def entry_problem(target: Target) -> str | None:
    """Say why an allow-list may not name a target; None when it may."""
    address = target.address
    if address is None:
        return None
    address = _inner(address)
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return "link-local, multicast and unspecified addresses are never allowed"
    return None


def parse_allowed(texts: Iterable[str]) -> tuple[Target, ...]:
    """Return the targets of a checked allow-list."""
    return tuple(parse_target(text) for text in texts)


def usable(target: Target, addresses: Sequence[str]) -> list[str]:
    """Return those of a target's resolved addresses that may be connected to, in order.

    An address or ``localhost`` means itself, whatever it is; a name means public addresses.
    """
    if target.address is not None:
        return list(addresses)
    found = [(text, ip_address(text)) for text in addresses]
    if target.host == LOCALHOST:
        return [text for text, address in found if address.is_loopback]
    return [text for text, address in found if _public(address)]


def _public(address: Address) -> bool:
    inner = _inner(address)
    return inner.is_global and not inner.is_multicast and not inner.is_reserved


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, else the address."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None) or address
