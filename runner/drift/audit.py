"""Watch a baseline: execute it again, compare, remember, and never do so twice at once.

The state folder holds ``history.jsonl`` (every look, appended), ``difference.txt`` and
``trend.svg`` (the latest), ``runs/<sequence>/`` (the newest bundles) and the lock. A look that was
killed is resumed by the next one, and counts once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner import __version__
from runner.bundle import durable
from runner.bundle.read import open_bundle
from runner.clock import Clock, SystemClock
from runner.compare import Verdict
from runner.compare_rows import shortened
from runner.drift.history import SCHEMA, append_history, clock_notes, read_history
from runner.drift.text import difference_text, trend_svg
from runner.errors import SealbenchError
from runner.exclusive import exclusive
from runner.progress import Reporter
from runner.reproduce import ReproduceRequest, Reproduction, reproduce
from runner.run import Host
from runner.signals import CancelToken

HISTORY, DIFFERENCE, TREND, LOCK, RUNS = (
    "history.jsonl", "difference.txt", "trend.svg", "lock", "runs",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRequest:
    """``baseline`` is what to execute again; its ``out`` and ``countersign`` are not used.

    ``keep`` is how many of the newest bundles stay in the state folder.
    """

    baseline: ReproduceRequest
    state: Path
    keep: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look: its record in the history, and what it rests on."""

    record: Mapping[str, Any]
    reproduction: Reproduction

    @property
    def verdict(self) -> Verdict:
        return Verdict(self.record["verdict"])


def look(
    request: DriftRequest,
    *,
    host: Host,
    reporter: Reporter,
    cancel: CancelToken,
    clock: Clock | None = None,
) -> Look:
    """Look once. Raises ``StorageError`` (``storage.busy``) while another look is under way.

    An error that leaves nothing to compare is written down, too, and raised.
    """
    clock = clock or SystemClock()
    durable.make_directory(request.state)
    what = "looking at this baseline"
    with exclusive(request.state / LOCK, what=what):
        records = read_history(request.state / HISTORY)
        sequence, baseline = len(records) + 1, _digest(request.baseline)
        now = clock.utc_stamp()
        start = {"schema": SCHEMA, "sequence": sequence, "time": now, "baseline": baseline}
        notes = clock_notes(records, now)
        out = request.state / RUNS / f"{sequence:06d}"
        again = replace(request.baseline, out=out, countersign=None)
        try:
            made = reproduce(again, host=host, reporter=reporter, cancel=cancel)
        except SealbenchError as error:
            record = {**start, **_failed(error), "notes": notes}
            _write(request.state, [*records, record], None)
            raise
        record = {**start, **_compared(made), "notes": [*notes, *made.document["notes"]]}
        _write(request.state, [*records, record], made)
        _prune(request.state / RUNS, request.keep)
    return Look(record=record, reproduction=made)


def _digest(baseline: ReproduceRequest) -> str:
    """The digest of the baseline's manifest; a baseline that is not sealed is refused here."""
    with open_bundle(
        baseline.bundle,
        protocol_id=baseline.protocol_id,
        trust=baseline.trust,
        allow_unsigned=baseline.allow_unsigned,
    ) as view:
        return view.admission.manifest_sha256 or ""


def _failed(error: SealbenchError) -> dict[str, Any]:
    return {
        "verdict": Verdict.NOT_COMPARABLE.value,
        "drift": False,
        "reason": shortened(str(error), 2000),
        "error": error.code,
        "bundle": None,
        "metric": None,
        "methods": [],
        "host": {"engine": None, "kernel": None, "sealbench": __version__},
    }


def _compared(made: Reproduction) -> dict[str, Any]:
    document, claims = made.document, made.result.bundle.claims
    return {
        "verdict": document["verdict"],
        "drift": made.verdict is Verdict.DIFFERENT,
        "reason": document["reason"],
        "error": None,
        "bundle": made.result.bundle.manifest_sha256,
        "metric": made.result.resolved.protocol.primary_metric,
        "methods": list(_methods(made)),
        "host": {
            "engine": claims.engine_version,
            "kernel": os.uname().release,
            "sealbench": claims.runner_version,
        },
    }


def _methods(made: Reproduction) -> Iterator[dict[str, Any]]:
    resolved, report = made.result.resolved, made.report
    metric, split = resolved.protocol.primary_metric, resolved.plan.splits[0]
    then = report.documents.results if report.documents is not None else {}
    verdicts = {one["method"]: one["verdict"] for one in made.document["methods"]}
    for method in resolved.plan.methods:
        walls = [
            record.evidence.wall_ns
            for record in made.result.outcomes
            if record.unit.method == method.name
        ]
        known = [wall for wall in walls if wall is not None]
        yield {
            "method": method.name,
            "verdict": verdicts[method.name],
            "score": _score(made.result.results, method.name, metric, split),
            "baseline_score": _score(then, method.name, metric, split),
            "wall_seconds": sum(known) / 1e9 if len(known) == len(walls) else None,
        }


def _score(results: Mapping[str, Any], method: str, metric: str, split: str) -> float | None:
    wanted = (method, metric, split)
    for row in results.get("aggregate", ()):
        if (row["method"], row["metric"], row["split"]) == wanted:
            score: float | None = row["mean_score"]
            return score
    return None


def _write(state: Path, records: list[dict[str, Any]], made: Reproduction | None) -> None:
    record = records[-1]
    text = difference_text(record, None if made is None else made.document)
    if made is not None:
        durable.put_file(made.result.bundle.path.with_name(DIFFERENCE), text.encode(), replace=True)
    durable.put_file(state / DIFFERENCE, text.encode(), replace=True)
    plot = trend_svg(records, record["baseline"])
    durable.put_file(state / TREND, plot.encode(), replace=True)
    # Last: what the history tells is there.
    append_history(state / HISTORY, record)


def _prune(runs: Path, keep: int) -> None:
    """Remove all but the newest of our own run folders; the history keeps their digests."""
    folders = sorted(path for path in runs.iterdir() if path.is_dir() and path.name.isdigit())
    for folder in folders[: max(0, len(folders) - keep)]:
        with durable.storage_errors(folder):
            shutil.rmtree(folder)
