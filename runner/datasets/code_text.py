"""A source file's bytes -> the text that methods see, and the text that two sources share.

Sources come in any encoding, and Latin-1 in a comment is no reason to lose a program: bytes that
are no UTF-8 are left out, counted and told. UTF-16 and binary files are refused, because what is
left of them after that would be noise that every method finds similar.
"""

from __future__ import annotations

import hashlib

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def is_text(data: bytes) -> bool:
    """Tell whether bytes can be a source: no NUL (UTF-16 has them) and no UTF-16 mark."""
    return b"\0" not in data and not data.startswith(_UTF16)


def text_of(data: bytes) -> str:
    """Return the text that methods are given: UTF-8, undecodable bytes left out, as it stands."""
    return data.decode("utf-8", "ignore")


def normalised(text: str) -> str:
    """Return a text with LF line ends, without trailing white space and outer blank space."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def content_key(text: str) -> bytes:
    """Return the digest of a normalised text: equal for sources that differ only in line ends."""
    return hashlib.sha256(text.encode("utf-8")).digest()
