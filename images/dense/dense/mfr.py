"""Reviewer assignment by the multi-facet recommender: a reviewer is a vector, a paper some facets.

A reviewer's vector is trained here, on the profiles alone: Adam brings the unit vectors of a
paper's reviewers nearer to the paper's nearest facet, reviewers of many papers weighing less for
each. Encoder and decoder stay as they are. The score of a submission is 1 less the squared distance
of the vector from the nearest facet, shortened at best: the square of their cosine, 0 if negative.

Source: Chang et al., "Cold-start Paper Recommendation using Multi-facet Embedding", 2021; settings
and files as in OpenReview's ensemble. Its scores are kept in half precision, these are not.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from expertise.inputs import Job, Paper
from expertise.rows import Floats, run

from dense.embed import Embedder, EmbeddingConfig
from dense.mfr_files import read_recommender
from dense.mfr_model import BREAK, FacetEncoder
from dense.snapshot import ModelError, Snapshot, find_model, snapshot_digest
from dense.vectors import Vectors, check_vectors

#: Reviewers that one row of the training holds; a paper with more of them takes several rows.
SLOTS = 10
#: Of this loss, beside that of other targets. Adam divides by the size of gradients, so it hardly
#: counts; it is here for the small number that Adam adds to that size.
LOSS_WEIGHT = 5.0
_EPSILON = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How reviewers are trained; the defaults are those of OpenReview's ensemble."""

    model: str = "mfr"
    heads: int = 10
    epochs: int = 100
    batch_size: int = 50
    learning_rate: float = 0.0002

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Settings:
        """Take ``mfr`` and ``mfr_*`` out of a task's config; ``ValueError`` for impossible ones."""
        found = cls(
            model=str(config.get("mfr", "mfr")),
            heads=int(config.get("mfr_heads", 10)),
            epochs=int(config.get("mfr_epochs", 100)),
            batch_size=int(config.get("mfr_batch_size", 50)),
            learning_rate=float(config.get("mfr_learning_rate", 0.0002)),
        )
        if min(found.heads, found.batch_size) < 1 or found.epochs < 0 or found.learning_rate <= 0:
            raise ValueError(f"these settings train nobody: {found}")
        return found


def score(job: Job) -> Floats:
    """Return the recommender's scores, 0 to 1; ``config``: see ``image.toml``."""
    if job.regime == "f":
        raise ValueError("word counts are no text to embed: use the regime t or ta")
    settings = Settings.of(job.task.config)
    snapshot, facets = _snapshot(settings)
    encoder = EmbeddingConfig(model=settings.model, batch_size=settings.batch_size)
    with Embedder(
        encoder,
        threads=job.task.threads,
        load=partial(FacetEncoder, heads=settings.heads),
        snapshot=snapshot,
    ) as embedder:

        def read(papers: Sequence[Paper]) -> Vectors:
            texts = [_text(paper, job.regime) for paper in papers]
            names = [paper.id for paper in papers]
            found = embedder.embed(texts, names).reshape(len(papers), facets, -1)
            for number in range(facets):
                check_vectors(found[:, number], names, found.shape[2], normalised=True)
            return found

        own, submitted = read(job.profile_papers), read(job.submissions)
        print(embedder.summary(), file=sys.stderr, flush=True)
    return affinities(train(own, _authorship(job), settings, job.task.seed), submitted)


def train(
    facets: Vectors, authorship: Sequence[Sequence[int]], settings: Settings, seed: int
) -> Vectors:
    """Return a vector of length 1 a reviewer.

    ``facets``: (papers, facets, size), each of length 1; ``authorship``: the reviewers of each
    paper, numbered from 0 without gaps. The same input and seed give the same bits on one machine.
    """
    import torch

    rows = [
        (paper, people[start : start + SLOTS])
        for paper, people in enumerate(authorship)
        for start in range(0, len(people), SLOTS)
    ]
    papers_of = np.bincount([who for _, people in rows for who in people])
    source = torch.Generator().manual_seed(seed)
    table = torch.randn(len(papers_of), facets.shape[2], generator=source)
    table = _unit(table).requires_grad_()
    optimiser = torch.optim.Adam([table], lr=settings.learning_rate)
    points = torch.from_numpy(np.ascontiguousarray(facets, dtype=np.float32))
    for _ in range(settings.epochs):
        order = torch.randperm(len(rows), generator=source).tolist()
        for start in range(0, len(order), settings.batch_size):
            batch = [rows[place] for place in order[start : start + settings.batch_size]]
            who = [one for _, people in batch for one in people]
            read = [paper for paper, people in batch for _ in people]
            weights = 1.0 / papers_of[who]
            loss = _loss(
                _unit(torch.nn.functional.embedding(torch.tensor(who), table)),
                points[read],
                torch.tensor(weights / weights.mean(), dtype=torch.float32),
            )
            optimiser.zero_grad()
            (loss / (len(batch) * SLOTS)).backward()
            optimiser.step()
    names = [f"reviewer {number + 1}" for number in range(len(papers_of))]
    return check_vectors(_unit(table.detach()).numpy(), names, facets.shape[2], normalised=True)


def _loss(people: Any, points: Any, weights: Any) -> Any:
    """Return the weighted sum of squared distances of people from the nearest of their facets."""
    import torch

    nearest = torch.einsum("pd,pfd->pf", people.detach(), points).argmax(dim=1)
    chosen = points[torch.arange(len(points)), nearest]
    return LOSS_WEIGHT * (weights * (chosen - people).square().sum(dim=1)).sum()


def _unit(vectors: Any) -> Any:
    return vectors / (_EPSILON + vectors.norm(dim=1, keepdim=True))


def affinities(people: Vectors, facets: Vectors) -> Floats:
    """Return the scores of people, (people, size), and papers, (papers, facets, size)."""
    wide = np.einsum("rd,pfd->rpf", people.astype(np.float64), facets.astype(np.float64))
    return np.asarray(np.clip(wide.max(axis=2), 0.0, 1.0) ** 2)


def _snapshot(settings: Settings) -> tuple[Snapshot, int]:
    """Return the recommender as the cache of embeddings wants it, and its number of facets."""
    folder = find_model(settings.model)
    form = read_recommender(folder).form
    if form.width % settings.heads:
        raise ModelError(
            f"{settings.heads} attention heads do not divide the width {form.width} of"
            f" {settings.model}"
        )
    found = Snapshot(
        folder=folder,
        digest=snapshot_digest(folder),
        dimension=form.facets * form.facet_size,
        max_tokens=form.positions,
        pooling=f"{form.facets} facets ({settings.heads} heads)",
        normalised=False,  # each facet is, and all of a paper together are not
    )
    return found, form.facets


def _authorship(job: Job) -> list[list[int]]:
    """Return the reviewers of each of ``job.profile_papers``, by their places."""
    row = {paper.id: number for number, paper in enumerate(job.profile_papers)}
    found: list[list[int]] = [[] for _ in row]
    for number, reviewer in enumerate(job.reviewers):
        for paper in reviewer.papers:
            found[row[paper.id]].append(number)
    return found


def _text(paper: Paper, regime: str) -> str:
    parts = (paper.title, "" if regime == "t" else paper.abstract)
    return BREAK.join(part.replace(BREAK, " ") for part in parts)


if __name__ == "__main__":
    run(score)
