"""Any collection in BEIR's layout by a freeze manifest alone: a nasty one, run and verified."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.engine.api import Engine

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.engine

BIG = "needle " + "straw und heu " * 370_000  # 5 MB
#: Ids that are numbers to a careless reader, and would then fall together.
DOCUMENTS = {
    "7": ("", "seven horses on the moor"),
    "007": ("Seven", "seven horses, said twice: seven horses"),
    "7.0": ("", "a moor without horses"),
    "1e3": ("", "a thousand of nothing"),
    "-0": ("", ""),  # empty, as two documents of Cranfield are
    "null": ("", "   "),
    "שלום": ("שלום עולם", "שלום וברכה לסוסים"),
    "مرحبا": ("", "مرحبا بالعالم والخيول"),
    "𐌰𐌱𐌲": ("𐌲𐌱𐌰", "𐍈𐌰𐌹𐍂𐌷𐍄 🐎 horses beyond the basic plane 🐎🐎"),
    "e\u0301": ("", "cafe\u0301 with a combining accent"),
    "a,b\"c": ("", "commas, \"quotes\" and\ttabs\nand line\u2028separators"),
    "big": ("", BIG),
}  # fmt: skip
QUERIES = {
    "1": "seven horses",
    "01": "seven horses",  # the same words under an id that is the same number
    "2": "needle",
    "3": "שלום",
    "4": "مرحبا بالعالم",
    "5": "🐎",
    "6": "café",
    "7": "???",  # no word at all
    "8": "nothing that anybody judged relevant",
    "9": "horses " * 2_000,
}
#: Graded: trec_eval's gains are linear, grades below 1 are not relevant.
JUDGMENTS = {
    "1": {"007": 3, "7": 2, "7.0": 1, "1e3": 0},
    "01": {"7": 1},
    "2": {"big": 2},
    "3": {"שלום": 1},
    "4": {"مرحبا": 3},
    "5": {"𐌰𐌱𐌲": 1},
    "6": {"e\u0301": 1},
    "7": {"a,b\"c": 1},
    "8": {"-0": 0, "null": -1},
    "9": {"7": 2, "007": 3},
}  # fmt: skip
FREEZE = """\
schema: sealbench/freeze/v1
benchmark: nasty-v1
version: "1.0.0"
title: A collection of everything that goes wrong
description: Graded relevance, ids that look like numbers, empty and huge documents.
category: retrieval
metrics: [ndcg_at_10, recall_at_10, mrr_at_10, map_at_10, success_at_1, map]
primary_metric: ndcg_at_10
top_k: 10
splits: {algorithm: sha256-id-order, calibration: 3}
rules: {queries_without_positives: count_as_zero}
budget: {wall: 5m, memory: 1GiB, output: 16MiB}
datasets:
"""
DATASET = """\
  - name: %s
    task: retrieval
    format: beir
    qrels: test
    source_url: none
    source_revision: own:1.0.0
    licence: CC0-1.0
    citation: none
    redistribution: free
    selection: All judged queries; query 8 has no relevant document.
"""
LEXICAL = ("bm25-okapi", "bm25s", "tfidf", "fts5")
DENSE = ("vector_only", "hybrid")
METHODS = LEXICAL + DENSE


def write(
    folder: Path,
    documents: Mapping[str, tuple[str, str]],
    queries: Mapping[str, str],
    judgments: Mapping[str, Mapping[str, int]],
) -> None:
    """Write a collection in BEIR's layout."""
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": i, "title": title, "text": text} for i, (title, text) in documents.items()]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (folder / "corpus.jsonl").write_text("".join(lines), encoding="utf-8")
    lines = [
        json.dumps({"_id": i, "text": text}, ensure_ascii=False) + "\n"
        for i, text in queries.items()
    ]
    (folder / "queries.jsonl").write_text("".join(lines), encoding="utf-8")
    lines = [f"{q}\t{d}\t{grade}\n" for q, found in judgments.items() for d, grade in found.items()]
    head = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "test.tsv").write_text(head + "".join(lines), encoding="utf-8")


