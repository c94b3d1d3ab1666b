"""An inverted index in four arrays: which documents hold a word, and how often.

Scoring a query then touches only the postings of its words: hundreds of times less work than
visiting every document for every word, with the same sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: A word in more than one document of this many gets a plain row, as long as all rows fit.
DENSE_FRACTION = 8
DENSE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Postings:
    """Documents by word. Word w's documents are ``documents[starts[w]:starts[w + 1]]``."""

    vocabulary: dict[str, int]
    starts: Ints  # words + 1
    documents: Ints  # one entry per (word, document) pair, ascending within a word
    counts: Ints  # occurrences of the word in that document
    lengths: Ints  # tokens per document

    @property
    def document_frequency(self) -> Ints:
        """Number of documents that hold each word."""
        return np.diff(self.starts)


def index(texts: Iterable[Sequence[str]]) -> Postings:
    """Build the postings of tokenised documents; words are numbered by first appearance."""
    vocabulary: dict[str, int] = {}
    lengths: list[int] = []
    flat: list[int] = []
    for tokens in texts:
        lengths.append(len(tokens))
        flat.extend([vocabulary.setdefault(token, len(vocabulary)) for token in tokens])
    size = np.array(lengths, dtype=np.int64)
    of_document = np.repeat(np.arange(len(size), dtype=np.int64), size)
    # One integer per (word, document), so that one sort groups and counts at once.
    width = max(len(size), 1)
    pairs, counts = np.unique(
        np.array(flat, dtype=np.int64) * width + of_document, return_counts=True
    )
    in_word = np.bincount(pairs // width, minlength=len(vocabulary))
    return Postings(
        vocabulary=vocabulary,
        starts=np.concatenate(([0], np.cumsum(in_word))).astype(np.int64),
        documents=pairs % width,
        counts=counts.astype(np.int64),
        lengths=size,
    )


class Scorer:
    """Sums a query's weights per document. ``weights`` runs parallel to ``postings.documents``.

    Words that stand in many documents (there are few) also get a plain row of weights over all
    documents: adding a whole row is several times faster than adding to scattered places.
    """

    def __init__(self, postings: Postings, weights: Floats) -> None:
        self._postings, self._weights = postings, weights
        self._starts = postings.starts.tolist()
        self._size = len(postings.lengths)
        self._all_positive = bool((weights > 0).all())
        self._rows = {word: self._row(word) for word in self._frequent()}

    def score(self, query: Sequence[str]) -> tuple[Floats, Flags]:
        """Return (score, holds any word of the query) per document.

        A word that the query repeats counts each time, in the query's order: the additions are
        those of a loop over the words, so that equal documents get bit-equal sums.
        """
        vocabulary = self._postings.vocabulary
        words = [w for token in query if (w := vocabulary.get(token)) is not None]
        scores = np.zeros(self._size)
        for word in words:
            row = self._rows.get(word)
            if row is not None:
                scores += row
            else:
                span = self._span(word)
                scores[self._postings.documents[span]] += self._weights[span]
        return scores, scores > 0 if self._all_positive else self._holding(words)

    def _holding(self, words: Sequence[int]) -> Flags:
        """Weights below zero may cancel, so a sum of zero tells nothing: look."""
        matched = np.zeros(self._size, dtype=np.bool_)
        for word in words:
            matched[self._postings.documents[self._span(word)]] = True
        return matched

    def _span(self, word: int) -> slice:
        return slice(self._starts[word], self._starts[word + 1])

    def _frequent(self) -> list[int]:
        frequency = self._postings.document_frequency
        most = int(DENSE_BYTES // (8 * max(self._size, 1)))
        order = np.argsort(-frequency, kind="stable")[:most]
        return [int(w) for w in order if frequency[w] * DENSE_FRACTION > self._size]

    def _row(self, word: int) -> Floats:
        row = np.zeros(self._size)
        row[self._postings.documents[self._span(word)]] = self._weights[self._span(word)]
        return row
