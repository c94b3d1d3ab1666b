"""A plan, or what ``check`` found, as text for people. A table library would cost 50 ms here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from runner.manifest_read import LIMIT_NAMES
from runner.model import MethodPlan, Outcome, Plan
from runner.quantities import format_limit

if TYPE_CHECKING:
    from runner.check import CheckReport


def render_plan(plan: Plan) -> str:
    """Return the whole plan as text: every id, every default filled in. Ends with a line feed."""
    return "\n".join(_plan_lines(plan)) + "\n"


def render_check(report: CheckReport) -> str:
    """Return the findings as text, one block each, and a last line that sums up."""
    lines = []
    for finding in report.findings:
        place = f"{finding.where}: " if finding.where else ""
        lines += [f"{finding.level}: {place}{finding.message} [{finding.code}]"]
        lines += [f"  fix: {finding.fix}"]
    errors = sum(finding.level == "error" for finding in report.findings)
    warnings = len(report.findings) - errors
    verdict = _counted(errors, "error") if errors else "ok"
    if warnings:
        verdict += f", {_counted(warnings, 'warning')}"
    if report.plan is not None:
        units = _counted(len(report.plan.units), "unit")
        verdict += f": {units}, run id {report.plan.run_id}"
    return "\n".join([*map(printable, lines), printable(f"{report.path}: {verdict}")]) + "\n"


def printable(text: str) -> str:
    """Return text that cannot steer a terminal: what does not print is shown as an escape."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield from _pairs(
        ("run", plan.name),
        ("run id", plan.run_id),
        ("benchmark", plan.benchmark_id),
        ("protocol id", plan.protocol_id),
        ("splits", ", ".join(plan.splits)),
        ("seed", str(plan.seed)),
        ("repeats", str(plan.repeats)),
        ("jobs", str(plan.jobs)),
        *([] if plan.baseline is None else [("baseline", plan.baseline)]),
    )
    for method in plan.methods:
        yield ""
        yield f"method {method.name}"
        yield from ("  " + line for line in _pairs(*_method_pairs(method)))
    yield ""
    yield f"{_counted(len(plan.units), 'unit')}, in this order"
    rows = [
        (str(unit.repeat), unit.method, unit.dataset, str(unit.seed), unit.unit_id)
        for unit in plan.units
    ]
    yield from _table(("repeat", "method", "dataset", "seed", "unit id"), rows)


def _method_pairs(method: MethodPlan) -> Iterator[tuple[str, str]]:
    yield "method id", method.method_id
    image = method.image
    if image is None:
        yield "precomputed", "not executed here"
        for file in method.precomputed:
            yield file.dataset, f"{file.sha256} ({file.size} bytes)"
        return
    note = "" if image.published else ", not published"
    yield "image", f"{image.name} ({image.platform}{note})"
    for label, value in (("image id", image.image_id), ("manifest", image.manifest_digest)):
        if value is not None:
            yield label, value
    yield "command", printable(shlex.join(method.command))
    yield "config", printable(json.dumps(method.config, ensure_ascii=False, sort_keys=True))
    limits = asdict(method.limits).items()
    yield "limits", ", ".join(f"{LIMIT_NAMES[key]} {format_limit(key, v)}" for key, v in limits)
    yield "cache", "yes" if method.cache else "no"
    if method.network is not None:
        most = format_limit("output_bytes", method.network.max_bytes)
        yield "network", f"{', '.join(method.network.allow)} ({most} a unit)"
    if method.secrets:
        yield "secrets", ", ".join(method.secrets)
    for file in method.recordings:
        yield f"replays {file.dataset}", f"{file.sha256} ({file.size} bytes)"
    for pin in method.models:
        yield f"model {pin.name}", f"{pin.digest} (revision {pin.revision})"
    if method.module is not None:
        yield "module", f"{method.module} (published with the bundle)"
    if method.requires:
        yield "requires", ", ".join(method.requires)
    if method.waive:
        yield "waived", ", ".join(method.waive)
    if method.expect is not Outcome.OK:
        yield "expected", method.expect.value


def _pairs(*pairs: tuple[str, str]) -> Iterator[str]:
    width = max(len(label) for label, _ in pairs)
    return (f"{label:<{width}}  {value}" for label, value in pairs)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    for row in (head, *rows):
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
