"""The lexical methods reach their published reference figures on SciFact's 300 test queries.

The judge here is trec_eval's own code, on ranks written out so that its tie rule has no say.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

import pytest
import pytrec_eval
from methods import fts5, lucene, okapi, tfidf
from sealbench_sdk import Document, Query, Task, load_corpus, load_queries

MEASURES = ("ndcg_cut_10", "recall_1", "recall_5", "recall_10", "recip_rank", "map_cut_10")
OKAPI = (0.651893, 0.507500, 0.728444, 0.774000, 0.618615, 0.606975)
BM25S = (0.664617, 0.524833, 0.720944, 0.781611, 0.633999, 0.621216)
# Ours, measured when they were written: no published figure is known for these.
TFIDF = (0.577966, 0.430111, 0.646611, 0.713500, 0.543739, 0.528611)
FTS5 = (0.668320, 0.524833, 0.730944, 0.795611, 0.634808, 0.622018)
OKAPI_HELDOUT = {"ndcg_cut_10": 0.665236, "recall_10": 0.801833, "recip_rank": 0.624006}


class Collection:
    def __init__(self, root: Path) -> None:
        folder = root / "scifact"
        self.corpus: list[Document] = load_corpus(folder)
        self.judged: dict[str, dict[str, int]] = {}
        for line in (folder / "qrels/test.tsv").read_text().splitlines()[1:]:
            query, document, relevance = line.split("\t")
            self.judged.setdefault(query, {})[document] = int(relevance)
        self.queries: list[Query] = [q for q in load_queries(folder) if q.id in self.judged]

    def heldout(self) -> list[str]:
        order = sorted(self.judged, key=lambda q: (hashlib.sha256(q.encode()).hexdigest(), q))
        return order[100:]

    def figures(self, method: ModuleType) -> dict[str, dict[str, float]]:
        task = Task(
            task="retrieval",
            dataset="scifact",
            seed=0,
            top_k=10,
            config={},
            options={},
            queries=len(self.queries),
            documents=len(self.corpus),
            threads=1,
        )
        answer = method.prepare(task, self.corpus)
        ranked = {
            query.id: {ident: float(-place) for place, (ident, _) in enumerate(answer(query))}
            for query in self.queries
        }
        measures = {"ndcg_cut.10", "recall.1,5,10", "recip_rank", "map_cut.10"}
        judge = pytrec_eval.RelevanceEvaluator(self.judged, measures)
        figures: dict[str, dict[str, float]] = judge.evaluate(ranked)
        return figures


@pytest.fixture
def collection(scifact_root: Path) -> Collection:
    return Collection(scifact_root)


@pytest.mark.parametrize(
    ("method", "expected"),
    [(okapi, OKAPI), (lucene, BM25S), (tfidf, TFIDF), (fts5, FTS5)],
    ids=["bm25-okapi", "bm25s", "tfidf", "fts5"],
)
def test_reference_figures(
    collection: Collection, method: ModuleType, expected: tuple[float, ...]
) -> None:
    figures = collection.figures(method)
    assert len(figures) == 300
    for measure, value in zip(MEASURES, expected, strict=True):
        mean = sum(of_query[measure] for of_query in figures.values()) / 300
        assert mean == pytest.approx(value, abs=5e-7), measure


def test_okapi_on_the_heldout_queries(collection: Collection) -> None:
    figures = collection.figures(okapi)
    heldout = collection.heldout()
    assert heldout[:5] == ["1363", "880", "411", "904", "502"]
    for measure, value in OKAPI_HELDOUT.items():
        mean = sum(figures[query][measure] for query in heldout) / 200
        assert mean == pytest.approx(value, abs=5e-7), measure
