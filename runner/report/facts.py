"""What a report says beside the scores: what chance would score, and how long answers took.

Both come from the summaries of a bundle's results, for one split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.model import MethodPlan
from runner.report.page import Html, paragraph, table

Summary = Mapping[str, Any]


def chance_notes(summaries: Iterable[Summary], split: str) -> list[Html]:
    """Return a line a dataset of pairs: its base rate, and the F1 of calling every pair positive.

    An F1 below the latter is no better than saying yes to everything, whatever else it is.
    """
    seen: dict[str, Summary] = {}
    for summary in summaries:
        if "base_rate" in summary and summary["split"] == split:
            seen.setdefault(summary["dataset"], summary)
    return [
        paragraph(
            f"Of the {summary['pairs']} pairs of {dataset}, {summary['base_rate']:.4f} are "
            f"positive: saying so of every pair has F1 {summary['all_positive_f1']:.4f}."
        )
        for dataset, summary in seen.items()
    ]


def latency_table(
    summaries: Iterable[Summary], split: str, methods: Sequence[MethodPlan], *, cores: int | None
) -> list[Html]:
    """Return the table of latencies; nothing where no method that ran here has any."""
    executed = {method.name: method for method in methods if method.image is not None}
    cells = []
    for summary in summaries:
        latency, method = summary.get("latency_ms"), executed.get(summary["method"])
        if latency is None or method is None or summary["split"] != split:
            continue
        figures = [f"{latency[name]:.3g}" for name in ("mean", "p50", "p95", "max")]
        threads, batch = -(-method.limits.cpus_milli // 1000), method.config.get("batch_size", "-")
        place = (method.name, summary["dataset"], str(summary["repeat"]))
        cells.append((*place, *figures, str(threads), str(batch)))
    if not cells:
        return []
    host = "" if cores is None else f", on {cores} cores"
    text = (
        f"Milliseconds a query as the methods measured them{host}; p50 and p95 by nearest rank. "
        "Compare them within this run only."
    )
    head = ("method", "dataset", "repeat", "mean", "p50", "p95", "max", "threads", "batch size")
    return [paragraph(text), table(head, cells, numbers=range(3, 8))]
