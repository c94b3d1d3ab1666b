"""``assign``: from a bundle's expertise scores to who reviews what, as organisers would."""

from __future__ import annotations

import csv
import json
import os
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.assign import Assignment, Problem, capacities, fairest, most_similar
from runner.bundle.durable import make_directory, put_file
from runner.bundle.read import BundleView, open_bundle
from runner.commands.output import emit, table
from runner.commands.reporting import verified
from runner.commands.verifying import bundle_folder, trust_of
from runner.datasets.reviewers import ExpertiseDataset
from runner.errors import EXIT_OK, UsageError, Where
from runner.model import Outcome, UnitOutcome
from runner.protocol.bind import bind
from runner.schema_faults import suggest
from runner.verify.bundle import locate
from runner.verify.documents import Documents, row_parts

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

HEAD = ("paper_id", "reviewer_id", "score")
NAMES_HEAD = ("kind", "id", "own_id")
TASK = "expertise"
Table = dict[str, dict[str, float]]  # reviewer -> paper -> score


def assign(arguments: Namespace) -> int:
    """Write both assignments and their statistics into a folder."""
    if find_spec("scipy") is None:
        raise UsageError(
            "usage.no-scipy",
            "assignments are computed by scipy, which is not installed",
            fix="pip install --require-hashes -r requirements/assign.lock (the extra `assign`)",
        )
    check_targets(arguments)
    with ExitStack() as stack:
        folder = bundle_folder(arguments, stack)
        report = verified(arguments, folder)
        assert report.documents is not None  # noqa: S101 - a bundle without is refused above
        view = stack.enter_context(
            open_bundle(
                folder,
                protocol_id=report.documents.protocol.protocol_id,
                trust=trust_of(arguments),
                allow_unsigned=arguments.allow_unsigned,
            )
        )
        scores = mean_scores(view, report.documents, arguments.method, arguments.dataset)
    problem = problem_of(scores, arguments)
    names = None if arguments.names is None else _names(arguments, report.documents)
    made = {"most-similar": most_similar(problem), "fairest": fairest(problem)}
    make_directory(arguments.out)
    for name, assignment in made.items():
        put_file(arguments.out / f"{name}.csv", _csv(assignment), 0o644, replace=True)
    statistics = {name: assignment.statistics() for name, assignment in made.items()}
    document = {"method": arguments.method, "per_paper": problem.per_paper, **statistics}
    text = json.dumps(document, indent=2) + "\n"
    put_file(arguments.out / "statistics.json", text.encode(), 0o644, replace=True)
    written = {"out": str(arguments.out)}
    if names is not None:
        put_file(arguments.names, names, 0o600)
        written["names"] = str(arguments.names)
    emit(arguments, {**written, **document}, _text(statistics, written.values()))
    return EXIT_OK


def check_targets(arguments: Namespace) -> None:
    """Raise ``UsageError`` for an ``--out`` with files that nobody said to replace, and for a
    ``--names`` that is there, lies where bundles are handed on, or cannot be looked up."""
    out, names = arguments.out, arguments.names
    if not arguments.force and out.exists() and not (out.is_dir() and not any(out.iterdir())):
        fix = "choose another --out, or replace what is there with --force"
        raise UsageError("usage.occupied", f"{out} is there already", fix=fix)
    if names is None:
        return
    if arguments.data_root is None:
        raise UsageError(
            "usage.names-data",
            "--names looks ids up in your own data, and no --data-root says where they are",
            fix="give --data-root DIR; a bundle has no names",
        )
    if os.path.lexists(names):
        fix = "choose another file, or delete it first"
        raise UsageError("usage.occupied", f"{names} is there already", fix=fix)
    places = [arguments.bundle, locate(arguments.bundle)]
    run = arguments.bundle.resolve().parent  # a result folder has the bundle and its tar
    places += [run] if (run / "bundle" / "manifest.json").exists() else []
    handed_on = {place.resolve() for place in places}
    if handed_on & set(names.resolve().parents):
        raise UsageError(
            "usage.names-in-bundle",
            "--names would lie beside or in the bundle, and travel with it",
            fix="choose a place that you hand on to nobody",
        )


def _names(arguments: Namespace, documents: Documents) -> bytes:
    """Return the table of opaque ids and the data's own; the data were held to the protocol."""
    bound = bind(documents.protocol, arguments.data_root)
    tables = [
        [
            (kind, alias, real)
            for kind, ids in (
                ("reviewer", one.real_reviewers),
                ("submission", one.real_submissions),
            )
            for real, alias in ids.items()
        ]
        for name, one in bound.items()
        if isinstance(one, ExpertiseDataset) and arguments.dataset in (None, name)
    ]
    if any(table != tables[0] for table in tables):
        raise UsageError(
            "usage.names-differ",
            "an id stands for another person or paper in another dataset",
            fix="choose one --dataset",
        )
    return _table(NAMES_HEAD, tables[0])


