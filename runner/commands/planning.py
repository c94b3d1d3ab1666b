"""``check`` and ``plan``: what a manifest says and what it resolves to. Nothing starts."""

from __future__ import annotations

from argparse import Namespace

from runner.check import check_manifest, load_plan
from runner.commands.output import emit
from runner.plan import Overrides
from runner.plan_document import plan_document
from runner.plan_text import render_check, render_plan


def overrides(arguments: Namespace) -> Overrides:
    """What the command line sets over the manifest."""
    splits = tuple(arguments.split) if arguments.split else None
    return Overrides(repeats=arguments.repeats, jobs=arguments.jobs, splits=splits)


def check(arguments: Namespace) -> int:
    """Lint a manifest; the exit code is that of its first error."""
    report = check_manifest(arguments.manifest, overrides=overrides(arguments))
    emit(arguments, report.as_dict(), render_check(report))
    return report.exit_code


def plan(arguments: Namespace) -> int:
    """Show the plan of a run manifest."""
    made = load_plan(arguments.manifest, overrides=overrides(arguments))
    emit(arguments, plan_document(made), render_plan(made))
    return 0
