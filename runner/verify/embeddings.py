"""Do the embedding scores of a bundle come out again? What to sample, and how to judge it. Pure.

The queries follow from the digest of the bundle's manifest, which is known only once all its files
are there: two reviewers look at the same ones, and a larger sample holds every smaller one. Only
the documents that a sealed row has are scored again, so this costs seconds where a whole
re-execution costs the run's time. Bits are compared first; a score that moved must be within the
protocol's ``row_score``, as in a re-execution on another CPU.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from runner.model import MethodPlan
from runner.schema_faults import shown

CODE = "bundle.embedding-differs"
SAMPLE = "sealbench/embedding-sample/v1"
#: How a method searches -> which part of a row's evidence its vectors gave; None: the ranking.
PARTS: Mapping[str, str | None] = {"vector_only": None, "hybrid": "vector"}


class Listed(NamedTuple):
    """A document of a sealed row, by its embedding: score and rank, None where it is not listed."""

    document: str
    score: float | None
    rank: int | None


class Problem(NamedTuple):
    """What is wrong with one document of a sealed row."""

    document: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryComparison:
    """One query: ``scores`` compared, ``moved`` of them another number, ``largest`` how far."""

    scores: int
    moved: int
    largest: float
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitComparison:
    """One unit, query by query added up. ``unmeasured`` says why nothing could be compared."""

    method: str
    dataset: str
    repeat: int
    queries: tuple[str, ...]
    scores: int = 0
    moved: int = 0
    largest: float = 0.0
    differing: int = 0
    unmeasured: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """What it came to: ``holds`` is None where it was not asked for or could not be looked at."""

    holds: bool | None
    detail: str
    tolerance: float | None = None
    units: tuple[UnitComparison, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The form that ``--json`` prints."""
        found = asdict(self)
        return {**found, "units": [{**u, "queries": list(u["queries"])} for u in found["units"]]}


UNASKED = Embeddings(
    holds=None,
    detail="not asked for: --embeddings N computes the scores of N queries again, on an engine",
)


def unfit(method: MethodPlan) -> str | None:
    """Return why the scores of a method that declares vectors cannot be computed again alone."""
    mode, exact = method.declares.get("mode"), method.declares.get("exact")
    if method.network is not None:
        return "it asks hosts on a network"
    if method.module is not None:
        return "it runs a module of its author's"
    if mode not in PARTS:
        return f"it declares mode {mode}"
    return None if exact is True else "it does not declare exact search"


def sample(manifest_sha256: str, dataset: str, queries: Iterable[str], count: int) -> list[str]:
    """Return ``count`` of the queries, or all: the first by SHA-256 of digest, dataset and id."""
    head = f"{SAMPLE}\n{manifest_sha256}\n{dataset}\n".encode()

    def place(query: str) -> tuple[bytes, str]:
        return hashlib.sha256(head + query.encode()).digest(), query

    return sorted(queries, key=place)[:count]


def batches(wanted: Mapping[str, Sequence[str]], most: int) -> list[list[str]]:
    """Part queries so that queries times distinct documents of a part is at most ``most``, as far
    as a single query allows: every query of a part is asked for all documents of the part."""
    parts: list[list[str]] = []
    held: set[str] = set()
    for query, documents in wanted.items():
        grown = held.union(documents)
        if not parts or (len(parts[-1]) + 1) * len(grown) > most:
            parts.append([])
            grown = set(documents)
        parts[-1].append(query)
        held = grown
    return parts


def listed(row: Mapping[str, Any], part: str | None, depth: int) -> tuple[Listed, ...] | None:
    """Return the documents that a row ranks within ``depth``, the best by embedding first and
    those without a rank last; None for a row whose evidence lacks the part."""
    ranking = row["ranking"]
    order = sorted(range(len(ranking)), key=lambda at: (-ranking[at][1], ranking[at][0]))[:depth]
    if part is None:
        return tuple(
            Listed(ranking[at][0], ranking[at][1], rank) for rank, at in enumerate(order, 1)
        )
    evidence = row.get("evidence", {})
    if not {f"{part}_score", f"{part}_rank"} <= evidence.keys():
        return None
    scores, ranks = evidence[f"{part}_score"], evidence[f"{part}_rank"]
    found = [Listed(ranking[at][0], scores[at], ranks[at]) for at in order]
    return tuple(sorted(found, key=lambda item: (item.rank is None, item.rank or 0)))


