"""Ids that tell nothing: what a method sees instead of names such as ``case-01-L1-01``.

Readable ids give labels away, and through the tie rule they even lift a method that knows nothing.
An opaque id is a letter and a number; the numbers follow the order of salted hashes, so that they
say nothing about the order, the names or the groups of the real ids. The mapping follows from the
salt alone: whoever has the data can map back, and every run asks the same. It is no secret; data
that anybody can download hide nothing from a method that was made to know them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping


def opaque_names(kind: str, count: int) -> tuple[str, ...]:
    """Return the opaque ids that so many ids of a kind have, ascending."""
    width = len(str(count))
    return tuple(f"{kind[0]}{number:0{width}d}" for number in range(1, count + 1))


def opaque(kind: str, ids: Iterable[str], salt: str) -> Mapping[str, str]:
    """Return real id -> opaque id, in ascending order of the opaque ids (a shuffled order).

    ``kind`` (such as ``document``) gives the first letter and parts spaces of ids; ``salt`` is the
    dataset's content fingerprint. Opaque ids have equal lengths, so that their string order is
    their number's. ``ValueError`` for an id that stands twice.
    """
    names = list(ids)
    if len(set(names)) != len(names):
        raise ValueError(f"a {kind} id stands twice")
    head, sha256 = f"{kind}\0{salt}\0".encode(), hashlib.sha256

    def key(name: str) -> bytes:
        return sha256(head + name.encode("utf-8")).digest()

    return dict(zip(sorted(names, key=key), opaque_names(kind, len(names)), strict=True))
