"""Does a method that fuses the lists of others beat each of them? One sentence a fused method.

Its parts are the methods of the same run that answer by one of its lists alone: the list ``fts`` of
a ``hybrid`` method is the mode ``fts_only``. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.comparisons import between
from runner.model import MethodPlan
from runner.report.words import metric_name, number, verdict
from runner.verify.fusion import weights_of


def fused_notes(
    methods: Sequence[MethodPlan], results: Mapping[str, Any], split: str, metric: str
) -> list[str]:
    """Return a sentence for each hybrid method with a score and at least one part with a score.

    To beat a part is to score better and to be parted from it by the test: a tie is no win, nor is
    a part without a score beaten.
    """
    scores = {
        row["method"]: row["mean_score"]
        for row in results["aggregate"]
        if (row["split"], row["metric"]) == (split, metric) and row["mean_score"] is not None
    }
    sentences = []
    for method in methods:
        parts = parts_of(method, methods)
        if method.name not in scores or not any(part in scores for part in parts):
            continue
        verdicts = {part: _beside(results, split, metric, (method.name, part)) for part in parts}
        won = all(word == "better" for word in verdicts.values())
        each = "; ".join(
            f"beside {part} ({number(scores.get(part), 6)}): {word}"
            for part, word in verdicts.items()
        )
        score = f"{metric_name(metric)} on {split} ({number(scores[method.name], 6)})"
        beats = "beats" if won else "does not beat"
        whole = "both of its parts" if len(parts) == 2 else "each of its parts"
        sentences.append(f"{method.name} {beats} {whole} in {score}; {each}")
    return sentences


def parts_of(method: MethodPlan, methods: Iterable[MethodPlan]) -> list[str]:
    """Return the names of the methods that answer by one of a hybrid method's lists, in order."""
    if method.declares.get("mode") != "hybrid":
        return []
    modes = {f"{name}_only" for name in weights_of(method.config) or ()}
    return [other.name for other in methods if other.declares.get("mode") in modes]


def _beside(results: Mapping[str, Any], split: str, metric: str, pair: tuple[str, str]) -> str:
    """Return what the test came to for the first of two methods."""
    row = between(results, ("retrieval", split, metric), *pair)
    return "not compared" if row is None else verdict(row, pair[0])
