"""How figures, settings and outcomes are written on a page. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from runner.metrics.direction import lower_is_better

_METRICS = {
    "wkt_loss": "loss (weighted Kendall)",
    "easy_accuracy": "accuracy, easy pairs",
    "hard_accuracy": "accuracy, hard pairs",
    "average_precision": "average precision",
    "auroc": "AUROC",
    "f1": "F1",
    "map": "MAP",
    "mrr": "MRR",
}
_FAMILIES = {
    "ndcg": "nDCG", "mrr": "MRR", "map": "MAP", "precision": "precision", "recall": "recall",
    "success": "success", "wktd": "WKTD", "wktd_mean": "WKTD (mean)",
}  # fmt: skip


def metric_name(metric: str) -> str:
    """Return a metric as people write it: ``ndcg_at_10`` is ``nDCG@10``."""
    family, joint, cut = metric.rpartition("_at_")
    if joint and family in _FAMILIES:
        return f"{_FAMILIES[family]}@{cut}"
    return _METRICS.get(metric, metric.replace("_", " "))


def better_word(metric: str) -> str:
    """Say which way a metric points."""
    return "lower is better" if lower_is_better(metric) else "higher is better"


def number(value: float | None, digits: int = 4) -> str:
    """Return a score with a fixed number of digits; what was not measured is ``null``."""
    return "null" if value is None else f"{value:.{digits}f}"


def interval(row: Mapping[str, Any]) -> str:
    """Return the interval of a row with ``ci_low`` and ``ci_high``, or a dash."""
    if row["ci_low"] is None:
        return "-"
    return f"{row['ci_low']:.4f} to {row['ci_high']:.4f}"


def missing_intervals(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say why scores of results.json have no interval: one sentence a reason, naming methods."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if "ci_reason" in row:
            reasons.setdefault(row["ci_reason"], []).append(row["method"])
    return [f"no interval for {', '.join(names)}: {why}" for why, names in reasons.items()]


def settings(config: Mapping[str, Any]) -> str:
    """Return settings on one line, sorted; texts without quotes where they need none."""

    def shown(value: Any) -> str:
        plain = isinstance(value, str) and value and value.isprintable() and value == value.strip()
        return str(value) if plain else json.dumps(value, ensure_ascii=False)

    return ", ".join(f"{key} {shown(config[key])}" for key in sorted(config))


def verdict(row: Mapping[str, Any], name: str) -> str:
    """Say what a comparison came to for the method ``name``: better, worse, or a tie."""
    if row["tie"] is None:
        return "not tested"
    if row["tie"]:
        return "tie"
    difference = row["difference"] if row["method"] == name else -row["difference"]
    return "better" if (difference < 0) == lower_is_better(row["metric"]) else "worse"
