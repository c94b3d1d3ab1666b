"""Comparisons against the figures beside them: what can be checked without rows and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose
from typing import Any

from runner.bundle.admission import Fault
from runner.comparisons import LEVEL, pairs_of
from runner.metrics.permutation import holm

Key = tuple[str, str, str]


def comparison_faults(results: Mapping[str, Any], baseline: str | None) -> Iterator[Fault]:
    """Yield a fault for a missing or extra comparison, a difference that is not that of the means,
    a p-value that is not adjusted as said, or a tie that is not called as the p-value says."""
    means: dict[Key, dict[str, float]] = {}
    best: dict[Key, str] = {}
    for row in results["aggregate"]:
        if row["eligible"] and row["mean_score"] is not None:
            means.setdefault(_key(row), {})[row["method"]] = row["mean_score"]
            if row["rank"] == 1:
                best.setdefault(_key(row), row["method"])
    found: dict[Key, list[Mapping[str, Any]]] = {}
    for entry in results.get("comparisons", []):
        found.setdefault(_key(entry), []).append(entry)
    for key in means.keys() | found.keys():
        expected = pairs_of(list(means.get(key, {})), best.get(key), baseline)
        if sorted((e["method"], e["other"]) for e in found.get(key, [])) != sorted(expected):
            yield _fault(key, "it has not exactly one comparison for every two eligible methods")
            continue
        yield from _figures(key, found.get(key, []), means.get(key, {}))


def _figures(
    key: Key, entries: list[Mapping[str, Any]], means: Mapping[str, float]
) -> Iterator[Fault]:
    tested = [entry for entry in entries if entry["p_value"] is not None]
    adjusted = iter(holm([entry["p_value"] for entry in tested]))
    for entry in entries:
        blocks = entry.get("blocks")
        pair = f"{entry['method']} and {entry['other']}"
        difference = means[entry["method"]] - means[entry["other"]]
        if not isclose(entry["difference"], difference, rel_tol=1e-9, abs_tol=1e-12):
            yield _fault(key, f"the difference of {pair} is not that of their scores")
        if blocks is not None and not _exact(entry, blocks):
            yield _fault(key, f"the p-value of {pair} is none of {blocks} blocks")
        p_value = next(adjusted) if entry["p_value"] is not None else None
        stored = entry["p_adjusted"]
        if (stored is None) != (p_value is None) or (
            p_value is not None and not isclose(stored, p_value, rel_tol=1e-9, abs_tol=1e-12)
        ):
            yield _fault(key, f"p_adjusted of {pair} is not Holm's")
        if entry["tie"] != (None if stored is None else stored > LEVEL):
            yield _fault(key, f"{pair} are not called a tie as their p-value says")


def _exact(entry: Mapping[str, Any], blocks: int) -> bool:
    """Is this a share of all exchanges of so many blocks?"""
    hits = (entry["p_value"] or 0.0) * 2**blocks
    return bool(entry["test"] == "permutation" and hits >= 1 and hits == int(hits))


def _key(row: Mapping[str, Any]) -> Key:
    return row["task"], row["split"], row["metric"]


def _fault(key: Key, message: str) -> Fault:
    place = f"comparisons ({', '.join(key)})"
    return Fault(
        file="results.json", code="bundle.recomputed-differs", message=f"{place}: {message}"
    )