def problem_of(scores: Table, arguments: Namespace) -> Problem:
    """Return what is to be solved: the scores, and the capacities that the command line states."""
    import numpy as np

    reviewers = sorted(scores)
    papers = sorted(scores[reviewers[0]])
    matrix: NDArray[float64] = np.array([[scores[r][p] for p in papers] for r in reviewers])
    if arguments.per_paper < 1 or arguments.max_load < 0:
        message = "--per-paper is at least 1 and --max-load at least 0"
        raise UsageError("usage.out-of-bounds", message, fix="correct the numbers")
    stated = {} if arguments.capacities is None else read_capacities(arguments.capacities)
    return Problem(
        reviewers=reviewers,
        papers=papers,
        scores=matrix,
        per_paper=arguments.per_paper,
        capacity=capacities(reviewers, arguments.max_load, stated),
    )


def mean_scores(view: BundleView, documents: Documents, method: str, dataset: str | None) -> Table:
    """Return a method's scores, averaged over its datasets unless one is named.

    ``UsageError`` for a method or dataset that is not there, failed, or scored rated pairs only.
    """
    names = [m.name for m in documents.plan.methods]
    if method not in names:
        message = f"the bundle has no method {method!r}{suggest(method, names)}"
        raise UsageError("usage.unknown-method", message, fix=f"use one of: {', '.join(names)}")
    known = [d.name for d in documents.protocol.datasets if d.task == TASK]
    if not known or dataset not in (None, *known):
        named = f"dataset {dataset!r}{suggest(dataset, known)}" if dataset else "dataset"
        message = f"the bundle has no expertise {named}"
        fix = f"use one of: {', '.join(known)}" if known else "give a bundle of an expertise run"
        raise UsageError("usage.unknown-dataset", message, fix=fix)
    wanted = [dataset] if dataset else known
    tables = [
        _scores_of(view, record)
        for record in documents.outcomes
        if (record.unit.method, record.unit.repeat) == (method, 0) and record.unit.dataset in wanted
    ]
    papers = {frozenset(row) for one in tables for row in one.values()}
    if len(papers) != 1 or len({frozenset(one) for one in tables}) != 1:
        raise UsageError(
            "usage.partial-scores",
            f"{method} has not scored every reviewer and paper, or its datasets differ in them",
            fix="choose a method that was executed, or one --dataset",
        )
    return {
        who: {p: sum(one[who][p] for one in tables) / len(tables) for p in row}
        for who, row in tables[0].items()
    }


def _scores_of(view: BundleView, record: UnitOutcome) -> Table:
    if record.outcome is not Outcome.OK:
        raise UsageError(
            "usage.failed-method",
            f"{record.unit.method} on {record.unit.dataset} ended as {record.outcome.value}",
            fix="choose a method that ended as ok",
        )
    return {row["reviewer_id"]: row["scores"] for row in _rows(view, record)}


def _rows(view: BundleView, record: UnitOutcome) -> Iterator[dict[str, Any]]:
    for part in row_parts(view, record.unit):
        with view.open_verified(part) as stream:
            for line in stream.read().splitlines():
                yield json.loads(line)


def read_capacities(path: Path) -> Mapping[str, int]:
    """Read ``reviewer_id,papers`` lines; ``UsageError`` with the line for anything else."""
    found: dict[str, int] = {}
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _bad_capacities(path, 1, f"cannot be read: {type(error).__name__}") from None
    for number, cells in enumerate(rows, 1):
        if number == 1 and cells == ["reviewer_id", "papers"]:
            continue
        if len(cells) != 2 or not cells[1].isascii() or not cells[1].isdigit():
            raise _bad_capacities(path, number, "not `reviewer_id,papers` with a whole number")
        if cells[0] in found:
            raise _bad_capacities(path, number, "this reviewer stands twice")
        found[cells[0]] = int(cells[1])
    return found


def _bad_capacities(path: Path, line: int, message: str) -> UsageError:
    return UsageError(
        "usage.capacities",
        message,
        fix="write one `reviewer_id,papers` line for each reviewer whose capacity differs",
        where=Where(file=str(path), line=line),
    )


def _csv(assignment: Assignment) -> bytes:
    return _table(HEAD, ((paper, who, repr(score)) for paper, who, score in assignment.lines()))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> bytes:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue().encode("utf-8")


def _text(statistics: Mapping[str, Mapping[str, Any]], written: Iterable[str]) -> str:
    keys = list(next(iter(statistics.values())))
    rows = [
        (key.replace("_", " "), *(_shown(one[key]) for one in statistics.values())) for key in keys
    ]
    return table(("", *statistics), rows) + "".join(f"wrote {path}\n" for path in written)


def _shown(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
