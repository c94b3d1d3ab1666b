"""What a report says beside the scores: what chance would score, and how long answers took.

Both come from the summaries of a bundle's results, for one split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runner.report.boundary import remarks
from runner.report.latency import HEAD, coverage, measured
from runner.report.page import Html, paragraph, table
from runner.verify.documents import Documents

Summary = Mapping[str, Any]


def chance_notes(summaries: Iterable[Summary], split: str) -> list[Html]:
    """Return ``chance_lines`` as markup."""
    return [paragraph(line) for line in chance_lines(summaries, split)]


def chance_lines(summaries: Iterable[Summary], split: str) -> list[str]:
    """Return a line a dataset of pairs: its base rate, and the F1 of calling every pair positive.

    An F1 below the latter is no better than saying yes to everything, whatever else it is.
    """
    seen: dict[str, Summary] = {}
    for summary in summaries:
        if "base_rate" in summary and summary["split"] == split:
            seen.setdefault(summary["dataset"], summary)
    return [
        f"Of the {summary['pairs']} pairs of {dataset}, {summary['base_rate']:.4f} are "
        f"positive: saying so of every pair has F1 {summary['all_positive_f1']:.4f}."
        for dataset, summary in seen.items()
    ]


def latency_table(documents: Documents, split: str) -> list[Html]:
    """Return the table of latencies with what they include; nothing where no method that ran here
    has any, and the reason alone where they are of several hosts."""
    rows = [
        found
        for found in measured(
            documents.results["summaries"], documents.plan.methods, documents.outcomes
        )
        if found[0]["split"] == split
    ]
    if not rows:
        return []
    claims = documents.claims or {}
    if claims.get("timing_reason"):
        return [paragraph(f"Not shown: {claims['timing_reason']}.")]
    cells = [
        (method.name, summary["dataset"], str(summary["repeat"]), *figures)
        for summary, method, figures in rows
    ]
    host = "" if documents.cores is None else f", on {documents.cores} cores"
    text = (
        f"Milliseconds a query as the methods measured them{host}; p50 and p95 by nearest rank. "
        "Compare them within this run only. Load is the host's, over a minute, as the unit began."
    )
    ran = {method.name: method for _, method, _ in rows}
    head = ("method", "dataset", "repeat", *HEAD)
    return [
        paragraph(text),
        table(head, cells, numbers=range(3, len(head))),
        *remarks([f"what a latency includes: {coverage(ran.values())[0]}"]),
        *remarks(coverage(ran.values())[1:]),
    ]
