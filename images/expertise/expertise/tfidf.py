"""TF-IDF cosines between profile papers and submissions, pooled to reviewers.

Weights are those of scikit-learn's ``TfidfVectorizer`` with its defaults, fitted on every distinct
text once: idf = ln((1 + n) / (1 + df)) + 1, rows of length 1.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix, vstack

from expertise.counting import document_frequency, paper_counts, terms, unit_rows, widen
from expertise.inputs import Job
from expertise.pooling import pooled
from expertise.rows import Floats, run


def score(job: Job) -> Floats:
    """Return pooled cosines of reviewers and submissions."""
    return pooled(job, by_paper(job))


def by_paper(job: Job) -> Floats:
    """Return cosines of profile papers and submissions."""
    vocabulary: dict[str, int] = {}
    own = paper_counts(job, job.profile_papers, terms, vocabulary=vocabulary)
    submitted = paper_counts(job, job.submissions, terms, vocabulary=vocabulary)
    every: csr_matrix = vstack([widen(own, vocabulary), submitted], format="csr")
    texts = [(paper.title, paper.abstract) for paper in (*job.profile_papers, *job.submissions)]
    once = sorted({text: number for number, text in enumerate(texts)}.values())
    idf = np.log((1 + len(once)) / (1 + document_frequency(every[once]))) + 1.0
    every.data *= idf[every.indices]
    weighted = unit_rows(every)
    own, submitted = weighted[: own.shape[0]], weighted[own.shape[0] :]
    return np.asarray((own @ submitted.T).toarray(), dtype=np.float64)


if __name__ == "__main__":
    run(score)
