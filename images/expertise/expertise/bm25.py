"""Okapi BM25 between profile papers and submissions, pooled to reviewers.

``query: profile`` lets each paper of a profile search the submissions, so that the scores which are
compared, those of one reviewer, come from the same queries; ``query: submission`` is the other way
round. Scores are rank_bm25's, by one sparse product instead of a loop over words and documents: the
weight of a word that stands in more than half of the documents would be negative and is lifted to
``epsilon`` times the mean weight.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from sealbench_sdk import InputError

from expertise.counting import document_frequency, paper_counts, widen, words
from expertise.inputs import Job
from expertise.pooling import pooled
from expertise.rows import Floats, run


def score(job: Job) -> Floats:
    """Return pooled BM25 scores of reviewers and submissions."""
    return pooled(job, by_paper(job))


def by_paper(job: Job) -> Floats:
    """Return BM25 scores of profile papers and submissions."""
    query = str(job.task.config.get("query", "profile"))
    if query not in ("profile", "submission"):
        raise InputError(f"no query {query!r}: profile or submission")
    documents, queries = job.submissions, job.profile_papers
    if query == "submission":
        documents, queries = queries, documents
    vocabulary: dict[str, int] = {}
    weights = _weights(paper_counts(job, documents, words, vocabulary=vocabulary), job)
    known = weights.shape[1]
    asked = widen(paper_counts(job, queries, words, vocabulary=vocabulary), vocabulary)
    found = np.asarray((weights @ asked[:, :known].T).toarray(), dtype=np.float64)
    return found if query == "submission" else found.T


def _weights(counts: csr_matrix, job: Job) -> csr_matrix:
    """Return what each word of a document adds to the score of a query that has it once."""
    k1, b = float(job.task.config.get("k1", 1.5)), float(job.task.config.get("b", 0.75))
    epsilon = float(job.task.config.get("epsilon", 0.25))
    present = document_frequency(counts)
    idf = np.log(counts.shape[0] - present + 0.5) - np.log(present + 0.5)
    idf[idf < 0] = epsilon * idf.mean()
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    saturated = counts.data * (k1 + 1) / (counts.data + np.repeat(norm, np.diff(counts.indptr)))
    weights = counts.copy()
    weights.data = idf[counts.indices] * saturated
    return weights


if __name__ == "__main__":
    run(score)
