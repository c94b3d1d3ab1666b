"""How figures, settings and outcomes are written on a page. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from runner.comparisons import LEVEL, out_of_reach
from runner.metrics.direction import lower_is_better
from runner.protocol.policies import COUNT_AS_ZERO

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

#: What is exchanged in a paired test, by task.
_BLOCKS = {
    "expertise": ("reviewer", "reviewers"),
    "pair": ("group or pair", "groups or pairs"),
    "retrieval": ("query", "queries"),
}


def metric_name(metric: str) -> str:
    """Return a metric as people write it: ``ndcg_at_10`` is ``nDCG@10``."""
    family, joint, cut = metric.rpartition("_at_")
    if joint and family in _FAMILIES:
        return f"{_FAMILIES[family]}@{cut}"
    return _METRICS.get(metric, metric.replace("_", " "))


def imported_in(results: Mapping[str, Any]) -> frozenset[str]:
    """Return the methods of results.json that nobody executed here."""
    rows = (row for row in results["aggregate"] if row.get("executed") is False)
    return frozenset(str(row["method"]) for row in rows)


def titled(method: str, imported: Collection[str]) -> str:
    """Return a method's name as figures show it: what was not executed here says so."""
    return f"{method} (imported)" if method in imported else method


def better_word(metric: str) -> str:
    """Say which way a metric points."""
    return "lower is better" if lower_is_better(metric) else "higher is better"


def scored_head(metric: str, split: str) -> str:
    """Return the header of a terminal's column of scores; what is not as usual is said."""
    return f"{metric} on {split}" + (", lower is better" if lower_is_better(metric) else "")


def pointed(metric: str) -> str:
    """Return a metric's name, and of a loss that it is one."""
    return f"{metric}, lower is better" if lower_is_better(metric) else metric


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
            imported = () if row.get("executed", True) else (row["method"],)
            reasons.setdefault(row["ci_reason"], []).append(titled(row["method"], imported))
    return [f"no interval for {', '.join(names)}: {why}" for why, names in reasons.items()]


def two_means(results: Mapping[str, Any], split: str, metric: str) -> list[str]:
    """Say of each dataset with queries without a relevant document what a metric's mean is with
    and without these, for every method, and which of the two is the score: one sentence each."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    imported = imported_in(results)
    for summary in results["summaries"]:
        both = summary.get("queries_without_positives", {"means": {}})
        if summary["split"] == split and metric in both["means"] and not summary.get("repeat"):
            found.setdefault(summary["dataset"], []).append(summary)
    sentences = []
    for dataset, summaries in found.items():
        first = summaries[0]["queries_without_positives"]
        score = "all queries" if first["policy"] == COUNT_AS_ZERO else "the others"
        means = [
            (
                titled(summary["method"], imported),
                summary["queries_without_positives"]["means"][metric],
            )
            for summary in summaries
        ]
        each = [
            f"{method} {number(one['all_queries'], 6)} and {number(one['with_positives'], 6)}"
            for method, one in means
        ]
        sentences.append(
            f"{first['count']} of {summaries[0]['queries']} queries of {dataset} have no relevant "
            f"document; {metric} over all queries and over the others (the score is that over "
            f"{score}): {', '.join(each)}"
        )
    return sentences


def beyond_tests(results: Mapping[str, Any], task: str, split: str, metric: str) -> list[str]:
    """Say, once, where no test could part any two methods, whatever their scores: a tie beside an
    interval without 0 is then no contradiction."""
    wanted = (task, split, metric)
    entries = [
        row
        for row in results.get("comparisons", ())
        if (row["task"], row["split"], row["metric"]) == wanted
    ]
    found = out_of_reach(entries)
    if found is None:
        return []
    over = f"{found.draws:,} random draws"
    if found.blocks is not None:
        one, many = _BLOCKS[task]
        over = f"{found.blocks} {one if found.blocks == 1 else many}"
    count = f"{found.comparisons} comparison{'' if found.comparisons == 1 else 's'}"
    said = f"with {over} and {count} no difference can be told apart at {LEVEL}"
    return [f"{said}; intervals are not corrected for the number of comparisons"]


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