def scores_of(row: Mapping[str, Any], part: str | None) -> dict[str, float] | None:
    """Return document -> score by embedding of a recomputed row; None as in ``listed``."""
    found = listed(row, part, len(row["ranking"]))
    if found is None:
        return None
    return {item.document: item.score for item in found if item.score is not None}


def compare_query(
    sealed: Sequence[Listed], again: Mapping[str, float], tolerance: float | None
) -> QueryComparison:
    """Compare what a row says with recomputed scores; ``tolerance`` None lets scores move.

    Where all scores hold they must keep the order of the ranks, and no more documents may be
    better than a rank allows: exact search looked at all of them.
    """
    pairs = [(item, again.get(item.document)) for item in sealed if item.score is not None]
    problems, moves = [], []
    for item, now in pairs:
        if now is None or item.score is None:
            message = f"sealed {item.score!r}, and recomputed it is not among the results"
            problems.append(Problem(item.document, message))
        elif now != item.score:
            moves.append(abs(now - item.score))
            if tolerance is not None and moves[-1] > tolerance:
                message = f"sealed {item.score!r}, recomputed {now!r}"
                problems.append(Problem(item.document, message))
    free = bool(moves) and tolerance is None
    if not problems and not free:
        # Both of two scores may have moved.
        problems += _order_problems(sealed, again, 2 * (tolerance or 0.0) if moves else 0.0)
    return QueryComparison(
        scores=len(pairs),
        moved=len(moves),
        largest=max(moves, default=0.0),
        problems=tuple(problems),
    )


def _order_problems(
    sealed: Sequence[Listed], again: Mapping[str, float], slack: float
) -> Iterator[Problem]:
    ranked = [(item.document, item.rank) for item in sealed if item.rank is not None]
    known = [(document, rank, again[document]) for document, rank in ranked if document in again]
    for (before, _, high), (document, rank, low) in pairwise(known):
        if low > high + slack:
            text = f"ranked {rank}, with {low!r} recomputed; {shown(before)} before it has {high!r}"
            yield Problem(document, text)
    ascending = sorted(again.values())
    for document, rank, score in known:
        better = len(ascending) - bisect_right(ascending, score + slack)
        if better >= rank:
            yield Problem(document, f"ranked {rank}, and {better} documents score higher")
            break  # those behind it would be told for the same reason
    for item in sealed:
        now = again.get(item.document)
        if item.rank is None and now is not None and known and now > known[-1][2] + slack:
            text = f"not ranked, with {now!r} recomputed; {shown(known[-1][0])} is, with less"
            yield Problem(item.document, text)


def judge(
    units: Sequence[UnitComparison], left_out: Sequence[str], tolerance: float | None
) -> Embeddings:
    """Bring the units together: nothing that was not compared passes."""
    scores, moved = sum(unit.scores for unit in units), sum(unit.moved for unit in units)
    differing = sum(unit.differing for unit in units)
    largest = max((unit.largest for unit in units), default=0.0)
    problems = [f"{u.method} on {u.dataset}: {u.unmeasured}" for u in units if u.unmeasured]
    holds: bool | None = True
    if differing:
        holds, verdict = False, f"{differing} not as sealed, see the faults"
    elif not moved:
        verdict = "identical"
    elif tolerance is None:
        holds = None
        verdict = f"{moved} moved, by at most {largest:.2g}, and the protocol has no tolerance"
    else:
        verdict = f"{moved} moved, by at most {largest:.2g}, within the protocol's {tolerance!r}"
    if holds and (problems or not scores):
        holds = None
    text = f"{_extent(units)}, {scores} scores recomputed"
    detail = "; ".join(
        [f"{text}: {verdict}" if scores or differing else text, *problems, *left_out]
    )
    return Embeddings(holds=holds, detail=detail, tolerance=tolerance, units=tuple(units))


def _extent(units: Sequence[UnitComparison]) -> str:
    queries = sum({unit.dataset: len(unit.queries) for unit in units}.values())
    methods = len({unit.method for unit in units})
    return " x ".join(
        f"{count} {noun if count == 1 else plural}"
        for count, noun, plural in ((queries, "query", "queries"), (methods, "method", "methods"))
    )
