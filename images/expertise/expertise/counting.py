"""Words of papers as sparse counts: one row a document, one column a word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from expertise.inputs import Job, Paper
from expertise.rows import Floats

_TERM = re.compile(r"\b\w\w+\b")
_WORD = re.compile(r"\w+")


def terms(text: str) -> list[str]:
    """Return words of two letters or more, lower case: scikit-learn's default tokens."""
    return _TERM.findall(text.lower())


def words(text: str) -> list[str]:
    """Return runs of word characters, lower case."""
    return _WORD.findall(text.lower())


def paper_counts(
    job: Job, papers: Iterable[Paper], tokenise: Any, *, vocabulary: dict[str, int]
) -> csr_matrix:
    """Count the words of papers: of their text, and in regime ``f`` of the full text too."""
    return count_matrix(
        (_with_full_text(Counter(tokenise(p.text(job.regime))), job, p) for p in papers),
        vocabulary,
    )


def _with_full_text(counts: Counter[str], job: Job, paper: Paper) -> Counter[str]:
    if job.regime == "f":
        counts.update(job.counts[paper.id])
    return counts


def count_matrix(documents: Iterable[Mapping[str, int]], vocabulary: dict[str, int]) -> csr_matrix:
    """Return documents x words as float64; new words get the next columns of ``vocabulary``."""
    starts, columns, values = [0], list[int](), list[int]()
    for counts in documents:
        columns += [vocabulary.setdefault(word, len(vocabulary)) for word in counts]
        values += counts.values()
        starts.append(len(columns))
    shape = (len(starts) - 1, len(vocabulary))
    return csr_matrix((np.array(values, dtype=np.float64), columns, starts), shape=shape)


def widen(matrix: csr_matrix, vocabulary: Mapping[str, int]) -> csr_matrix:
    """Give a matrix the columns of words that came later."""
    matrix.resize((matrix.shape[0], len(vocabulary)))
    return matrix


def document_frequency(matrix: csr_matrix) -> Floats:
    """Return in how many rows each column is present."""
    return np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.float64)


def unit_rows(matrix: csr_matrix) -> csr_matrix:
    """Return rows of length 1; a row of zeros stays."""
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    norms[norms == 0] = 1.0
    scaled = matrix.copy()
    scaled.data /= np.repeat(norms, np.diff(matrix.indptr))
    return scaled
