"""What units that ended as ok still hold back: rows that carry an error, and scores that are null.

An outcome says whether a method kept to its limits and the form of rows, not whether it could
answer. One sentence each, for the terminal and for the page. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runner.model import Outcome, UnitOutcome
from runner.progress_text import left_out, printable, row_errors_text, rows_text
from runner.report.words import imported_in, titled


def row_errors(
    outcomes: Iterable[UnitOutcome], tasks: Mapping[str, str], results: Mapping[str, Any]
) -> list[str]:
    """Return a sentence for each unit that is ok and has rows with an error.

    ``tasks`` is dataset -> task: only in retrieval does such a row count, as an empty answer.
    """
    imported, sentences = imported_in(results), []
    for record in outcomes:
        rows, unit = record.evidence.rows, record.unit
        if record.outcome is not Outcome.OK or rows is None or not rows.errors:
            continue
        again = f" (repeat {unit.repeat})" if unit.repeat else ""
        place = f"{titled(unit.method, imported)} on {unit.dataset}{again}: ok"
        if tasks[unit.dataset] == "retrieval":
            sentences.append(f"{place}, but {_empty(record)}")
        else:
            every = rows_text(rows.valid, rows.expected)
            sentences.append(f"{place}, rows {every}, {row_errors_text(record.evidence)}")
    return sentences


def _empty(record: UnitOutcome) -> str:
    """What became of queries without an answer."""
    rows = record.evidence.rows
    assert rows is not None  # noqa: S101 - the caller has counted its errors
    count = f"{rows.errors} of {rows.expected} queries"
    if left_out(record.evidence):
        return f"{count} were left out by the file and count as empty answers"
    first = "" if rows.first_error is None else f", first: {printable(rows.first_error)}"
    return f"{count} failed and count as empty answers{first}"


def null_reasons(results: Mapping[str, Any], task: str, split: str, metric: str) -> list[str]:
    """Return why scores are null though their units ended as ok: one sentence a method, with the
    first dataset's reason. Why other units have no score is their outcome."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in results["per_dataset"]:
        here = (row["task"], row["split"], row["metric"]) == (task, split, metric)
        if here and row["score"] is None and row["outcome"] == Outcome.OK.value:
            found.setdefault(row["method"], []).append(row)
    imported, sentences = imported_in(results), []
    for method, rows in found.items():
        more = f" (and {len(rows) - 1} more datasets)" if len(rows) > 1 else ""
        why = printable(str(rows[0]["error"]))
        sentences.append(
            f"{titled(method, imported)}: {metric} on {split} is null: "
            f"{rows[0]['dataset']}: {why}{more}"
        )
    return sentences
