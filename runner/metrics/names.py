"""Which metric does a name stand for? ``ndcg_at_10``, ``recall_at_5``, ``map``, ``mrr``, ..."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from runner.errors import ProtocolError
from runner.schema_faults import suggest

MAX_CUTOFF = 1_000_000
_CUT_NAME = re.compile(r"([a-z]+)_at_([1-9][0-9]{0,6})")


class Family(StrEnum):
    """The ranking metrics, as trec_eval defines them."""

    NDCG = "ndcg"
    RECALL = "recall"
    PRECISION = "precision"
    MRR = "mrr"
    MAP = "map"
    SUCCESS = "success"


#: Those that are also defined over a whole ranking, without a cut-off.
FULL_FAMILIES = (Family.MAP, Family.MRR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric of a family, at a cut-off ``k`` or, with None, over the full ranking."""

    name: str
    family: Family
    k: int | None

    @property
    def full(self) -> bool:
        """True for a metric that only a full ranking has."""
        return self.k is None


def is_metric(name: str) -> bool:
    """Is this the name of a ranking metric?"""
    match = _CUT_NAME.fullmatch(name)
    return name in FULL_FAMILIES or (
        match is not None and match[1] in set(Family) and int(match[2]) <= MAX_CUTOFF
    )


def parse_metric(name: str) -> Metric:
    """Return the metric of a name; raise ``ProtocolError`` for a name of none."""
    if name in FULL_FAMILIES:
        return Metric(name=name, family=Family(name), k=None)
    match = _CUT_NAME.fullmatch(name)
    if match is None or not is_metric(name):
        raise _unknown(name)
    return Metric(name=name, family=Family(match[1]), k=int(match[2]))


def _unknown(name: str) -> ProtocolError:
    family, joint, cutoff = name.partition("_at_")
    if family in set(Family) and not joint:
        hint, fix = "", f"give a cut-off, such as {family}_at_10"
    elif family in set(Family):
        hint, fix = "", f"give a cut-off from 1 to {MAX_CUTOFF}, such as {family}_at_10"
    else:
        tail = f"_at_{cutoff}" if joint else ""
        known = [member + tail for member in Family] if joint else list(FULL_FAMILIES)
        samples = [f"{member}_at_10" for member in Family]
        hint = suggest(name, [*known, *samples])
        fix = f"use one of: {', '.join(samples)} (any cut-off), {', '.join(FULL_FAMILIES)}"
    return ProtocolError("metric.unknown", f"no retrieval metric {name!r}{hint}", fix=fix)
