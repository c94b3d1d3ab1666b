"""One bundle -> the report of its benchmark: scores with intervals, differences, curves, failures.

Everything on the page comes from the verified documents of the bundle. What is a statistical tie is
called one, whatever the ranks say; what failed is shown with its reason and no number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.errors import UsageError
from runner.metrics.direction import lower_is_better
from runner.report.charts import Bars, Curve, Interval, bar_chart, interval_chart, line_chart
from runner.report.curves import curves_of
from runner.report.facts import chance_notes, latency_table
from runner.report.fused import fused_notes
from runner.report.page import Cell, Html, Section, code, figure, page, paragraph, table
from runner.report.words import (
    better_word,
    interval,
    metric_name,
    missing_intervals,
    number,
    settings,
    two_means,
    verdict,
)
from runner.schema_faults import suggest
from runner.verify.bundle import VerifyReport
from runner.verify.documents import Documents

#: Metrics that are drawn as bars beside each other, by task.
BARS = {
    "expertise": ("easy_accuracy", "hard_accuracy"),
    "pair": ("average_precision", "auroc", "f1"),
    "retrieval": ("recall_at_10", "mrr_at_10", "success_at_1"),
}
MAX_DRAWN = 25  # rows of one chart; the tables have all


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """One split of one task: its metrics and their rows, best first."""

    documents: Documents
    task: str
    split: str
    metric: str  # the one that ranks

    def rows(self, metric: str) -> list[Mapping[str, Any]]:
        """The aggregate rows of a metric, ranked ones first."""
        found = [
            row
            for row in self.documents.results["aggregate"]
            if (row["task"], row["split"], row["metric"]) == (self.task, self.split, metric)
        ]
        return sorted(found, key=lambda row: (row["rank"] is None, row["rank"] or 0, row["method"]))

    @property
    def best(self) -> str | None:
        """The method of rank 1, if any is ranked."""
        first = self.rows(self.metric)[0]
        return None if first["rank"] is None else str(first["method"])


def benchmark_page(report: VerifyReport, baseline: str | None = None) -> str:
    """Return the page of a verified bundle.

    ``baseline`` is the method that others are set against; by default the best one. ``ValueError``
    for a report without documents, ``UsageError`` for a baseline that is no method of the run.
    """
    documents = report.documents
    if documents is None or report.faults:
        raise ValueError("only a verified bundle has a report")
    names = [method.name for method in documents.plan.methods]
    if baseline is not None and baseline not in names:
        raise UsageError(
            "usage.unknown-method",
            f"the bundle has no method {baseline!r}{suggest(baseline, names)}",
            fix=f"use one of: {', '.join(names)}",
        )
    sections: list[Section] = []
    for view in _views(documents):
        sections += _view_sections(view, baseline)
    sections += [*_outcomes(documents), _methods(documents), _notes(documents)]
    footer = (
        "A signature shows who sealed the bundle and that it is unchanged; not that it is honest. "
        "Scores compare only under one protocol id, times only within one host."
    )
    return page(documents.protocol.title, _lead(report, documents), sections, footer)


def _lead(report: VerifyReport, documents: Documents) -> list[Html]:
    plan, protocol = documents.plan, documents.protocol
    sizes = ((len(plan.methods), "method"), (len(protocol.datasets), "dataset"))
    numbers = (*sizes, (plan.repeats, "repeat"))
    counts = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in numbers)
    return [
        paragraph(f"{protocol.benchmark_id} {protocol.version}. {counts}, seed {plan.seed}."),
        paragraph(f"Bundle: {report.intact.detail}. Scores: {report.recomputed.detail}."),
        paragraph(Html(f"Protocol {code(protocol.protocol_id)}"), faint=True),
        paragraph(Html(f"Run {code(plan.run_id)}"), faint=True),
    ]


def _views(documents: Documents) -> Iterator[_View]:
    for task in documents.protocol.tasks:
        for split in documents.plan.splits:
            yield _View(
                documents=documents,
                task=task,
                split=split,
                metric=documents.protocol.primary_metric_of(task),
            )


def _view_sections(view: _View, baseline: str | None) -> Iterator[Section]:
    place = f" ({view.task}, {view.split})"
    yield Section(title=metric_name(view.metric) + place, parts=_scores(view))
    chosen = baseline or view.best
    for parts, title in (
        (_curves(view), "Curves"),
        (_differences(view, chosen), f"Differences from {chosen}"),
        (_bars(view), "Further measures"),
        (_ties(view), "Ties"),
        (_by_dataset(view), "By dataset"),
        (_latency(view), "Latency"),
    ):
        if parts:
            yield Section(title=title + place, parts=parts)


def _scores(view: _View) -> list[Html]:
    rows, place = view.rows(view.metric), (view.split, view.metric)
    drawn = [_interval_row(row) for row in rows if row["mean_score"] is not None][:MAX_DRAWN]
    title = f"{metric_name(view.metric)} with 95 % intervals, {better_word(view.metric)}"
    cells = [
        (
            "-" if row["rank"] is None else str(row["rank"]),
            row["method"],
            number(row["mean_score"], 6),
            interval(row),
            f"{row['dataset_count']} of {row['expected_dataset_count']}",
            _beside_best(view, row),
        )
        for row in rows
    ]
    head = (
        "rank",
        "method",
        metric_name(view.metric),
        "95 % interval",
        "datasets",
        "beside rank 1",
    )
    return [
        figure(interval_chart(title, drawn, axis=metric_name(view.metric)), title),
        table(head, cells, numbers={0, 2, 3}),
        *(paragraph(text, faint=True) for text in missing_intervals(rows)),
        *(paragraph(f"{text}.") for text in two_means(view.documents.results, *place)),
        *(
            paragraph(f"{text}.")
            for text in fused_notes(view.documents.plan.methods, view.documents.results, *place)
        ),
    ]


def _interval_row(row: Mapping[str, Any]) -> Interval:
    return Interval(
        label=row["method"], value=row["mean_score"], low=row["ci_low"], high=row["ci_high"]
    )


def _beside_best(view: _View, row: Mapping[str, Any]) -> str:
    if row["method"] == view.best or row["rank"] is None:
        return ""
    found = _comparison(view, row["method"], view.best or "")
    return "not compared" if found is None else verdict(found, row["method"])


def _comparison(view: _View, method: str, other: str) -> Mapping[str, Any] | None:
    wanted = (view.task, view.split, view.metric)
    for row in view.documents.results.get("comparisons", ()):
        pair = {row["method"], row["other"]}
        if (row["task"], row["split"], row["metric"]) == wanted and pair == {method, other}:
            return dict(row)
    return None


def _differences(view: _View, baseline: str | None) -> list[Html]:
    if baseline is None:
        return []
    drawn, cells, missing = [], list[tuple[Cell, ...]](), 0
    for row in view.rows(view.metric):
        name = row["method"]
        if name == baseline or row["mean_score"] is None:
            continue
        found = _comparison(view, name, baseline)
        if found is None:
            missing += 1
            continue
        one = _against(found, name)
        drawn.append(one)
        p = "-" if found["p_adjusted"] is None else f"{found['p_adjusted']:.3g}"
        between = "-" if one.low is None else f"{one.low:+.4f} to {one.high:+.4f}"
        cells.append((name, f"{one.value:+.4f}", between, p, verdict(found, name)))
    name = metric_name(view.metric)
    title = f"Difference in {name} from {baseline}; {better_word(view.metric)}"
    left = "left of 0 is better" if lower_is_better(view.metric) else "right of 0 is better"
    parts = []
    if drawn:
        chart = interval_chart(title, drawn[:MAX_DRAWN], axis=f"difference, {left}", zero=0.0)
        head = ("method", "difference", "95 % interval", "p (Holm)", "verdict")
        parts = [
            figure(chart, f"{title}. Paired resamples."),
            table(head, cells, numbers={1, 2, 3}),
        ]
    if missing:
        text = f"{missing} methods were not compared with {baseline}: of many methods, each is "
        parts.append(paragraph(text + "compared with the best one only.", faint=True))
    return parts


def _against(row: Mapping[str, Any], name: str) -> Interval:
    """Return a comparison as the difference of ``name`` from the other method."""
    low, high = row["ci_low"], row["ci_high"]
    if row["method"] == name:
        return Interval(label=name, value=row["difference"], low=low, high=high)
    turned = (None, None) if low is None else (-high, -low)
    return Interval(label=name, value=-row["difference"], low=turned[0], high=turned[1])


def _curves(view: _View) -> list[Html]:
    rows = {row["method"]: row for row in view.rows(view.metric) if row["mean_score"] is not None}
    parts = []
    for setting, curves in curves_of(view.documents.plan.methods).items():
        drawn = [
            Curve(
                label=curve.label,
                points=[(x, _interval_row(rows[name])) for x, name in curve.points if name in rows],
            )
            for curve in curves
        ]
        name, axis = metric_name(view.metric), setting.replace("_", " ")
        title = f"{name} by {axis}, {better_word(view.metric)}"
        parts.append(figure(line_chart(title, drawn, axes=(axis, name)), title))
        values = sorted({x for curve in drawn for x, _ in curve.points})
        by_curve = [{x: row.value for x, row in curve.points} for curve in drawn]
        cells = [(f"{x:g}", *(number(points.get(x)) for points in by_curve)) for x in values]
        head = (axis, *(curve.label for curve in drawn))
        parts.append(table(head, cells, numbers=range(len(head))))
    return parts


def _bars(view: _View) -> list[Html]:
    metrics = [m for m in view.documents.protocol.metrics_of(view.task) if m != view.metric]
    if not metrics:
        return []
    scores = {m: {row["method"]: row["mean_score"] for row in view.rows(m)} for m in metrics}
    order = [str(row["method"]) for row in view.rows(view.metric)]
    chosen = [metric for metric in BARS.get(view.task, ()) if metric in metrics]
    parts = []
    if chosen and len(order) <= MAX_DRAWN:
        names = [metric_name(metric) for metric in chosen]
        title = f"{', '.join(names)}; higher is better"
        groups = [Bars(label=m, values=[scores[metric][m] for metric in chosen]) for m in order]
        parts.append(figure(bar_chart(title, groups, names, axis="score"), title))
    head = ("method", *map(metric_name, metrics))
    cells = [(m, *(number(scores[metric][m]) for metric in metrics)) for m in order]
    parts.append(table(head, cells, numbers=range(1, len(head))))
    if view.task == "pair":
        parts += chance_notes(view.documents.results["summaries"], view.split)
    return parts


def _ties(view: _View) -> list[Html]:
    """How often scores are equal, in the first dataset: where the id rule decides."""
    seen: dict[str, Mapping[str, Any]] = {}
    for summary in view.documents.results["summaries"]:
        if "ties" in summary and summary["split"] == view.split:
            seen.setdefault(summary["method"], summary)
    if not seen:
        return []
    cells = []
    for method, summary in seen.items():
        ties = summary["ties"]
        cuts = "; ".join(f"k {at['k']}: {at['in_scores']}" for at in ties["at_k"])
        cells.append((method, f"{ties['pairs_tied_in_scores']} of {ties['pairs']}", cuts))
    first = next(iter(seen.values()))
    truth = f"{first['ties']['pairs_tied_in_truth']} of {first['ties']['pairs']} pairs"
    text = (
        f"In dataset {first['dataset']} the ratings tie {truth}. A pair that scores tie costs half "
        "of its gap; at rank k ids decide, the other way round than in ratings."
    )
    head = ("method", "pairs that scores tie", "reviewers with a tie at rank k")
    return [paragraph(text), table(head, cells, numbers={1})]


def _by_dataset(view: _View) -> list[Html]:
    names = [d.name for d in view.documents.protocol.datasets if d.task == view.task]
    order = [str(row["method"]) for row in view.rows(view.metric)]
    if not 1 < len(names) <= MAX_DRAWN:
        return []
    scores = {
        (row["method"], row["dataset"]): row["score"]
        for row in view.documents.results["per_dataset"]
        if (row["task"], row["split"], row["metric"]) == (view.task, view.split, view.metric)
    }
    cells = [(m, *(number(scores[m, name]) for name in names)) for m in order]
    return [table(("method", *names), cells, numbers=range(1, len(names) + 1))]


def _latency(view: _View) -> list[Html]:
    if view.task != "retrieval":
        return []
    documents = view.documents
    summaries, methods = documents.results["summaries"], documents.plan.methods
    return latency_table(summaries, view.split, methods, cores=documents.cores)


def _outcomes(documents: Documents) -> list[Section]:
    failed = [record for record in documents.outcomes if record.outcome.value != "ok"]
    total = len(documents.outcomes)
    if not failed:
        return [Section(title="Outcomes", parts=[paragraph(f"All {total} units ended as ok.")])]
    cells = [
        (r.unit.method, r.unit.dataset, str(r.unit.repeat), r.outcome.value, r.reason)
        for r in failed
    ]
    head = ("method", "dataset", "repeat", "outcome", "why")
    text = f"{len(failed)} of {total} units did not end as ok. Their scores are null, never 0."
    return [Section(title="Outcomes", parts=[paragraph(text), table(head, cells)])]


def _methods(documents: Documents) -> Section:
    cells: list[Sequence[Cell]] = []
    for method in documents.plan.methods:
        image: Cell = "not executed here: released results"
        if method.image is not None:
            image = Html(f"{code(method.image.name)} {code(method.image.digest[:19])}")
        units = [r for r in documents.outcomes if r.unit.method == method.name]
        seconds = [r.evidence.cpu_ns / 1e9 for r in units if r.evidence.cpu_ns is not None]
        cpu = f"{sum(seconds):.1f}" if len(seconds) == len(units) else "-"
        cells.append(
            (method.name, image, settings(method.config), cpu, code(method.method_id[:19]))
        )
    head = ("method", "image", "settings", "CPU s", "method id")
    return Section(title="Methods", parts=[table(head, cells, numbers={3})])


def _notes(documents: Documents) -> Section:
    return Section(title="Notes", parts=[paragraph(note) for note in documents.results["notes"]])
