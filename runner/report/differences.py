"""Every method set against one: paired differences, intervals, and what a test makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.comparisons import MAX_ALL_PAIRS
from runner.metrics.direction import lower_is_better
from runner.report.charts import Interval, interval_chart
from runner.report.page import Cell, Html, code, figure, paragraph, table
from runner.report.view import MAX_DRAWN, View
from runner.report.words import better_word, beyond_tests, metric_name, verdict

HEAD = ("method", "difference", "95 % interval", "p (Holm)", "verdict")


def differences(view: View, baseline: str | None) -> list[Html]:
    """Return chart and table of all differences from ``baseline``, and what is not among them."""
    if baseline is None:
        return []
    drawn, cells, missing = [], list[tuple[Cell, ...]](), 0
    scored = [row["method"] for row in view.rows(view.metric) if row["mean_score"] is not None]
    if baseline not in scored:
        text = f"{view.name(baseline)} has no score here: nothing can be set against it."
        return [paragraph(text, faint=True)]
    for name in scored:
        if name == baseline:
            continue
        found = view.comparison(name, baseline)
        if found is None:
            missing += 1
            continue
        one = _against(found, name, view)
        drawn.append(one)
        p = "-" if found["p_adjusted"] is None else f"{found['p_adjusted']:.3g}"
        between = "-" if one.low is None else f"{one.low:+.4f} to {one.high:+.4f}"
        cells.append((one.label, f"{one.value:+.4f}", between, p, verdict(found, name)))
    parts = []
    if drawn:
        title = (
            f"Difference in {metric_name(view.metric)} from {view.name(baseline)}; "
            f"{better_word(view.metric)}"
        )
        left = "left of 0 is better" if lower_is_better(view.metric) else "right of 0 is better"
        chart = interval_chart(title, drawn[:MAX_DRAWN], axis=f"difference, {left}", zero=0.0)
        parts = [
            figure(chart, f"{title}. Paired resamples."),
            table(HEAD, cells, numbers={1, 2, 3}),
        ]
    if drawn:
        results, place = view.documents.results, (view.task, view.split, view.metric)
        parts += [paragraph(f"{text}.") for text in beyond_tests(results, *place)]
    return [*parts, *([_not_compared(view, baseline, missing)] if missing else [])]


def _not_compared(view: View, baseline: str, missing: int) -> Html:
    """Say that there is no test, and how there would be one: a report computes none."""
    chosen = view.documents.plan.baseline
    named = "" if chosen is None else f" and with its baseline, {view.name(chosen)}"
    many = "1 method was" if missing == 1 else f"{missing} methods were"
    text = (
        f"{many} not compared with {view.name(baseline)}: of more than {MAX_ALL_PAIRS} methods, "
        f"each is compared with the best one{named}, when a run is scored. To have these, put "
    )
    line, again = code(f"baseline: {baseline}"), code("sealbench run MANIFEST")
    return paragraph(Html(f"{text}{line} into the run manifest and run it again: {again}."))


def _against(row: Mapping[str, Any], name: str, view: View) -> Interval:
    """Return a comparison as the difference of ``name`` from the other method."""
    low, high = row["ci_low"], row["ci_high"]
    if row["method"] == name:
        return Interval(label=view.name(name), value=row["difference"], low=low, high=high)
    turned = (None, None) if low is None else (-high, -low)
    return Interval(label=view.name(name), value=-row["difference"], low=turned[0], high=turned[1])
