"""Which queries are scored: a split follows from the ids alone, so nobody can choose it.

The hash rule sorts ids by the SHA-256 of their UTF-8 bytes (hex), then by the id. The first
``calibration`` ids are for tuning, the rest are held out; ``all`` is both and no tuning surface.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

from runner.errors import ProtocolError

ALGORITHM = "sha256-id-order"
ALL, CALIBRATION, HELDOUT = "all", "calibration", "heldout"
#: Splits that a maintainer made, not the hash rule.
VALIDATION, TEST = "validation", "test"


def split_order(ids: Iterable[str]) -> tuple[str, ...]:
    """Return ids in the order of the hash rule."""
    # Bytes sort as their hex does; that two ids have one digest would be news.
    return tuple(sorted(ids, key=_key))


def _key(identity: str) -> bytes:
    return hashlib.sha256(identity.encode("utf-8")).digest()


def split_ids(ids: Collection[str], calibration: int | None) -> dict[str, tuple[str, ...]]:
    """Return the ids of every split, each in split order; only ``all`` without calibration.

    Raises ``ProtocolError`` when calibration would leave nothing held out.
    """
    ordered = split_order(ids)
    if calibration is None:
        return {ALL: ordered}
    if not 0 < calibration < len(ordered):
        raise ProtocolError(
            "protocol.bad-calibration",
            f"{calibration} of {len(ordered)} queries for calibration",
            fix="calibrate on at least one query and hold out at least one",
        )
    return {ALL: ordered, CALIBRATION: ordered[:calibration], HELDOUT: ordered[calibration:]}


def ids_sha256(ids: Iterable[str]) -> str:
    """Return the SHA-256 (hex) of ids joined by newlines, in the order given."""
    return hashlib.sha256("\n".join(ids).encode("utf-8")).hexdigest()


def union_of(splits: Mapping[str, tuple[str, ...]], names: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of the named splits once each, in the order of ``all``.

    This is what a method is asked: the splits of one run share rows. Raises ``ProtocolError`` for
    a split that the protocol does not have.
    """
    wanted: set[str] = set()
    for name in names:
        if name not in splits:
            raise ProtocolError(
                "protocol.unknown-split",
                f"the protocol has no split {name!r}",
                fix=f"use {', '.join(splits)}",
            )
        wanted.update(splits[name])
    return tuple(identity for identity in splits[ALL] if identity in wanted)


def freeze_required(splits: Iterable[str], protocol_splits: Iterable[str], *, tuned: bool) -> bool:
    """Must a run that scores ``splits`` show a freeze? Pure.

    Yes for a manifest that says that it was tuned, and for the held-out split by itself: whoever
    leaves the calibration split out has looked at it before. A run of several splits at once, such
    as a final receipt, settles and scores in one go.
    """
    scored = set(splits)
    if HELDOUT not in scored or CALIBRATION not in set(protocol_splits):
        return False
    return tuned or not scored & {CALIBRATION, ALL}
