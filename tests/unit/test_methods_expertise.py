"""The expertise methods: equal to their references, and to the published scores on the data."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from expertise import baseline, bm25, porter, tfidf, tpms
from expertise.inputs import Job, Paper, Reviewer, load_job
from expertise.pooling import pooled
from expertise.rows import Floats, write_rows
from rank_bm25 import BM25Okapi
from sealbench_sdk import InputError, Task
from sklearn.feature_extraction.text import TfidfVectorizer

from runner.datasets.reviewers import ExpertiseDataset
from runner.protocol.bind import bind_dataset, locate, names_places
from runner.protocol.load import Protocol, load_protocol
from runner.purge import purge
from runner.tasks import expertise
from runner.tasks.api import TaskOptions

BENCHMARKS = Path(__file__).resolve().parents[2] / "manifests" / "benchmarks"
SUBMISSIONS = (
    Paper("s1", "Parsing trees", "We parse trees of naïve grammars with chart parsers."),
    Paper("s2", "Auctions", "Markets clear by auctions; bidders bid."),
    Paper("s3", "Trees of auctions", "We parse nothing."),
)
REVIEWERS = (
    Reviewer(
        "r1", (Paper("p1", "Grammars", "Parsing grammars."), Paper("p2", "Trees", "Tall trees."))
    ),
    Reviewer("r2", (Paper("p3", "Bids", "Bidding in markets and auctions."),)),
    Reviewer("r3", (Paper("p2", "Trees", "Tall trees."), SUBMISSIONS[1])),
)


def job(regime: str = "ta", counts: dict[str, dict[str, int]] | None = None, **config: Any) -> Job:
    task = Task(
        task="expertise",
        dataset="tiny",
        seed=3,
        top_k=7,
        config=config,
        options={},
        queries=0,
        documents=0,
        threads=1,
    )
    return Job(
        task=task,
        regime=regime,
        reviewers=REVIEWERS,
        submissions=SUBMISSIONS,
        counts=counts or {},
    )


# --- words ---------------------------------------------------------------------------------------

#: Made with NLTK 3.9.2; all 115,850 words of the published texts and as many made-up ones agree.
STEMS = """caresses:caress ponies:poni ties:tie cats:cat flies:fli died:die dies:die feed:feed
agreed:agre plastered:plaster bled:bled motoring:motor sing:sing conflated:conflat troubled:troubl
sized:size hopping:hop tanned:tan falling:fall hissing:hiss fizzed:fizz failing:fail filing:file
happy:happi sky:sky enjoy:enjoy relational:relat conditional:condit rational:ration valenci:valenc
hesitanci:hesit digitizer:digit conformabli:conform radicalli:radic differentli:differ vileli:vile
analogousli:analog vietnamization:vietnam predication:predic operator:oper feudalism:feudal
decisiveness:decis hopefulness:hope callousness:callous formaliti:formal sensitiviti:sensit
sensibiliti:sensibl triplicate:triplic formative:form formalize:formal electriciti:electr
electrical:electr hopeful:hope goodness:good revival:reviv allowance:allow inference:infer
airliner:airlin gyroscopic:gyroscop adjustable:adjust defensible:defens irritant:irrit
replacement:replac adjustment:adjust dependent:depend adoption:adopt homologou:homolog
communism:commun activate:activ angulariti:angular homologous:homolog effective:effect
bowdlerize:bowdler probate:probat rate:rate cease:ceas controll:control roll:roll skies:sky
dying:die news:news innings:inning succeed:succeed owed:owe spied:spi tried:tri analogy:analog
geology:geolog hopefulli:hope oxen:oxen yes:ye by:by as:as ion:ion option:option equally:equal
owing:owe"""


@pytest.mark.parametrize("pair", STEMS.split())
def test_stems_are_nltks(pair: str) -> None:
    word, _, stem = pair.partition(":")
    assert porter.stem(word) == stem


def test_tokens_of_tpms() -> None:
    assert tpms.tokens("The Naïve Straße: BERT-based, 2nd æon; a x results") == [
        "naiv", "strass", "bert", "base", "nd", "aeon",
    ]  # fmt: skip
    assert len(tpms.stop_words()) == 411
    assert "fifty" not in tpms.stop_words()
    assert {"computer", "the", "results"} <= tpms.stop_words()


# --- scores --------------------------------------------------------------------------------------


def plain_tpms(people: list[dict[str, int]], papers: list[dict[str, int]]) -> Floats:
    """By the definition, word after word."""
    documents = [*people, *papers]
    idf = {
        word: math.log(len(documents) / sum(word in one for one in documents))
        for one in documents
        for word in one
    }

    def weights(one: dict[str, int]) -> dict[str, float]:
        most = max(one.values())
        return {word: (0.5 + 0.5 * n / most) * idf[word] for word, n in one.items()}

    def cosine(one: dict[str, float], other: dict[str, float]) -> float:
        norms = [math.sqrt(sum(value**2 for value in vector.values())) for vector in (one, other)]
        return sum(value * other.get(word, 0.0) for word, value in one.items()) / math.prod(norms)

    return np.array([[cosine(weights(r), weights(p)) for p in papers] for r in people])


def counted(*papers: Paper, more: dict[str, dict[str, int]] | None = None) -> dict[str, int]:
    found: dict[str, int] = {}
    for paper in papers:
        for word in tpms.tokens(paper.text("ta")):
            found[word] = found.get(word, 0) + 1
        for word, count in (more or {}).get(paper.id, {}).items():
            found[porter.stem(word)] = found.get(porter.stem(word), 0) + count
    return found


def test_tpms_is_its_definition() -> None:
    expected = plain_tpms(
        [counted(*one.papers) for one in REVIEWERS], [counted(paper) for paper in SUBMISSIONS]
    )
    assert np.allclose(tpms.score(job()), expected, rtol=0, atol=1e-14)


def test_tpms_adds_the_counts_of_full_texts() -> None:
    names = [paper.id for one in REVIEWERS for paper in one.papers]
    names += [paper.id for paper in SUBMISSIONS]
    more = {name: {"parsing": 3, "markets": 1, name: 2} for name in names}
    expected = plain_tpms(
        [counted(*one.papers, more=more) for one in REVIEWERS],
        [counted(paper, more=more) for paper in SUBMISSIONS],
    )
    assert np.allclose(tpms.score(job("f", more)), expected, rtol=0, atol=1e-14)


def test_stems_are_kept_for_the_next_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(porter, "STEMS", {})
    monkeypatch.setattr(tpms, "STEMS", porter.STEMS)
    monkeypatch.setattr(tpms, "CACHE", tmp_path)
    cold = tpms.score(job())
    kept = json.loads((tmp_path / "stems.json").read_text())
    assert kept["grammars"] == "grammar"
    porter.STEMS.clear()
    assert (tpms.score(job()) == cold).all()
    assert kept == porter.STEMS
    (tmp_path / "stems.json").write_text("[1")
    assert (tpms.score(job()) == cold).all()


def test_tfidf_is_scikit_learns() -> None:
    asked = job()
    own, submitted = asked.profile_papers, asked.submissions
    texts = {paper.text("ta") for paper in (*own, *submitted)}
    model = TfidfVectorizer().fit(sorted(texts))
    left, right = (model.transform([p.text("ta") for p in papers]) for papers in (own, submitted))
    assert np.allclose(tfidf.by_paper(asked), (left @ right.T).toarray(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("query", ["profile", "submission"])
def test_bm25_is_rank_bm25s(query: str) -> None:
    asked = job(query=query)
    documents, queries = asked.submissions, asked.profile_papers
    if query == "submission":
        documents, queries = queries, documents
    tokens = [_words(paper) for paper in documents]
    expected = np.array([BM25Okapi(tokens).get_scores(_words(paper)) for paper in queries])
    found = bm25.by_paper(asked)
    assert np.allclose(found if query == "profile" else found.T, expected, rtol=0, atol=1e-9)


def _words(paper: Paper) -> list[str]:
    import re

    return re.findall(r"\w+", paper.text("ta").lower())


def test_poolings() -> None:
    by_paper = np.array([[1.0, 0.0, 0.0], [2.0, 1.0, 0.0], [4.0, 3.0, 2.0], [8.0, 0.0, 0.0]])
    assert [p.id for p in job().profile_papers] == ["p1", "p2", "p3", "s2"]
    rows = {
        "max": [[2.0, 1.0, 0.0], [4.0, 3.0, 2.0], [8.0, 1.0, 0.0]],
        "mean": [[1.5, 0.5, 0.0], [4.0, 3.0, 2.0], [5.0, 0.5, 0.0]],
        "p75": [[1.75, 0.75, 0.0], [4.0, 3.0, 2.0], [6.5, 0.75, 0.0]],
        "top3": [[1.5, 0.5, 0.0], [4.0, 3.0, 2.0], [5.0, 0.5, 0.0]],
    }
    for name, expected in rows.items():
        assert pooled(job(pooling=name), by_paper).tolist() == expected
    with pytest.raises(InputError, match="no pooling 'median'"):
        pooled(job(pooling="median"), by_paper)


def test_top3_takes_the_three_best() -> None:
    one = Reviewer("r", tuple(Paper(f"p{n}", "t", "a") for n in range(5)))
    from dataclasses import replace

    asked = replace(job(pooling="top3"), reviewers=(one,))
    assert pooled(asked, np.array([[5.0], [1.0], [4.0], [0.0], [3.0]])).tolist() == [[4.0]]


def test_floors() -> None:
    assert (baseline.constant(job()) == 1.0).all()
    one, two = baseline.random(job()), baseline.random(job())
    assert (one == two).all()
    assert len(set(one.ravel().tolist())) == 9
    assert ((one >= 0) & (one < 1)).all()


# --- inputs and rows -----------------------------------------------------------------------------


def folder_of(path: Path, **config: Any) -> Path:
    def shown(paper: Paper) -> dict[str, str]:
        return {"_id": paper.id, "title": paper.title, "abstract": paper.abstract}

    lines = [{"_id": one.id, "papers": list(map(shown, one.papers))} for one in REVIEWERS]
    submissions = list(map(shown, SUBMISSIONS))
    for name, rows in (("reviewers", lines), ("submissions", submissions)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {
        "task": "expertise", "dataset": "tiny", "seed": 0, "top_k": 7, "config": config,
        "options": {"regimes": ["t", "ta"]}, "threads": 1,
    }  # fmt: skip
    (path / "task.json").write_text(json.dumps(task))
    return path


def test_inputs(tmp_path: Path) -> None:
    loaded = load_job(folder_of(tmp_path, regime="t", profile_length=1))
    assert loaded.regime == "t"
    assert [len(one.papers) for one in loaded.reviewers] == [1, 1, 1]
    assert loaded.submissions == SUBMISSIONS
    assert SUBMISSIONS[0].text("t") == "Parsing trees"
    assert load_job(folder_of(tmp_path)).reviewers == REVIEWERS


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"regime": "f"}, "regime 'f' is not offered here: one of t, ta"),
        ({"profile_length": -1}, "profile_length"),
        ({"profile_length": "3"}, "profile_length"),
    ],
)
def test_settings_that_the_data_cannot_serve(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load_job(folder_of(tmp_path, **config))


def test_inputs_that_are_no_inputs(tmp_path: Path) -> None:
    folder_of(tmp_path)
    for text, message in (
        ("{", "not JSON"),
        ("[1]\n", "no _id"),
        ('{"_id": "r", "papers": []}\n', "without papers"),
    ):
        (tmp_path / "reviewers.jsonl").write_text(text)
        with pytest.raises(InputError, match=message):
            load_job(tmp_path)


def test_rows_are_whole_and_finite(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(job(), np.arange(9.0).reshape(3, 3), path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[1] == {
        "reviewer_id": "r2",
        "scores": {"s1": 3.0, "s2": 4.0, "s3": 5.0},
        "error": None,
    }
    with pytest.raises(ValueError, match="not finite"):
        write_rows(job(), np.full((3, 3), np.nan), path)
    with pytest.raises(ValueError, match="shape"):
        write_rows(job(), np.zeros((3, 2)), path)


# --- the published data --------------------------------------------------------------------------


def published(
    root: Path, folder: Path, name: str, index: int
) -> tuple[Protocol, ExpertiseDataset, Job]:
    """Return what a method is asked about one version of a benchmark."""
    protocol = load_protocol(BENCHMARKS / f"{name}.protocol.json")
    entry = protocol.datasets[index]
    place, data_root = locate(entry.name, root, below_root=names_places(entry.document))
    dataset = bind_dataset(entry, place, data_root, None)
    assert isinstance(dataset, ExpertiseDataset)
    ids = expertise.expected_ids(protocol, dataset, ["all"])
    regime = "f" if dataset.word_counts else "ta"
    options = TaskOptions(seed=0, top_k=7, config={"regime": regime})
    expertise.write_blind_inputs(dataset, ids, options, folder)
    asked = load_job(folder)
    purge(folder)
    return protocol, dataset, asked


def test_tpms_reaches_every_released_score(reviewer_root: Path, tmp_path: Path) -> None:
    _, dataset, asked = published(reviewer_root, tmp_path / "in", "reviewer-gold-v1", 3)
    scores = tpms.score(asked)
    row = {one.id: number for number, one in enumerate(asked.reviewers)}
    column = {paper.id: number for number, paper in enumerate(asked.submissions)}
    path = reviewer_root / "reviewer-gold" / "predictions" / "tpms_d_20_ta.csv"
    with path.open(newline="") as stream:
        released = list(csv.DictReader(stream))
    found = [
        scores[
            row[dataset.real_reviewers[one["reviewer"]]],
            column[dataset.real_submissions[one["paper"]]],
        ]
        for one in released
    ]
    expected = [float(one["d_20_4"]) for one in released]
    assert len(found) == 477
    assert np.abs(np.array(found) - expected).max() < 1e-12


def test_tpms_with_full_texts_reaches_its_loss(reviewer_root: Path, tmp_path: Path) -> None:
    from runner.metrics.kendall import RatedPapers
    from runner.metrics.top_papers import Judge

    _, dataset, asked = published(reviewer_root, tmp_path / "in", "reviewer-gold-fulltext-v1", 0)
    assert (len(asked.reviewers), len(asked.submissions)) == (57, 457)
    scores = tpms.score(asked)
    row = {one.id: number for number, one in enumerate(asked.reviewers)}
    column = {paper.id: number for number, paper in enumerate(asked.submissions)}
    people = sorted(dataset.ratings)
    judge = Judge.of(RatedPapers.of([dataset.ratings[who] for who in people]), ["wkt_loss"])
    assert (int(judge.pairs.easy.sum()), int(judge.pairs.hard.sum())) == (249, 401)
    rated = [scores[row[who], column[paper]] for who in people for paper in dataset.ratings[who]]
    # The mean over the five versions is .236420.
    assert judge.ratios(np.array(rated))["wkt_loss"].value() == pytest.approx(0.2364, abs=0.003)
