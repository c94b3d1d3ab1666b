"""TF-IDF cosine by scikit-learn's ``TfidfVectorizer`` with its defaults.

A document that shares no term with the query is not in the ranking.
"""

from __future__ import annotations

from sealbench_sdk import Answer, Document, Query, Ranking, Task, run
from sklearn.feature_extraction.text import TfidfVectorizer

from methods.top import no_answer, top


def prepare(task: Task, corpus: list[Document]) -> Answer:
    """Fit on the corpus; ``config``: sublinear_tf, ngram_max."""
    vectorizer = TfidfVectorizer(
        sublinear_tf=bool(task.config.get("sublinear_tf", False)),
        ngram_range=(1, int(task.config.get("ngram_max", 1))),
    )
    tokenise = vectorizer.build_analyzer()
    if not any(tokenise(document.content) for document in corpus):
        return no_answer
    # Rows are normalised, so a product is a cosine. One row a term makes a query touch only
    # the documents that hold its terms.
    by_term = vectorizer.fit_transform(document.content for document in corpus).T.tocsr()
    ids = [document.id for document in corpus]

    def answer(query: Query) -> Ranking:
        scores = (vectorizer.transform([query.text]) @ by_term).toarray()[0]
        return top(scores, scores > 0, ids, task.top_k)

    return answer


if __name__ == "__main__":
    run(prepare)
