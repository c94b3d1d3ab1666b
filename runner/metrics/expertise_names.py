"""Names of the expertise metrics, such as ``wkt_loss`` and ``wktd_mean_at_3``."""

from __future__ import annotations

import re
from typing import NamedTuple

from runner.errors import ProtocolError

PLAIN = ("wkt_loss", "easy_accuracy", "hard_accuracy")
#: Families that look at the top k of each reviewer's papers.
AT_K = ("wktd", "wktd_mean", "mrr", "ndcg", "precision")
MAX_K = 1000
_NAME = re.compile(r"(wktd|wktd_mean|mrr|ndcg|precision)_at_([1-9][0-9]{0,3})\Z")


class ExpertiseMetric(NamedTuple):
    """A metric by its name; ``k`` is None for those over all rated papers."""

    name: str
    family: str
    k: int | None


def is_metric(name: str) -> bool:
    """Tell whether the name is one of the expertise task."""
    return _parsed(name) is not None


def parse_metric(name: str) -> ExpertiseMetric:
    """Return a metric by name; ``ProtocolError`` for a name that is none."""
    metric = _parsed(name)
    if metric is None:
        known = ", ".join((*PLAIN, *(f"{family}_at_K" for family in AT_K)))
        raise ProtocolError(
            "metric.unknown", f"no expertise metric {name!r}", fix=f"use one of: {known}"
        )
    return metric


def _parsed(name: str) -> ExpertiseMetric | None:
    if name in PLAIN:
        return ExpertiseMetric(name, name, None)
    match = _NAME.match(name)
    if match is None or int(match[2]) > MAX_K:
        return None
    return ExpertiseMetric(name, match[1], int(match[2]))