def sealbench(env: dict[str, str], *arguments: object) -> str:
    command = [sys.executable, "-m", "runner.cli", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_collection_of_everything_nasty_is_frozen_run_and_verified(
    tmp_path: Path, engine: Engine
) -> None:
    env = {**os.environ, "SEALBENCH_KEYS": str(tmp_path / "keys")}
    sealbench(env, "images", "build", "lexical", "dense")
    sealbench(env, "keys", "generate")
    data = tmp_path / "data"
    write(data / "nasty", DOCUMENTS, QUERIES, JUDGMENTS)
    # A corpus of one document.
    alone = {name: {"only": grade} for name, grade in {"a": 1, "b": 0, "c": 2, "d": 1}.items()}
    write(data / "alone", {"only": ("", "one horse")}, dict.fromkeys(alone, "horse"), alone)
    freeze = FREEZE + DATASET % "nasty" + DATASET % "alone"
    (tmp_path / "nasty.yaml").write_text(freeze, encoding="utf-8")
    sealbench(env, "freeze", tmp_path / "nasty.yaml", "--data-root", data)
    images = {"lexical": LEXICAL, "dense": DENSE}
    methods = "".join(
        f"  - {{name: {name}, image: {image}}}\n" for image in images for name in images[image]
    )
    run = (
        "schema: sealbench/run/v1\nname: nasty\nprotocol: nasty-v1.protocol.json\n"
        f"splits: [all, calibration, heldout]\nmethods:\n{methods}"
    )
    (tmp_path / "run.yaml").write_text(run, encoding="utf-8")
    out = tmp_path / "out"
    told = sealbench(
        env, "run", tmp_path / "run.yaml", "--data-root", data, "--out", out, "--json"
    ).splitlines()
    last: dict[str, Any] = json.loads(told[-1])
    assert last["verify"]["recomputed"]["holds"] is True
    rows = {
        (row["method"], row["dataset"], row["metric"]): row
        for row in last["results"]["per_dataset"]
        if row["split"] == "all"
    }
    assert {row["outcome"] for row in rows.values()} == {"ok"}
    for method in METHODS:
        found = per_query(out / "bundle" / "per-query" / method / "nasty.csv")
        assert set(found) == set(QUERIES)
        assert (found["8"]["positives"], float(found["8"]["ndcg_at_10"])) == ("0", 0.0)
        # 9 of 10 queries can score; it is the mean over all 10.
        mean = sum(float(row["ndcg_at_10"]) for row in found.values()) / len(QUERIES)
        assert rows[method, "nasty", "ndcg_at_10"]["score"] == pytest.approx(mean, abs=1e-12)
        if method in LEXICAL:
            for query in ("1", "2", "3", "4"):  # plain words, in any script and at any length
                assert float(found[query]["success_at_1"]) == 1.0, (method, query)
        else:  # a vector for every text, empty or huge: each query has ten documents of twelve
            rows_file = out / "bundle" / "rows" / method / "nasty" / "part-00000.jsonl"
            lines = map(json.loads, rows_file.read_text("utf-8").splitlines())
            rankings = {line["query_id"]: line["ranking"] for line in lines}
            assert {len(ranking) for ranking in rankings.values()} == {10}
            assert rankings["1"] == rankings["01"]  # the same text
        only = per_query(out / "bundle" / "per-query" / method / "alone.csv")
        assert {query: float(row["ndcg_at_10"]) for query, row in only.items()} == {
            "a": 1.0, "b": 0.0, "c": 1.0, "d": 1.0,
        }  # fmt: skip


def per_query(path: Path) -> dict[str, dict[str, str]]:
    import csv

    with path.open(encoding="utf-8", newline="") as stream:
        return {row["query_id"]: row for row in csv.DictReader(stream)}
