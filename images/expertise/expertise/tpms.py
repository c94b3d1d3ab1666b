"""The score of the Toronto Paper Matching System, as the benchmark's published scores define it.

A reviewer is one document, all profile papers joined. tf = 0.5 + 0.5 n / max n over the words that
are present, idf = ln(documents / document frequency) over reviewers and submissions, cosine. In
regime ``f`` the word counts of full texts are stemmed and added. Every score depends on the set: a
further submission changes all of them.

Source: Charlin, Zemel, "The Toronto Paper Matching System", ICML 2013 workshop; the definition in
Stelmakh et al., TMLR 2025.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from expertise.counting import count_matrix, document_frequency, unit_rows, widen
from expertise.inputs import Job, Paper
from expertise.porter import STEMS, stem
from expertise.rows import Floats, run

CACHE = Path("/cache")
_LETTERS = re.compile(r"[a-zA-Z]+")
#: Letters that losing their accents does not make plain.
_SPELLED = str.maketrans({"æ": "ae", "ø": "o", "Ø": "o", "ß": "ss", "\u00a8": "o"})
#: What TPMS leaves out beyond scikit-learn's English stop words.
_FURTHER = """accordingly aside away briefly came certain certainly computer does edit fify
following gave gets given giving gone got hardly having just kept kg knowledge largely like mainly
make mg ml nearly necessarily normally noted obtain obtained owing particularly past poorly possible
possibly potentially predominantly present previously primarily probably prompt promptly quickly
quite readily really recently refs regarding regardless relatively respectively resulted resulting
results rst said second seen shall showed shown shows significantly similar similarly slightly
somewhat soon specifically state states strongly substantially successfully sufficiently theirs
unless use used usefully usefulness using usually various widely"""
_KEPT = frozenset({"fifty"})


@lru_cache(maxsize=1)
def stop_words() -> frozenset[str]:
    """Return the words that carry no subject."""
    # The file alone: to import scikit-learn takes two seconds of every container.
    found = importlib.util.find_spec("sklearn")
    if found is None or found.submodule_search_locations is None:
        raise ImportError("scikit-learn is not installed")
    folder = Path(next(iter(found.submodule_search_locations)))
    listed = runpy.run_path(str(folder / "feature_extraction" / "_stop_words.py"))
    return (frozenset(listed["ENGLISH_STOP_WORDS"]) | {*_FURTHER.split()}) - _KEPT


def tokens(text: str) -> list[str]:
    """Return the stems of a text's words, without accents, stop words and single letters."""
    spelled = text.translate(_SPELLED)
    plain = "".join(
        c for c in unicodedata.normalize("NFD", spelled) if unicodedata.category(c) != "Mn"
    )
    ignored = stop_words()
    words = (word.lower() for word in _LETTERS.findall(plain))
    return [stem(word) for word in words if len(word) > 1 and word not in ignored]


def score(job: Job) -> Floats:
    """Return cosines of reviewers and submissions."""
    with known_stems(CACHE):
        return _score(job)


@contextmanager
def known_stems(folder: Path) -> Iterator[None]:
    """Read the stems of words that earlier units met, and keep those that this one met.

    In regime ``f`` that is half of the work. Where nothing is mounted there is nothing to read, and
    a damaged file counts as none.
    """
    path = folder / "stems.json"
    try:
        found = json.loads(path.read_bytes())
        STEMS.update({str(word): str(stemmed) for word, stemmed in found.items()})
    except (OSError, ValueError, AttributeError):
        pass
    before = len(STEMS)
    yield
    if len(STEMS) > before and os.access(folder, os.W_OK):
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(dict(sorted(STEMS.items()))), encoding="ascii")
        partial.replace(path)


def _score(job: Job) -> Floats:
    stems: dict[str, Counter[str]] = {}
    vocabulary: dict[str, int] = {}
    people = count_matrix((_document(job, one.papers, stems) for one in job.reviewers), vocabulary)
    papers = count_matrix(
        (_document(job, (paper,), stems) for paper in job.submissions), vocabulary
    )
    people = widen(people, vocabulary)
    number = people.shape[0] + papers.shape[0]
    present = document_frequency(people) + document_frequency(papers)
    idf = np.log(number / np.maximum(present, 1.0))
    product = _weighted(people, idf) @ _weighted(papers, idf).T
    return np.asarray(product.toarray(), dtype=np.float64)


def _document(job: Job, papers: Iterable[Paper], stems: dict[str, Counter[str]]) -> Counter[str]:
    """Count the stems of papers taken together; ``stems`` keeps those of each paper."""
    total: Counter[str] = Counter()
    for paper in papers:
        if paper.id not in stems:
            found = Counter(tokens(paper.text(job.regime)))
            for word, count in job.counts[paper.id].items() if job.regime == "f" else ():
                found[stem(word)] += count
            stems[paper.id] = found
        total.update(stems[paper.id])
    return total


def _weighted(counts: csr_matrix, idf: Floats) -> csr_matrix:
    weights = counts.copy()
    most = np.maximum.reduceat(np.append(counts.data, 0.0), counts.indptr[:-1])
    sizes = np.diff(counts.indptr)
    tf = 0.5 + 0.5 * counts.data / np.repeat(most, sizes)
    weights.data = tf * idf[counts.indices]
    return unit_rows(weights)


if __name__ == "__main__":
    run(score)
