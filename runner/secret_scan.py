"""Finds and hides the secrets of a method in what it wrote, in the forms that software gives them.

This stops accidents: a client library that logs its headers, a stack trace, an endpoint that
repeats the key. A method that *wants* to give its secret away can write it in a form of its own,
or send it to the host that it may reach; whoever gives a method a secret trusts it with it.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import BinaryIO
from urllib.parse import quote, quote_plus

from runner.secret_refs import MIN_BYTES, Secret

MARK = b"[secret]"
_BLOCK = 1 << 20


class Needles:
    """The forms of some secrets. Memory is a few times that of the secrets."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self._forms = {form: one.name for one in secrets for form in _forms(one.value)}
        self.longest = max(map(len, self._forms), default=0)
        # The longest first: a form may begin with another.
        ordered = sorted(self._forms, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, ordered)))

    def __bool__(self) -> bool:
        return bool(self._forms)

    def find(self, data: bytes) -> str | None:
        """Return the name of a secret that is in the bytes, or None."""
        # Looking for each form is a hundred times faster than the pattern.
        return next((name for form, name in self._forms.items() if form in data), None)

    def find_in(self, stream: BinaryIO) -> str | None:
        """Read a stream to its end; return the name of a secret that is in it, or None."""
        held = b""
        while block := stream.read(_BLOCK):
            found = self.find(held + block)
            if found is not None:
                return found
            held = (held + block)[-max(0, self.longest - 1) :] if self.longest > 1 else b""
        return None

    def hide(self, text: str) -> str:
        """Return a text with a mark where a secret was."""
        data = text.encode("utf-8", "surrogatepass")
        if self.find(data) is None:
            return text
        return self._pattern.sub(MARK, data).decode("utf-8", "replace")

    def split(self, data: bytes, until: int) -> Iterator[tuple[int, int]]:
        """Yield where secrets stand that begin before ``until``."""
        if self.find(data) is None:
            return
        for match in self._pattern.finditer(data):
            if match.start() >= until:
                return
            yield match.span()


class Redactor:
    """Hides secrets in a stream that comes in chunks, also across their borders."""

    def __init__(self, needles: Needles) -> None:
        self._needles = needles
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return what can be let go of: what no longer can be the beginning of a secret."""
        data = self._held + chunk
        # Whatever begins before this is seen whole, in its longest form.
        return self._let_go(data, max(0, len(data) - max(0, self._needles.longest - 1)))

    def end(self) -> bytes:
        """Return the rest."""
        return self._let_go(self._held, len(self._held))

    def _let_go(self, data: bytes, until: int) -> bytes:
        parts, at = [], 0
        for start, end in self._needles.split(data, until):
            parts += [data[at:start], MARK]
            at = end
        rest = max(at, until)
        parts.append(data[at:rest])
        self._held = data[rest:]
        return b"".join(parts)


def _forms(value: bytes) -> set[bytes]:
    """A secret as it is, and as JSON, addresses, base64 and hexadecimal digits have it."""
    # Lower case as well: as part of a host's name, say.
    found = {value, value.lower(), value.hex().encode(), value.hex().upper().encode()}
    for encode in (b64encode, urlsafe_b64encode):
        found |= {_inside(encode, value, offset) for offset in range(3)}
    found |= {quote(value, safe="").encode(), quote_plus(value).encode()}
    text = value.decode("utf-8", "replace")
    found |= {json.dumps(text, ensure_ascii=plain)[1:-1].encode() for plain in (True, False)}
    return {form for form in found if len(form) >= MIN_BYTES}


def _inside(encode: object, value: bytes, offset: int) -> bytes:
    """The characters that a value has in base64 at an offset, whatever stands around it."""
    assert callable(encode)  # noqa: S101 - one of two functions
    data = bytes(offset) + value
    text: bytes = encode(data).rstrip(b"=")
    first = (0, 2, 3)[offset]
    return text[first : len(data) * 8 // 6]
