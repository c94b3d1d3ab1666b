"""Reviewer assignment by embeddings: cosines of papers and submissions, pooled to reviewers.

A paper is its title, a separator and its abstract (``regime: t``: the title alone). The separator
is a space for sentence encoders, and ``[SEP]`` for models such as SPECTER, whose tokenizers read
that as the token of that name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from expertise.inputs import Job, Paper
from expertise.pooling import pooled
from expertise.rows import Floats, run

from dense.embed import Embedder, EmbeddingConfig
from dense.texts import Role
from dense.vectors import Vectors


def score(job: Job) -> Floats:
    """Return pooled cosines of reviewers and submissions; ``config``: see ``image.toml``."""
    config = job.task.config
    if job.regime == "f":
        raise ValueError("word counts are no text to embed: use the regime t or ta")
    separator = str(config.get("separator", " "))
    role = Role(max_characters=int(config.get("max_characters", 0)))
    with Embedder(EmbeddingConfig.of(config), threads=job.task.threads) as embedder:

        def vectors(papers: Sequence[Paper]) -> Vectors:
            texts = [role.text(_text(paper, job.regime, separator)) for paper in papers]
            return embedder.embed(texts, [paper.id for paper in papers])

        own, submitted = vectors(job.profile_papers), vectors(job.submissions)
        print(embedder.summary(), file=sys.stderr, flush=True)
    return pooled(job, cosines(own, submitted))


def cosines(left: Vectors, right: Vectors) -> Floats:
    """Return the cosine of each row of ``left`` with each of ``right``, in float64, -1 to 1."""
    first, second = (_unit(vectors) for vectors in (left, right))
    return np.clip(first @ second.T, -1.0, 1.0)


def _unit(vectors: Vectors) -> Floats:
    wide = vectors.astype(np.float64)
    return np.asarray(wide / np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None])


def _text(paper: Paper, regime: str, separator: str) -> str:
    return paper.title if regime == "t" else f"{paper.title}{separator}{paper.abstract}"


if __name__ == "__main__":
    run(score)
