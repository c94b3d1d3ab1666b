"""Floors: a constant, and numbers that follow from the seed and the ids alone."""

from __future__ import annotations

import hashlib
import sys

import numpy as np

from expertise.inputs import Job
from expertise.rows import Floats, run


def constant(job: Job) -> Floats:
    """Return 1 for every pair."""
    return np.ones((len(job.reviewers), len(job.submissions)))


def random(job: Job) -> Floats:
    """Return numbers from 0 to 1 that follow from seed, dataset, reviewer and paper."""
    lead = f"{job.task.seed}:{job.task.dataset}"
    return np.array(
        [[_number(f"{lead}:{one.id}:{p.id}") for p in job.submissions] for one in job.reviewers]
    )


def _number(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:4], "big") / 2**32


if __name__ == "__main__":
    run({"constant": constant, "random": random}[sys.argv[1]])
