"""The quickstart's own collection: small, odd on purpose, and able to tell methods apart."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.datasets.beir import Document, RetrievalDataset
from runner.protocol.bind import bind
from runner.protocol.load import load_protocol
from runner.scoring import score_parts

ROOT = Path(__file__).resolve().parents[2]
PROTOCOL = ROOT / "manifests" / "benchmarks" / "quickstart-v1.protocol.json"


def full_text(document: Document) -> str:
    """What the methods retrieve by: title and text joined by one space, stripped."""
    return f"{document.title} {document.text}".strip()


@pytest.fixture(scope="module")
def dataset() -> RetrievalDataset:
    bound = bind(load_protocol(PROTOCOL), ROOT / "manifests" / "data")["quickstart-mini"]
    assert isinstance(bound, RetrievalDataset)
    return bound


def test_it_has_the_oddities_that_break_careless_methods(dataset: RetrievalDataset) -> None:
    documents = list(dataset.iter_documents())
    texts = [full_text(document) for document in documents]
    assert all(re.fullmatch(r"0\d\d", document.id) for document in documents)
    assert any(not document.title for document in documents)
    assert any(not document.text for document in documents)
    assert any("\u0590" <= char <= "\u05ff" for text in texts for char in text)  # Hebrew
    assert any("\u0600" <= char <= "\u06ff" for text in texts for char in text)  # Arabic
    assert any(char > "\uffff" for text in texts for char in text)  # beyond the basic plane
    assert {grade for grades in dataset.qrels.values() for grade in grades.values()} == {0, 1, 2}
    assert dataset.queries_without_positives == ()


def grams(text: str) -> set[str]:
    padded = f" {text.lower()} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)}


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def overlap(parts: Callable[[str], set[str]]) -> Callable[[str, str], float]:
    def score(query: str, text: str) -> float:
        mine, theirs = parts(query), parts(text)
        return len(mine & theirs) / (len(mine | theirs) or 1)

    return score


def test_it_tells_methods_apart(dataset: RetrievalDataset, tmp_path: Path) -> None:
    documents = list(dataset.iter_documents())
    source = random.Random(0)
    methods: dict[str, Callable[[str, str], float]] = {
        "random": lambda _, __: source.random(),
        "words": overlap(words),
        "trigrams": overlap(grams),
    }
    found: dict[str, float] = {}
    for name, score in methods.items():
        path = tmp_path / f"{name}.jsonl"
        with path.open("w") as rows:
            for query, text in dataset.queries.items():
                pairs = sorted((-score(text, full_text(d)), d.id) for d in documents)[:10]
                ranking = [[document, -value] for value, document in pairs]
                row = {"query_id": query, "ranking": ranking, "latency_ms": None, "error": None}
                rows.write(json.dumps(row) + "\n")
        (split,) = score_parts([path], dataset, load_protocol(PROTOCOL), ["all"]).splits
        value = split.scores["ndcg_at_10"]
        assert value is not None
        found[name] = value
    assert found["random"] < 0.3 < min(found["words"], found["trigrams"])
    assert max(found.values()) < 0.95
    assert abs(found["words"] - found["trigrams"]) > 0.01


def test_checking_a_protocol_loads_nothing_heavy() -> None:
    """`check` and `plan` have 0.2 s; numpy alone takes that."""
    code = (
        "import sys; from pathlib import Path\n"
        "from runner.protocol.load import load_protocol; from runner.tasks import task_module\n"
        f"p = load_protocol(Path({str(PROTOCOL)!r}))\n"
        "task_module(p.category).check_metrics(p.metrics, p.top_k)\n"
        "print(sorted({'numpy', 'jsonschema', 'docker', 'cryptography'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n"
