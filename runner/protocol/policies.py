"""What a maintainer must settle before a benchmark is frozen, so that nobody settles it later.

A source that can move (a branch, ``latest``) does not say which data these are; a query without a
relevant document needs a rule that everybody knows beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from runner.errors import ProtocolError

#: Query without a relevant document: its metrics are 0 and count in every mean.
COUNT_AS_ZERO = "count_as_zero"
#: Query without a relevant document: it has no metrics and enters no mean; still asked and named.
EXCLUDE = "exclude"
QUERY_POLICIES = (COUNT_AS_ZERO, EXCLUDE)


class Cut(Protocol):
    """A metric by its name; ``k`` is None where it has no cut-off."""

    @property
    def k(self) -> int | None:
        """How deep it looks."""


_IMMUTABLE = re.compile(
    r"""
    (?:git:)?[0-9a-f]{40}            # a commit
    | sha256:[0-9a-f]{64}            # a digest of the published files or archive
    | doi:10\.[0-9]{4,9}/[!-~]{1,200}  # a DOI, which names one deposit
    | own:[0-9a-z][0-9a-z.-]{0,39}   # made for this repository, which versions it
    """,
    re.VERBOSE,
)


def check_revision(revision: str, dataset: str) -> str:
    """Return a source revision that cannot move; raise ``ProtocolError`` for any other."""
    if _IMMUTABLE.fullmatch(revision):
        return revision
    raise ProtocolError(
        "protocol.mutable-revision",
        f"source revision {revision[:60]!r} of {dataset} does not pin the data",
        fix="give a 40-digit commit, sha256:<digest of the published archive>, doi:10..., or "
        "own:<version> for data that lie in the repository",
    )


def check_depth(names: Iterable[str], top_k: int, parse: Callable[[str], Cut]) -> None:
    """Raise ``ProtocolError`` for an unknown metric, or one that looks deeper than ``top_k``."""
    for name in names:
        k = parse(name).k
        if k is not None and k > top_k:
            raise ProtocolError(
                "metric.beyond-top-k",
                f"{name} looks deeper than top_k {top_k}, where every ranking is cut",
                fix="raise top_k or lower the metric's cut-off",
            )


def check_query_policy(policy: str, without_positives: tuple[str, ...], selection: str) -> str:
    """Return the policy for queries without positives; raise ``ProtocolError`` if it hides any.

    ``selection`` is the maintainer's own sentence on which queries were taken; it must stand.
    """
    if policy not in QUERY_POLICIES:
        raise ProtocolError(
            "protocol.unknown-query-policy",
            f"no policy {policy!r} for queries without positives",
            fix=f"use one of: {', '.join(QUERY_POLICIES)}",
        )
    if not selection.strip():
        count = len(without_positives)
        raise ProtocolError(
            "protocol.no-selection",
            f"the selection of queries is not described ({count} of them have no positives)",
            fix="say in `selection` which queries were taken and what happens to such queries",
        )
    return policy
