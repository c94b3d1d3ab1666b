"""One bundle -> the report of its benchmark: scores with intervals, differences, curves, failures.

Everything on the page comes from the verified documents of the bundle. What is a statistical tie is
called one, whatever the ranks say; what failed is shown with its reason and no number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.errors import UsageError
from runner.report.boundary import boundary_section, freeze_notes, remarks
from runner.report.charts import Bars, Curve, Interval, bar_chart, interval_chart, line_chart
from runner.report.curves import curves_of
from runner.report.differences import differences
from runner.report.facts import chance_notes, latency_table
from runner.report.fused import fused_notes
from runner.report.page import Cell, Html, Section, code, figure, page, paragraph, table
from runner.report.unscored import null_reasons, row_errors
from runner.report.view import MAX_DRAWN, View
from runner.report.words import (
    better_word,
    beyond_tests,
    imported_in,
    interval,
    metric_name,
    missing_intervals,
    number,
    settings,
    titled,
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
#: What a setting varies, where its name could be taken for another study.
VARIED = {
    "profile_length": "Each length is the first papers of one frozen profile. Profiles that were "
    "released at that length may hold other papers, so their published scores are other figures.",
}


def benchmark_page(report: VerifyReport, baseline: str | None = None) -> str:
    """Return the page of a verified bundle.

    ``baseline`` is the method that others are set against; by default the one that the run names,
    else the best one. ``ValueError`` for a report without documents, ``UsageError`` for a baseline
    that is no method of the run.
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
    sections += [*_outcomes(documents), _methods(documents)]
    if documents.claims is not None:
        sections.append(boundary_section(documents.claims["boundary"]))
    sections.append(_notes(documents))
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


def _views(documents: Documents) -> Iterator[View]:
    for task in documents.protocol.tasks:
        for split in documents.plan.splits:
            yield View(
                documents=documents,
                task=task,
                split=split,
                metric=documents.protocol.primary_metric_of(task),
                imported=imported_in(documents.results),
            )


def _view_sections(view: View, baseline: str | None) -> Iterator[Section]:
    place = f" ({view.task}, {view.split})"
    yield Section(title=metric_name(view.metric) + place, parts=_scores(view))
    chosen = baseline or view.documents.plan.baseline or view.best
    state = remarks(freeze_notes(view.documents, view.split))
    for parts, title in (
        (_curves(view), "Curves"),
        (differences(view, chosen), f"Differences from {view.name(chosen or '')}"),
        (_bars(view), "Further measures"),
        (_ties(view), "Ties"),
        (_by_dataset(view), "By dataset"),
        (_latency(view), "Latency"),
    ):
        if parts:
            yield Section(title=title + place, parts=[*state, *parts])


