"""Reviewer assignment by two models: SPECTER's scores and the multi-facet recommender's, weighted.

Neither is brought to another scale before: cosines and squared cosines are added as they are.

Source: the ensemble that OpenReview deploys, ``specter_weight`` 0.8.
"""

from __future__ import annotations

import numpy as np
from expertise.inputs import Job
from expertise.rows import Floats, run

from dense import mfr, papers


def score(job: Job) -> Floats:
    """Return the weighted sum of both scores; ``config``: see ``image.toml``."""
    weight = float(job.task.config.get("specter_weight", 0.8))
    if not 0.0 <= weight <= 1.0:
        raise ValueError(f"specter_weight is {weight}, and must be from 0 to 1")
    recommended = mfr.score(job)  # the faster one first: what is wrong is told soon
    return np.asarray(weight * papers.score(job) + (1.0 - weight) * recommended)


if __name__ == "__main__":
    run(score)
