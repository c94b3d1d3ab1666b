"""An encoder of scientific text that is trained in the container, on abstracts alone.

Subword embeddings of 1,024 dimensions are averaged; two random disjoint segments of an abstract
are a positive pair, the other abstracts of the batch are negatives, of which the hardest by cosine
counts; the loss is max(0, margin - cos(positive) + cos(hardest negative)), both ways. A reviewer's
score is the mean of the three best cosines of the profile; a paper that is missing counts 0.

The abstracts are those of the profiles unless a corpus is mounted (``corpus``: the name of a model
folder with ``abstracts.jsonl``, one ``{"abstract": text}`` a line). Their digest is in the log.

Source: the method called ACL in Stelmakh et al., TMLR 2025, after Wieting et al., "Simple and
Effective Paraphrastic Similarity from Parallel Translations", ACL 2019. The paper trained on 45,309
abstracts of the ACL Anthology; the default here is far less.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from expertise.inputs import Job
from expertise.rows import Floats, run

from dense.snapshot import MOUNTED, ModelError

TOP = 3
MIN_WORDS = 8  # a shorter text has no two segments worth comparing


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How the encoder is trained; the defaults are the paper's."""

    seed: int = 0
    dimension: int = 1024
    vocabulary: int = 20_000
    margin: float = 0.4
    batch_size: int = 64
    epochs: int = 20
    learning_rate: float = 0.001

    @classmethod
    def of(cls, config: Mapping[str, Any], seed: int) -> Training:
        """Take the settings out of a task's config."""
        names = ("dimension", "vocabulary", "margin", "batch_size", "epochs", "learning_rate")
        return cls(seed=seed, **{name: config[name] for name in names if name in config})


def segments(text: str, source: random.Random) -> tuple[str, str]:
    """Return two random disjoint segments of a text, by words; each has at least one."""
    words = text.split()
    cut = source.randrange(len(words) // 4 or 1, max(3 * len(words) // 4, 1) + 1)
    cut = min(max(cut, 1), len(words) - 1)
    first, second = words[:cut], words[cut:]

    def part(side: Sequence[str]) -> str:
        size = source.randrange((len(side) + 1) // 2, len(side) + 1)
        start = source.randrange(len(side) - size + 1)
        return " ".join(side[start : start + size])

    return part(first), part(second)


class Encoder:
    """Averages subword embeddings; ``train`` makes one."""

    def __init__(self, tokenizer: Any, table: Any) -> None:
        self._tokenizer, self._table = tokenizer, table

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Return one vector of length 1 a text; zeros for a text without a known subword."""
        import torch

        with torch.inference_mode():
            means = self._means(texts)
            found = torch.nn.functional.normalize(means, dim=1)
        return np.asarray(found.numpy(), dtype=np.float64)

    def _means(self, texts: Sequence[str]) -> Any:
        import torch

        ids = [encoded.ids for encoded in self._tokenizer.encode_batch(list(texts))]
        offsets = np.cumsum([0, *map(len, ids[:-1])])
        flat = torch.tensor([one for part in ids for one in part], dtype=torch.long)
        return torch.nn.functional.embedding_bag(
            flat, self._table, torch.tensor(offsets, dtype=torch.long), mode="mean", sparse=True
        )


def train(abstracts: Sequence[str], training: Training) -> Encoder:
    """Train subwords and embeddings on abstracts; ``ModelError`` for too few of them.

    The same abstracts in the same order and the same seed give the same encoder on one machine.
    """
    import torch

    usable = [text for text in abstracts if len(text.split()) >= MIN_WORDS]
    if len(usable) < 2:
        raise ModelError("two abstracts of at least eight words are needed to train on")
    torch.manual_seed(training.seed)
    torch.use_deterministic_algorithms(mode=True)
    tokenizer = _subwords(usable, training.vocabulary)
    table = torch.empty(tokenizer.get_vocab_size(), training.dimension)
    torch.nn.init.uniform_(table, -0.1, 0.1)
    table.requires_grad_()  # a step touches the subwords of its batch alone
    encoder = Encoder(tokenizer, table)
    optimiser = torch.optim.SparseAdam([table], lr=training.learning_rate)
    source = random.Random(training.seed)  # noqa: S311 - samples, no secrets
    loss = None
    for epoch in range(training.epochs):
        order = source.sample(range(len(usable)), len(usable))
        for start in range(0, len(order), training.batch_size):
            chosen = order[start : start + training.batch_size]
            if len(chosen) < 2:  # a negative is needed
                continue
            pairs = [segments(usable[place], source) for place in chosen]
            loss = _loss(encoder, pairs, training.margin)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        if loss is not None and epoch in (0, training.epochs - 1):
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}", file=sys.stderr, flush=True)
    return encoder


def _loss(encoder: Encoder, pairs: Sequence[tuple[str, str]], margin: float) -> Any:
    import torch

    left, right = (
        torch.nn.functional.normalize(encoder._means([pair[side] for pair in pairs]), dim=1)
        for side in (0, 1)
    )
    cosines = left @ right.T
    positive = cosines.diagonal()
    others = cosines.masked_fill(torch.eye(len(pairs), dtype=torch.bool), -2.0)
    hardest = (others.max(dim=1).values, others.max(dim=0).values)
    return sum(torch.clamp(margin - positive + worst, min=0).mean() for worst in hardest)


def _subwords(texts: Sequence[str], size: int) -> Any:
    """Learn byte pairs over words with SentencePiece's mark of a word's beginning."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import SentencePieceBPETokenizer

    tokenizer = SentencePieceBPETokenizer()
    tokenizer.train_from_iterator(
        (text.lower() for text in texts), vocab_size=size, min_frequency=2, show_progress=False
    )
    return tokenizer


def corpus_of(job: Job) -> list[str]:
    """Return what is trained on: a mounted corpus, else the abstracts of the profiles."""
    name = str(job.task.config.get("corpus", ""))
    if not name:
        return sorted({paper.abstract for paper in job.profile_papers})
    path = MOUNTED / name / "abstracts.jsonl"
    if not path.is_file():
        raise ModelError(f"no corpus {name!r}: mount a folder with abstracts.jsonl as a model")
    with path.open("rb") as stream:
        return [json.loads(line)["abstract"] for line in stream if line.strip()]


def score(job: Job) -> Floats:
    """Train, then return the mean of the three best cosines of every profile."""
    abstracts = corpus_of(job)
    digest = hashlib.sha256("\n".join(abstracts).encode()).hexdigest()
    print(f"corpus: {len(abstracts)} abstracts, sha256 {digest}", file=sys.stderr, flush=True)
    import torch

    torch.set_num_threads(job.task.threads)
    encoder = train(abstracts, Training.of(job.task.config, job.task.seed))
    regime = "t" if job.regime == "t" else "ta"
    own, submitted = (
        encoder.vectors([paper.text(regime).lower() for paper in papers])
        for papers in (job.profile_papers, job.submissions)
    )
    row = {paper.id: number for number, paper in enumerate(job.profile_papers)}
    cosines = own @ submitted.T
    return np.stack([top_mean(cosines[[row[p.id] for p in one.papers]]) for one in job.reviewers])


def top_mean(cosines: Floats) -> Floats:
    """Return the mean of the three best rows by column; a missing row counts 0."""
    padded = np.vstack([cosines, np.zeros((max(TOP - len(cosines), 0), cosines.shape[1]))])
    return np.asarray(np.sort(padded, axis=0)[-TOP:].mean(axis=0))


if __name__ == "__main__":
    run(score)