def _scores(view: View) -> list[Html]:
    rows, place = view.rows(view.metric), (view.split, view.metric)
    drawn = [_interval_row(row, view) for row in rows if row["mean_score"] is not None][:MAX_DRAWN]
    title = f"{metric_name(view.metric)} with 95 % intervals, {better_word(view.metric)}"
    cells = [
        (
            "-" if row["rank"] is None else str(row["rank"]),
            view.name(row["method"]),
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
        *remarks(freeze_notes(view.documents, view.split)),
        figure(interval_chart(title, drawn, axis=metric_name(view.metric)), title),
        table(head, cells, numbers={0, 2, 3}),
        *(paragraph(text, faint=True) for text in missing_intervals(rows)),
        *(paragraph(f"{text}.") for text in two_means(view.documents.results, *place)),
        *(
            paragraph(f"{text}.")
            for text in fused_notes(view.documents.plan.methods, view.documents.results, *place)
        ),
        *(
            paragraph(f"{text}.")
            for text in beyond_tests(view.documents.results, view.task, *place)
        ),
    ]


def _interval_row(row: Mapping[str, Any], view: View) -> Interval:
    return Interval(
        label=view.name(row["method"]),
        value=row["mean_score"],
        low=row["ci_low"],
        high=row["ci_high"],
    )


def _beside_best(view: View, row: Mapping[str, Any]) -> str:
    if row["method"] == view.best or row["rank"] is None:
        return ""
    found = view.comparison(row["method"], view.best or "")
    return "not compared" if found is None else verdict(found, row["method"])


def _curves(view: View) -> list[Html]:
    rows = {row["method"]: row for row in view.rows(view.metric) if row["mean_score"] is not None}
    parts = []
    for setting, curves in curves_of(view.documents.plan.methods).items():
        drawn = [
            Curve(
                label=curve.label,
                points=[
                    (x, _interval_row(rows[name], view)) for x, name in curve.points if name in rows
                ],
            )
            for curve in curves
        ]
        name, axis = metric_name(view.metric), setting.replace("_", " ")
        title = f"{name} by {axis}, {better_word(view.metric)}"
        caption = f"{title}. {VARIED[setting]}" if setting in VARIED else title
        parts.append(figure(line_chart(title, drawn, axes=(axis, name)), caption))
        values = sorted({x for curve in drawn for x, _ in curve.points})
        by_curve = [{x: row.value for x, row in curve.points} for curve in drawn]
        cells = [(f"{x:g}", *(number(points.get(x)) for points in by_curve)) for x in values]
        head = (axis, *(curve.label for curve in drawn))
        parts.append(table(head, cells, numbers=range(len(head))))
    return parts


def _bars(view: View) -> list[Html]:
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
        groups = [
            Bars(label=view.name(m), values=[scores[metric][m] for metric in chosen]) for m in order
        ]
        parts.append(figure(bar_chart(title, groups, names, axis="score"), title))
    head = ("method", *map(metric_name, metrics))
    cells = [(view.name(m), *(number(scores[metric][m]) for metric in metrics)) for m in order]
    parts.append(table(head, cells, numbers=range(1, len(head))))
    if view.task == "pair":
        parts += chance_notes(view.documents.results["summaries"], view.split)
    return parts


def _ties(view: View) -> list[Html]:
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
        cells.append(
            (view.name(method), f"{ties['pairs_tied_in_scores']} of {ties['pairs']}", cuts)
        )
    first = next(iter(seen.values()))
    truth = f"{first['ties']['pairs_tied_in_truth']} of {first['ties']['pairs']} pairs"
    text = (
        f"In dataset {first['dataset']} the ratings tie {truth}. A pair that scores tie costs half "
        "of its gap; at rank k ids decide, the other way round than in ratings."
    )
    head = ("method", "pairs that scores tie", "reviewers with a tie at rank k")
    return [paragraph(text), table(head, cells, numbers={1})]


def _by_dataset(view: View) -> list[Html]:
    names = [d.name for d in view.documents.protocol.datasets if d.task == view.task]
    order = [str(row["method"]) for row in view.rows(view.metric)]
    if not 1 < len(names) <= MAX_DRAWN:
        return []
    scores = {
        (row["method"], row["dataset"]): row["score"]
        for row in view.documents.results["per_dataset"]
        if (row["task"], row["split"], row["metric"]) == (view.task, view.split, view.metric)
    }
    cells = [(view.name(m), *(number(scores[m, name]) for name in names)) for m in order]
    return [table(("method", *names), cells, numbers=range(1, len(names) + 1))]


def _latency(view: View) -> list[Html]:
    if view.task != "retrieval":
        return []
    return latency_table(view.documents, view.split)


def _outcomes(documents: Documents) -> list[Section]:
    imported = imported_in(documents.results)
    failed = [record for record in documents.outcomes if record.outcome.value != "ok"]
    total = len(documents.outcomes)
    short = [paragraph(f"{text}.") for text in _short(documents)]
    if not failed:
        text = "The one unit ended as ok." if total == 1 else f"All {total} units ended as ok."
        return [Section(title="Outcomes", parts=[paragraph(text), *short])]
    cells = [
        (
            titled(r.unit.method, imported),
            r.unit.dataset,
            str(r.unit.repeat),
            r.outcome.value,
            r.reason,
        )
        for r in failed
    ]
    head = ("method", "dataset", "repeat", "outcome", "why")
    text = f"{len(failed)} of {total} units did not end as ok. Their scores are null, never 0."
    return [Section(title="Outcomes", parts=[paragraph(text), table(head, cells), *short])]


def _short(documents: Documents) -> list[str]:
    """What falls short although its unit ended as ok."""
    protocol, results = documents.protocol, documents.results
    tasks = {dataset.name: dataset.task for dataset in protocol.datasets}
    sentences = row_errors(documents.outcomes, tasks, results)
    for task in protocol.tasks:
        for split in documents.plan.splits:
            sentences += null_reasons(results, task, split, protocol.primary_metric_of(task))
    return sentences


def _methods(documents: Documents) -> Section:
    cells: list[Sequence[Cell]] = []
    imported = imported_in(documents.results)
    for method in documents.plan.methods:
        image: Cell = "not executed here: imported results"
        if method.image is not None:
            image = Html(f"{code(method.image.name)} {code(method.image.digest[:19])}")
        units = [r for r in documents.outcomes if r.unit.method == method.name]
        seconds = [r.evidence.cpu_ns / 1e9 for r in units if r.evidence.cpu_ns is not None]
        several = "timing_reason" in (documents.claims or {})  # hosts, whose times do not compare
        known = len(seconds) == len(units) and not several
        cpu = f"{sum(seconds):.1f}" if known else "-"
        cells.append(
            (
                titled(method.name, imported),
                image,
                settings(method.config),
                cpu,
                code(method.method_id[:19]),
            )
        )
    head = ("method", "image", "settings", "CPU s", "method id")
    return Section(title="Methods", parts=[table(head, cells, numbers={3})])


def _notes(documents: Documents) -> Section:
    return Section(title="Notes", parts=[paragraph(note) for note in documents.results["notes"]])
