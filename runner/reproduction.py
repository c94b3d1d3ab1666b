"""reproduction.json: a comparison as a document, and the document as lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runner.compare import Comparison, MethodComparison, UnitComparison, Verdict, worst
from runner.compare_rows import shortened

SCHEMA = "sealbench/reproduction/v1"
NAME = "reproduction.json"
MAX_REASON = 2000
#: Verdicts for which a reviewer vouches that the run was reproduced.
REPRODUCED = frozenset({Verdict.IDENTICAL, Verdict.EQUIVALENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """Which bundle was executed again; the last three are None for an unsigned one."""

    manifest_sha256: str
    protocol_id: str
    run_id: str
    signer: str | None
    started: str | None
    finished: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSource:
    """One image and where it came from: ``engine``, ``archive``, ``registry`` or ``built``."""

    name: str
    image_id: str
    manifest_digest: str | None
    platform: str
    source: str


def reproduction_document(
    original: Original,
    comparison: Comparison,
    images: Iterable[ImageSource],
    notes: Sequence[str],
) -> dict[str, Any]:
    """Return the document; its canonical bytes are the file."""
    tolerances = comparison.tolerances
    return {
        "schema": SCHEMA,
        "original": asdict(original),
        "verdict": comparison.verdict.value,
        "reason": shortened(comparison.reason, MAX_REASON),
        "tolerances": {
            "row_score": tolerances.row_score,
            "metric": tolerances.metric,
            "metrics": dict(tolerances.metrics),
        },
        "images": [asdict(image) for image in images],
        "methods": [_method(method) for method in comparison.methods],
        "ranks": [asdict(rank) for rank in comparison.ranks],
        "notes": list(notes),
    }


def _method(method: MethodComparison) -> dict[str, Any]:
    return {
        "method": method.method,
        "method_id": method.method_id,
        "verdict": method.verdict.value,
        "reason": shortened(method.reason, MAX_REASON),
        "units": [_unit(item) for item in method.units],
        "scores": [
            {name: value for name, value in asdict(score).items() if name != "method"}
            for score in method.scores
        ],
    }


def _unit(item: UnitComparison) -> dict[str, Any]:
    rows = item.rows
    return {
        "dataset": item.unit.dataset,
        "repeat": item.unit.repeat,
        "verdict": item.verdict.value,
        "reason": shortened(item.reason, MAX_REASON),
        "original": _side(item.original.outcome.value, item.original.reason),
        "reproduction": _side(item.reproduction.outcome.value, item.reproduction.reason),
        "rows": None if rows is None else {**asdict(rows), "first": list(map(asdict, rows.first))},
    }


def _side(outcome: str, reason: str) -> dict[str, str]:
    return {"outcome": outcome, "reason": shortened(reason, MAX_REASON)}


def contradictions(document: Mapping[str, Any], run_id: str, protocol_id: str) -> Iterator[str]:
    """Say in which ways a reproduction.json contradicts itself or its own bundle. Pure."""
    original = document["original"]
    if (original["run_id"], original["protocol_id"]) != (run_id, protocol_id):
        yield "the original is of another plan or protocol than this re-execution"
    verdicts = [Verdict(method["verdict"]) for method in document["methods"]]
    over_all = worst(verdicts)
    if document["ranks"] and over_all in REPRODUCED:
        over_all = Verdict.DIFFERENT
    if over_all is not Verdict(document["verdict"]):
        yield f"its verdict is {document['verdict']}, and its methods give {over_all.value}"
    for method in document["methods"]:
        units = worst(Verdict(unit["verdict"]) for unit in method["units"])
        stated = Verdict(method["verdict"])
        moved = any(not score["within"] for score in method["scores"])
        raised = units in REPRODUCED and (
            (stated is Verdict.DIFFERENT and moved)
            or (stated is Verdict.EQUIVALENT and bool(method["scores"]))
        )
        if stated is not units and not raised:
            yield f"method {method['method']} is {stated.value}, and its units give {units.value}"


def difference_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs, side by side, for people; nothing where all is identical."""
    for method in document["methods"]:
        if method["verdict"] == Verdict.IDENTICAL:
            continue
        yield f"{method['method']}: {method['verdict']}: {method['reason']}"
        for unit in method["units"]:
            if unit["verdict"] == Verdict.IDENTICAL:
                continue
            repeat = f", repeat {unit['repeat']}" if unit["repeat"] else ""
            yield f"  {unit['dataset']}{repeat}: {unit['verdict']}: {unit['reason']}"
            yield from _row_lines(unit["rows"])
        for score in method["scores"]:
            place = f"{score['metric']} on {score['dataset']} ({score['split']})"
            yield f"  {place}: {score['original']!r} -> {score['reproduction']!r}"
    for rank in document["ranks"]:
        place = f"{rank['metric']} ({rank['split']})"
        yield f"rank of {rank['method']} by {place}: {rank['original']} -> {rank['reproduction']}"


def _row_lines(rows: Mapping[str, Any] | None) -> Iterator[str]:
    for row in rows["first"] if rows else ():
        yield f"    row {row['key']} at {row['place']}"
        yield f"      original:     {_shown(row['original'])}"
        yield f"      re-execution: {_shown(row['reproduction'])}"


def _shown(text: str | None) -> str:
    return "(no such row)" if text is None else text
