"""From scores of papers to scores of reviewers: the best paper, the mean, an upper quartile, ..."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sealbench_sdk import InputError

from expertise.inputs import Job
from expertise.rows import Floats

TOP = 3


def _top_mean(scores: Floats) -> Floats:
    kept = min(TOP, len(scores))
    best: Floats = np.partition(scores, len(scores) - kept, axis=0)[-kept:]
    return np.asarray(best.mean(axis=0))


#: Each takes (papers of one reviewer, submissions) and returns one score a submission.
POOLINGS: dict[str, Callable[[Floats], Floats]] = {
    "max": lambda scores: np.asarray(scores.max(axis=0)),
    "mean": lambda scores: np.asarray(scores.mean(axis=0)),
    "p75": lambda scores: np.asarray(np.percentile(scores, 75, axis=0)),
    "top3": _top_mean,
}


def pooled(job: Job, by_paper: Floats) -> Floats:
    """Pool ``by_paper`` (rows in the order of ``job.profile_papers``) as the config says."""
    name = str(job.task.config.get("pooling", "max"))
    if name not in POOLINGS:
        raise InputError(f"no pooling {name!r}: one of {', '.join(POOLINGS)}")
    row = {paper.id: number for number, paper in enumerate(job.profile_papers)}
    pool = POOLINGS[name]
    return np.stack(
        [pool(by_paper[[row[paper.id] for paper in one.papers]]) for one in job.reviewers]
    )
