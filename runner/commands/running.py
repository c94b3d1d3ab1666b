"""``run``: everything from a manifest to a sealed and verified bundle, with a summary."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner import keys
from runner.claims import FILE as CLAIMS
from runner.commands.output import table, tell
from runner.commands.planning import overrides
from runner.comparisons import between
from runner.determinism import nondeterministic_lines
from runner.engine.docker import DockerEngine
from runner.errors import (
    EXIT_CANCELLED,
    EXIT_OK,
    EXIT_UNEXPECTED_OUTCOMES,
    BundleError,
    DataError,
    KeyError_,
)
from runner.manifest import RunManifest, load_run_manifest
from runner.progress import Mode, make_reporter
from runner.progress_text import printable
from runner.report.boundary import boundary_line, freeze_notes
from runner.report.fused import fused_notes
from runner.report.latency import HEAD, coverage, measured
from runner.report.unscored import null_reasons, row_errors
from runner.report.words import (
    beyond_tests,
    imported_in,
    missing_intervals,
    scored_head,
    titled,
    two_means,
)
from runner.run import Host, RunOptions, RunResult, resolve_manifest, run_resolved
from runner.signals import CancelToken, cancel_on_signals
from runner.trust import explicit
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle
from runner.workspace import stem

#: Of a failed method's stderr: how much of its last line is shown, and of its end is looked at.
LAST_WORDS, LAST_WORDS_BYTES = 200, 16 << 10
NOT_RESUMED = (
    "cancelled: what there was is sealed, and what is sealed is not resumed; "
    "the same command starts anew (where you gave --out, give another folder)"
)
PASSPHRASE = "SEALBENCH_KEY_PASSPHRASE"  # noqa: S105 - the variable's name, not its value


def run(arguments: Namespace) -> int:
    """Run, seal and verify; exit code 20 when an outcome is not the expected one."""
    return run_and_tell(arguments, load_run_manifest(arguments.manifest))


def run_and_tell(arguments: Namespace, manifest: RunManifest) -> int:
    """``run`` for a manifest that is read already."""
    key = None if arguments.unsigned else signing_key(arguments.key)
    mode: Mode = "json" if arguments.json else arguments.progress
    # JSON events are the answer; people get progress apart from it.
    reporter = make_reporter(mode, sys.stdout if arguments.json else sys.stderr)
    options = RunOptions(
        data_root=arguments.data_root,
        out=arguments.out,
        key=key,
        overrides=overrides(arguments),
        retry_failed=arguments.retry_failed,
        fresh=arguments.fresh,
        config_freeze=arguments.config_freeze,
        models_root=getattr(arguments, "models_root", None),
        cache_dir=getattr(arguments, "cache_dir", None),
    )
    try:
        with cancel_on_signals(CancelToken()) as cancel:
            result = run_resolved(
                resolve_manifest(manifest, options), options, host=Host(open_engine=DockerEngine),
                reporter=reporter, cancel=cancel,
            )  # fmt: skip
    finally:
        reporter.close()
    return finish(result, key, as_json=arguments.json)


def finish(result: RunResult, key: keys.SigningKey | None, *, as_json: bool) -> int:
    """Verify what was sealed, tell what came out, and return the exit code.

    Raises ``BundleError`` where the bundle does not verify and ``DataError`` where the data are no
    longer those that the run began with: after what there is to tell.
    """
    changed = None
    try:
        report = _verify(result, key, labels=True)
    except DataError as error:
        changed, report = error, _verify(result, key, labels=False)
    if as_json:
        last = {"event": "result", "results": result.results, "verify": report.as_dict()}
        tell(json.dumps(last) + "\n")
    else:
        tell(summary_text(result, report))
    if changed is not None:
        raise DataError(
            "data.changed-meanwhile",
            f"the data changed while the run went on: {changed.message}",
            fix="the scores above are by the labels as they were when it began: put the frozen "
            "files back and see that they come out again, with `sealbench verify`",
            where=changed.where,
        ) from changed
    if report.faults:
        raise BundleError(
            "bundle.own-refused",
            f"the bundle that was just sealed does not verify: {report.faults[0]}",
            fix="the disk changed it, or this is a fault of ours: keep the bundle and report it",
        )
    if not result.summary.complete:
        return EXIT_CANCELLED
    return EXIT_UNEXPECTED_OUTCOMES if result.summary.unexpected else EXIT_OK


def signing_key(path: Path | None) -> keys.SigningKey:
    """Return the key of a file, or your own; ``KeyError_`` where there is none."""
    chosen = path or keys.default_key_path()
    if path is None and not chosen.exists():
        raise KeyError_(
            "key.missing",
            "there is no key to sign with",
            fix="make one with `sealbench keys generate`, or seal with --unsigned",
        )
    secret = os.environ.get(PASSPHRASE)
    return keys.load_private(chosen, passphrase=secret.encode() if secret else None)


def _verify(result: RunResult, key: keys.SigningKey | None, *, labels: bool) -> VerifyReport:
    """Verify what was sealed as anybody else would, from the files."""
    resolved = result.resolved
    return verify_bundle(
        VerifyRequest(
            bundle=result.bundle.path,
            protocol_id=resolved.protocol.protocol_id,
            protocol=resolved.protocol,
            trust=None if key is None else explicit([key.public]),
            data_root=resolved.data_root if labels else None,
            allow_unsigned=key is None,
        )
    )


def summary_text(result: RunResult, report: VerifyReport) -> str:
    """A short table of every task's main metric and each method's outcome, then the path."""
    resolved, documents = result.resolved, report.documents
    protocol = resolved.protocol
    parts = []
    for task in protocol.tasks:
        metric = protocol.primary_metric_of(task)
        for split in resolved.plan.splits:
            found = [
                row for row in _aggregate(result) if _is(row, task=task, split=split, metric=metric)
            ]
            rows = [(*_row(row, result), beside_first(row, result.results)) for row in found]
            head = ("rank", "method", scored_head(metric, split), "95 % interval", "outcome")
            parts.append(table((*head, "beside the first"), rows))
            remarks = [] if documents is None else freeze_notes(documents, split)
            remarks += null_reasons(result.results, task, split, metric)
            remarks += [*missing_intervals(found), *two_means(result.results, split, metric)]
            remarks += fused_notes(resolved.plan.methods, result.results, split, metric)
            remarks += beyond_tests(result.results, task, split, metric)
            parts.append("".join(f"{text}\n" for text in remarks))
    parts.append(_failures(result))
    tasks = {dataset.name: dataset.task for dataset in protocol.datasets}
    short = row_errors(result.outcomes, tasks, result.results)
    parts.append("".join(f"{text}\n" for text in short))
    parts.append(_latencies(result))
    varying = list(nondeterministic_lines(result.results, protocol.primary_metric))
    parts.append("\n".join(varying) + "\n" if varying else "")
    levels = (("intact", report.intact), ("recomputed", report.recomputed))
    words = {True: "yes", False: "NO", None: "open"}
    lines = [f"{name}: {words[level.holds]} ({level.detail})" for name, level in levels]
    if documents is not None and documents.claims is not None:
        path = _shown(result.bundle.path / CLAIMS)
        lines.append(boundary_line(documents.claims["boundary"], path))
    lines.append(f"bundle: {_shown(result.bundle.path)}")
    if not result.summary.complete:
        lines.append(NOT_RESUMED)
    parts.append("\n".join(lines) + "\n")
    return "\n".join(part for part in parts if part)


def _aggregate(result: RunResult) -> list[dict[str, Any]]:
    found: Any = result.results["aggregate"]
    return sorted(found, key=lambda row: (row["rank"] is None, row["rank"] or 0, row["method"]))


def _is(row: Mapping[str, Any], **wanted: str) -> bool:
    return all(row[name] == value for name, value in wanted.items())


def _row(row: dict[str, Any], result: RunResult) -> tuple[str, ...]:
    protocol = result.resolved.protocol
    outcomes = dict.fromkeys(
        record.outcome.value
        for record in result.outcomes
        if record.unit.method == row["method"]
        and protocol.dataset(record.unit.dataset).task == row["task"]
    )
    interval = "-" if row["ci_low"] is None else f"{row['ci_low']:.4f} - {row['ci_high']:.4f}"
    score = "null" if row["mean_score"] is None else f"{row['mean_score']:.6f}"
    rank = "-" if row["rank"] is None else str(row["rank"])
    name = titled(row["method"], imported_in(result.results))
    return (rank, name, score, interval, ", ".join(outcomes))


def beside_first(row: dict[str, Any], results: Mapping[str, Any]) -> str:
    """Whether a test parts a method from the best one: a statistical tie is called one."""
    same = {name: row[name] for name in ("task", "split", "metric")}
    firsts = [
        found["method"]
        for found in results["aggregate"]
        if found["rank"] == 1 and _is(found, **same)
    ]
    if row["method"] in firsts or row["rank"] is None:
        return ""
    place = (row["task"], row["split"], row["metric"])
    entries = (between(results, place, row["method"], first) for first in firsts)
    return next((_verdict(entry) for entry in entries if entry is not None), "")


def _verdict(entry: Mapping[str, Any]) -> str:
    if entry["p_adjusted"] is None:
        return "not tested"
    word = "tie" if entry["tie"] else "apart"
    return f"{word} (p = {entry['p_adjusted']:.3g})"


def _failures(result: RunResult) -> str:
    lines, imported = [], imported_in(result.results)
    for record in result.outcomes:
        if record.outcome.value == "ok":
            continue
        unit = record.unit
        name = titled(unit.method, imported)
        line = f"{name} on {unit.dataset}: {record.outcome.value}: {record.reason}"
        log = result.bundle.path / "logs" / unit.method / f"{stem(unit)}.stderr.log"
        said = log.is_file() and log.stat().st_size > 0
        words = last_words(log) if said else ""
        lines.append(f"{line}; its stderr ends: {words}" if words else line)
        if said:
            lines.append(f"  its stderr: {_shown(log)}")
    return "\n".join(lines) + "\n" if lines else ""


def last_words(log: Path) -> str:
    """Return the last line of a log that is not blank, printable and shortened; "" for none."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - LAST_WORDS_BYTES))
        lines = stream.read(LAST_WORDS_BYTES).decode("utf-8", "replace").splitlines()
    told = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return printable(told)[:LAST_WORDS]


def _latencies(result: RunResult) -> str:
    """How long answers took, with what they were computed on and what they include."""
    methods, summaries = result.resolved.plan.methods, result.results["summaries"]
    found = list(measured(summaries, methods, result.outcomes))  # type: ignore[arg-type]  # JSON
    rows = [
        (method.name, summary["dataset"], summary["split"], *figures)
        for summary, method, figures in found
    ]
    ran = {method.name: method for _, method, _ in found}
    first, *more = coverage(ran.values())
    notes = [
        f"as the methods measured it, on {os.cpu_count()} cores; compare within this host only",
        f"what it includes: {first}",
        *more,
    ]
    head = ("ms a query", "dataset", "split", *HEAD)
    return table(head, rows) + "".join(f"{note}\n" for note in notes) if rows else ""


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
