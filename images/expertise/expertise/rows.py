"""Rows: one JSON line a reviewer, with a score for every submission."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sealbench_sdk import output_folder

from expertise.inputs import Job, load_job

Floats = npt.NDArray[np.float64]
#: A method: what is asked -> scores, (reviewers, submissions), higher for more expertise.
Method = Callable[[Job], Floats]


def run(method: Method) -> None:
    """Read the inputs, score, write all rows."""
    job = load_job()
    write_rows(job, method(job))


def write_rows(job: Job, scores: Floats, path: Path | None = None) -> None:
    """Write ``rows.jsonl``; ``ValueError`` for scores of another shape or not finite."""
    if scores.shape != (len(job.reviewers), len(job.submissions)):
        raise ValueError(f"scores of shape {scores.shape}")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite")
    names = [paper.id for paper in job.submissions]
    with (path or output_folder() / "rows.jsonl").open("wb", buffering=0) as stream:
        for reviewer, line in zip(job.reviewers, scores.tolist(), strict=True):
            row = {
                "reviewer_id": reviewer.id,
                "scores": dict(zip(names, line, strict=True)),
                "error": None,
            }
            data = json.dumps(row, allow_nan=False, separators=(",", ":")).encode("ascii")
            stream.write(data + b"\n")
