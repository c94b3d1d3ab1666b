"""Do the scores of a hybrid method follow from the ranks in its own evidence? Needs no engine.

Reciprocal rank fusion is ``sum of weight / (k + rank)`` over the lists that hold a document, ranks
from 1. A method that declares mode ``hybrid`` and has ``rrf_k`` and ``<list>_weight`` in its config
is held to that wherever its rows have ``<list>_rank`` as evidence; the ranks of a list must also
follow its ``<list>_score``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from operator import itemgetter
from typing import Any

from runner.bundle.admission import Fault
from runner.bundle.read import BundleView
from runner.errors import BundleError
from runner.model import Outcome, UnitOutcome
from runner.rows.form import parse_row
from runner.rows.read import file_lines
from runner.schema_faults import shown
from runner.verify.documents import Documents, row_parts, unit_files

CODE = "bundle.fusion-differs"
#: Another order of additions moves the last bits.
RELATIVE = 1e-9
MAX_FAULTS = 100
_K, _WEIGHT, _RANK, _SCORE = "rrf_k", "_weight", "_rank", "_score"


def fusion_faults(
    view: BundleView, documents: Documents, faults: list[Fault], *, most: int = MAX_FAULTS
) -> Iterator[Fault]:
    """Yield a fault for each row whose scores do not follow, at most ``most`` a unit.

    Units whose rows are at fault already are left: their rows may be anything.
    """
    configs = {
        method.name: method.config
        for method in documents.plan.methods
        if method.declares.get("mode") == "hybrid" and weights_of(method.config)
    }
    for record in documents.outcomes:
        config = configs.get(record.unit.method)
        place = unit_files(record.unit)["rows"].rstrip("/")
        if config is None or record.outcome is not Outcome.OK:
            continue
        if any(fault.file.startswith(place) for fault in faults):
            continue
        for count, fault in enumerate(_unit_faults(view, record, config), 1):
            yield fault
            if count == most:
                break


def _unit_faults(
    view: BundleView, record: UnitOutcome, config: Mapping[str, Any]
) -> Iterator[Fault]:
    for part in row_parts(view, record.unit):
        try:
            with view.open_verified(part) as stream:
                for number, line in enumerate(file_lines(stream), 1):
                    row = parse_row(line)
                    problem = fusion_problem(row, config)
                    if problem is not None:
                        message = f"query {shown(row['query_id'])}: {problem}"
                        yield Fault(file=part, code=CODE, message=message, line=number)
        except BundleError:
            return  # told already by whoever read it for the scores


def weights_of(config: Mapping[str, Any]) -> dict[str, float] | None:
    """Return list name -> weight; None for a config that is not one of reciprocal rank fusion."""
    weights = {
        name.removesuffix(_WEIGHT): value
        for name, value in config.items()
        if name.endswith(_WEIGHT) and _is_number(value)
    }
    k = config.get(_K)
    known = isinstance(k, int | float) and not isinstance(k, bool) and k >= 0
    return weights if known else None


def fusion_problem(row: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a valid row; None also where its evidence lacks a list. Pure."""
    weights, evidence = weights_of(config) or {}, row.get("evidence", {})
    if not weights or any(f"{name}{_RANK}" not in evidence for name in weights):
        return None
    for name in weights:
        problem = _list_problem(row, name)
        if problem is not None:
            return problem
    for place, (document, score) in enumerate(row["ranking"]):
        ranks = {name: evidence[f"{name}{_RANK}"][place] for name in weights}
        fused = math.fsum(
            weight / (config[_K] + ranks[name])
            for name, weight in weights.items()
            if ranks[name] is not None
        )
        if not math.isclose(score, fused, rel_tol=RELATIVE, abs_tol=1e-12):
            return f"document {shown(document)} has {score!r}, and its ranks give {fused!r}"
    return None


def _list_problem(row: Mapping[str, Any], name: str) -> str | None:
    """Ranks are whole numbers from 1, each once, and scores do not rise with them."""
    evidence = row["evidence"]
    ranks = evidence[f"{name}{_RANK}"]
    scores = evidence.get(f"{name}{_SCORE}", [None] * len(ranks))
    triples = zip(ranks, scores, (document for document, _ in row["ranking"]), strict=True)
    found = sorted((item for item in triples if item[0] is not None), key=itemgetter(0))
    for rank, _, document in found:
        if rank < 1 or rank != int(rank):
            return f"document {shown(document)} has rank {rank!r} in {name}"
    for (before, high, _), (rank, low, document) in pairwise(found):
        if rank == before:
            return f"document {shown(document)} has rank {rank} in {name}, as another one has"
        if high is not None and low is not None and low > high:
            return f"document {shown(document)} scores higher in {name} than one ranked before it"
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
