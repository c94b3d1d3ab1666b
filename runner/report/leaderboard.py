"""A registry -> a leaderboard: one page without scripts, and the same rows as CSV and JSON.

One table for each protocol, task, metric and split: rankings of different tasks or protocols are
never joined. A method that is not eligible stands below with the reason, never at the bottom of a
ranking. A rank says who scored more; the interval, and the comparisons of one run, say how much
that is worth.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from runner.comparisons import between
from runner.registry import Entry, compare_entries
from runner.report.facts import chance_lines
from runner.report.page import Cell, Section, code, escape, join, page, paragraph, table
from runner.report.words import better_word, interval, metric_name, number

COLUMNS = (
    "protocol_id", "benchmark", "task", "split", "metric", "rank", "method", "method_id",
    "executed", "mean_score", "ci_low", "ci_high", "coverage", "eligible", "beside_first", "bundle",
    "signer", "signature", "reproduced_by", "run", "reason", "chance",
)  # fmt: skip
_HEAD = ("rank", "method", "score", "95 % interval", "coverage", "beside the first", "run")
_RUNS = ("run", "bundle (digest of manifest.json)", "signed by", "signature", "reproduced by")
#: A comparison needs both methods' rows in one bundle.
OTHER_RUN = "other run"
Table = tuple[str, str, str]  # task, split, metric


def rows_of(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return every row of the leaderboard, by protocol, task, split and metric, best first."""
    found = []
    for protocol in dict.fromkeys(entry.protocol_id for entry in entries):
        group = [entry for entry in entries if entry.protocol_id == protocol]
        by_digest = {entry.bundle_sha256: entry for entry in group}
        summaries = [one for entry in group for one in entry.results["summaries"]]
        splits = dict.fromkeys(split for entry in group for split in entry.plan["splits"])
        for split in splits:
            table_rows = compare_entries(group, split=split)
            firsts = _firsts(table_rows)
            chance = " ".join(chance_lines(summaries, split))
            for row in table_rows:
                entry = by_digest[row["bundle"]]
                found.append(
                    {
                        **{name: row[name] for name in COLUMNS if name in row},
                        "protocol_id": protocol,
                        "benchmark": entry.benchmark,
                        "beside_first": _beside(row, firsts, entry),
                        "reproduced_by": _reproduced(entry),
                        "run": entry.name,
                        "reason": _reason(row, entry),
                        "chance": chance if row["metric"] == "f1" else "",
                    }
                )
    return found


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as CSV; what was not measured is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_plain(row[name]) for name in COLUMNS] for row in rows)
    return text.getvalue()


def as_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as JSON; what was not measured is null."""
    document = {"schema": "sealbench/leaderboard/v1", "rows": list(rows)}
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def as_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the page."""
    lead = [
        paragraph(
            "Bundles enter a registry after every figure was recomputed from their rows. This page "
            "shows the figures that each one's signature binds; where that was not checked here, "
            "with the signer's key, the page rests on whoever keeps the registry."
        ),
        paragraph(
            "Ranks are competition ranks (1, 1, 3) over the methods of all runs; one that was run "
            "twice has two rows. A method without a score on every dataset has no rank. “tie”: a "
            "paired test with Holm's correction does not part the method from the first one; "
            f"“apart”: it does. “{OTHER_RUN}”: the first one is of another run, and only methods "
            "of one run are tested: look at the intervals.",
            faint=True,
        ),
    ]
    if not rows:
        lead.append(paragraph("The registry is empty."))
    sections = []
    for protocol in dict.fromkeys(row["protocol_id"] for row in rows):
        group = [row for row in rows if row["protocol_id"] == protocol]
        sections.append(_runs(group))
        sections += _tables(group)
    return page("Leaderboard", lead, sections)


def _runs(rows: Sequence[Mapping[str, Any]]) -> Section:
    """The runs of one protocol: who signed them, and who had the same result."""
    cells = {
        row["bundle"]: (
            row["run"],
            code(row["bundle"]),
            row["signer"],
            row["signature"],
            row["reproduced_by"] or "nobody yet",
        )
        for row in rows
    }
    protocol = join([escape("protocol "), code(rows[0]["protocol_id"])])
    parts = [paragraph(protocol, faint=True), table(_RUNS, list(cells.values()))]
    return Section(title=rows[0]["benchmark"], parts=parts)


def _tables(rows: Sequence[Mapping[str, Any]]) -> list[Section]:
    """One table for each task, metric and split of a protocol."""
    sections = []
    for key in dict.fromkeys((row["task"], row["split"], row["metric"]) for row in rows):
        task, split, metric = key
        group = [row for row in rows if (row["task"], row["split"], row["metric"]) == key]
        chances = dict.fromkeys(row["chance"] for row in group)
        notes = dict.fromkeys(
            f"{row['method']}, {row['run']}: {row['reason']}" for row in group if row["reason"]
        )
        sections.append(
            Section(
                title=f"{rows[0]['benchmark']} {task}, {split}: {metric_name(metric)}, "
                f"{better_word(metric)}",
                parts=[
                    table(_HEAD, [_cells(row) for row in group], numbers={0, 2, 3, 4}),
                    *(paragraph(text) for text in chances if text),
                    *(paragraph(note, faint=True) for note in notes),
                ],
            )
        )
    return sections


def _reproduced(entry: Entry) -> str:
    """Who had the same result, and how many say so whose signature nobody checked here."""
    found = list(entry.reproduced_by)
    if entry.unchecked:
        plural = "" if entry.unchecked == 1 else "s"
        found.append(f"{entry.unchecked} countersignature{plural} not checked here")
    return ", ".join(found)


def _reason(row: Mapping[str, Any], entry: Entry) -> str:
    """Why a method has no score or no interval; empty where it has both."""
    if row["mean_score"] is not None:
        return f"no interval: {row['ci_reason']}" if "ci_reason" in row else ""
    same = ("method", "task", "split", "metric")
    reasons = dict.fromkeys(
        f"{found['dataset']}: {found['error']}"
        for found in entry.results["per_dataset"]
        if found["error"] and all(found[name] == row[name] for name in same)
    )
    return "; ".join(reasons)


def _firsts(rows: Sequence[Mapping[str, Any]]) -> dict[Table, set[tuple[str, str]]]:
    """The first methods of every table, each with its bundle: several where they tie."""
    found: dict[Table, set[tuple[str, str]]] = {}
    for row in rows:
        firsts = found.setdefault((row["task"], row["split"], row["metric"]), set())
        if row["rank"] == 1:
            firsts.add((row["method"], row["bundle"]))
    return found


def _beside(
    row: Mapping[str, Any], tables: Mapping[Table, set[tuple[str, str]]], entry: Entry
) -> str:
    """What the run's own comparisons say of a method and the table's first one."""
    place = (row["task"], row["split"], row["metric"])
    firsts = tables[place]
    if row["rank"] is None or (row["method"], row["bundle"]) in firsts:
        return ""
    names = {method for method, bundle in firsts if bundle == row["bundle"]}
    if not names:
        return OTHER_RUN
    for name in sorted(names):
        found = between(entry.results, place, row["method"], name)
        if found is not None and found["tie"] is not None:
            return "tie" if found["tie"] else "apart"
    return "not tested"


def _cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        "-" if row["rank"] is None else str(row["rank"]),
        row["method"] if row["executed"] else f"{row['method']} (imported)",
        number(row["mean_score"]),
        interval(row),
        f"{row['coverage']:.0%}",
        row["beside_first"],
        join([escape(row["run"] + " "), code(row["bundle"][:12])]),
    )


def _plain(value: Any) -> Any:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else value
