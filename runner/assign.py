"""Scores of reviewers and papers -> who reviews what, under capacities. Pure.

Two answers, both exact. *Most similar*: the largest sum of scores. *Fairest*: first the largest
possible score of the least suited reviewer of any paper, then the largest sum that keeps it. Each
is a transport problem whose vertices are whole, so a linear program by the simplex method gives
whole assignments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.errors import UsageError

if TYPE_CHECKING:
    from numpy import bool_, float64
    from numpy.typing import NDArray

    Floats = NDArray[float64]
    Flags = NDArray[bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """``scores[r, p]`` is of reviewer r for paper p; every paper gets ``per_paper`` reviewers, and
    reviewer r at most ``capacity[r]`` papers."""

    reviewers: Sequence[str]
    papers: Sequence[str]
    scores: Floats
    per_paper: int
    capacity: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Which pairs were chosen: ``chosen[r, p]``."""

    problem: Problem
    chosen: Flags

    def lines(self) -> list[tuple[str, str, float]]:
        """Return (paper, reviewer, score), by paper, the best reviewer first."""
        problem = self.problem
        found = []
        for column, paper in enumerate(problem.papers):
            rows = [row for row in range(len(problem.reviewers)) if self.chosen[row, column]]
            rows.sort(key=lambda row: (-problem.scores[row, column], problem.reviewers[row]))
            found += [
                (paper, problem.reviewers[row], float(problem.scores[row, column])) for row in rows
            ]
        return found

    def statistics(self) -> dict[str, Any]:
        """Return sums, the worst paper and the loads."""
        scores, chosen = self.problem.scores, self.chosen
        per_paper = (scores * chosen).sum(axis=0)
        loads = chosen.sum(axis=1)
        worst = int(per_paper.argmin())
        return {
            "total": float(per_paper.sum()),
            "mean_score": float(scores[chosen].mean()),
            "lowest_score": float(scores[chosen].min()),
            "worst_paper": self.problem.papers[worst],
            "worst_paper_total": float(per_paper[worst]),
            "load_min": int(loads.min()),
            "load_max": int(loads.max()),
            "load_mean": float(loads.mean()),
            "idle_reviewers": int((loads == 0).sum()),
        }


def most_similar(problem: Problem) -> Assignment:
    """Return the assignment with the largest sum; ``UsageError`` where capacities forbid any."""
    import numpy as np

    check_capacity(problem)
    chosen = _solve(problem, np.ones(problem.scores.shape, dtype=np.bool_))
    if chosen is None:
        raise _impossible(problem)
    return Assignment(problem=problem, chosen=chosen)


def fairest(problem: Problem) -> Assignment:
    """Return the assignment whose lowest score is largest, and of those the largest sum."""
    import numpy as np

    check_capacity(problem)
    levels = np.unique(problem.scores)
    low, high = 0, len(levels)  # the lowest level allows every pair; one above the highest, none
    best = _solve(problem, problem.scores >= levels[0])
    if best is None:
        raise _impossible(problem)
    while high - low > 1:
        middle = (low + high) // 2
        found = _solve(problem, problem.scores >= levels[middle])
        if found is None:
            high = middle
        else:
            low, best = middle, found
    return Assignment(problem=problem, chosen=best)


def check_capacity(problem: Problem) -> None:
    """Raise ``UsageError`` where there are too few reviewers or too little capacity at all."""
    needed = problem.per_paper * len(problem.papers)
    if problem.per_paper > len(problem.reviewers) or sum(problem.capacity) < needed:
        raise _impossible(problem)


def _impossible(problem: Problem) -> UsageError:
    needed = problem.per_paper * len(problem.papers)
    return UsageError(
        "usage.capacity",
        f"{len(problem.papers)} papers with {problem.per_paper} reviewers each need {needed} "
        f"reviews; {len(problem.reviewers)} reviewers may take {sum(problem.capacity)}",
        fix="raise --max-load or the capacities, or lower --per-paper",
    )


def _solve(problem: Problem, allowed: Flags) -> Flags | None:
    """Return the best assignment of allowed pairs, or None where there is none."""
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    rows, columns = np.nonzero(allowed)
    places = np.arange(len(rows))
    ones = np.ones(len(rows))
    by_paper = csr_matrix((ones, (columns, places)), shape=(len(problem.papers), len(rows)))
    by_reviewer = csr_matrix((ones, (rows, places)), shape=(len(problem.reviewers), len(rows)))
    if (by_paper.sum(axis=1) < problem.per_paper).any():
        return None
    found = linprog(
        -problem.scores[rows, columns],
        A_ub=by_reviewer,
        b_ub=np.asarray(problem.capacity, dtype=float),
        A_eq=by_paper,
        b_eq=np.full(len(problem.papers), float(problem.per_paper)),
        bounds=(0, 1),
        method="highs-ds",
    )
    if found.status != 0:
        return None
    chosen = np.zeros(allowed.shape, dtype=np.bool_)
    chosen[rows, columns] = found.x > 0.5
    return chosen


def capacities(
    reviewers: Sequence[str], max_load: int, stated: Mapping[str, int]
) -> tuple[int, ...]:
    """Return every reviewer's capacity: the stated one, else ``max_load``.

    ``UsageError`` for a stated reviewer that there is not.
    """
    unknown = sorted(stated.keys() - set(reviewers))
    if unknown:
        raise UsageError(
            "usage.unknown-reviewer",
            f"no reviewer {unknown[0]!r} in the bundle",
            fix="name reviewers by the bundle's own ids, as in its score files",
        )
    return tuple(stated.get(name, max_load) for name in reviewers)
