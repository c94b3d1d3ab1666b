"""The host.json of a merged bundle: one machine, or one and all the others. Pure.

Times of several machines do not compare, and a bundle must not look as if they did. Two runs count
as made on one machine only where all facts of it agree and one key signed both: two people's
machines of one model and kernel have the same facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.canonical import canonical_bytes

OTHERS = "other_hosts"
#: What may differ between two runs on one machine.
_OF_THE_RUN = frozenset({"schema", "runner", "load", "unmeasured", OTHERS})
_WORST_FIRST = {True: 0, None: 1, False: 2}

Signed = tuple[str, Mapping[str, Any]]  # key id of who signed a bundle, its host.json


def merged_host(hosts: Sequence[Signed]) -> dict[str, Any]:
    """Return the document; the first run's whose runner had changes that are in no commit, or else
    the first one's, with every further machine under ``other_hosts``."""
    ordered = sorted(hosts, key=lambda one: _WORST_FIRST[one[1]["runner"]["dirty"]])
    machines: dict[bytes, dict[str, Any]] = {}
    for signer, host in ordered:
        own = {name: value for name, value in host.items() if name != OTHERS}
        for one in (own, *host.get(OTHERS, ())):
            facts = {name: value for name, value in one.items() if name not in _OF_THE_RUN}
            machines.setdefault(canonical_bytes([signer, facts]), one)
    first, *others = machines.values()
    return {**first, OTHERS: others} if others else first


def machines_of(host: Mapping[str, Any]) -> int:
    """How many machines a bundle's figures come from."""
    return 1 + len(host.get(OTHERS, ()))
