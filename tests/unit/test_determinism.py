"""Repeats of a method: are their rows the same, and how far do scores move?"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.determinism import nondeterministic_lines
from runner.ids import unit_seed
from runner.verify.scores import compare_results
from tests.sealed import Sandbox, does, sandbox, write_rows


def lottery(mounts: Mapping[str, Path]) -> None:
    """A method: documents in an order that nobody can know."""
    documents = [json.loads(line)["_id"] for line in _lines(mounts, "corpus.jsonl")]
    rows = []
    for line in _lines(mounts, "queries.jsonl"):
        chosen = random.SystemRandom().sample(documents, 10)
        ranking = [[ident, float(10 - at)] for at, ident in enumerate(chosen)]
        rows.append({"query_id": json.loads(line)["_id"], "ranking": ranking,
                     "latency_ms": random.random(), "error": None})  # fmt: skip
    write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))


def _lines(mounts: Mapping[str, Path], name: str) -> list[str]:
    return (mounts["/in"] / name).read_text(encoding="utf-8").splitlines()


def sometimes(mounts: Mapping[str, Path]) -> None:
    """A method that writes rows of nobody when its seed is not the first."""
    seed = json.loads((mounts["/in"] / "task.json").read_text())["seed"]
    if seed == 0:
        write_rows(mounts, '{"query_id": "nobody"}\n')
    else:
        lottery(mounts)


def box(folder: Path, *methods: str, repeats: int = 3) -> Sandbox:
    scripts = {"lottery": does(lottery), "sometimes": does(sometimes)}
    return sandbox(folder, *methods, extra=f"repeats: {repeats}\nseed: 0", scripts=scripts)


def stored(made: Sandbox) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((made.out / "bundle" / "results.json").read_bytes())
    return document


def test_a_random_method_is_reported_and_a_deterministic_one_is_not(tmp_path: Path) -> None:
    made = box(tmp_path, "overlap", "lottery")
    made.run()
    results = stored(made)
    entries = {entry["method"]: entry for entry in results["determinism"]}
    assert entries["overlap"]["rows_identical"] is True
    assert all(score["spread"] == 0.0 for score in entries["overlap"]["scores"])
    assert entries["lottery"]["rows_identical"] is False
    assert entries["lottery"]["distinct_rows"] == 3
    assert any(score["spread"] > 0 for score in entries["lottery"]["scores"])
    assert entries["lottery"]["seeds"] == [unit_seed(0, repeat) for repeat in range(3)]
    assert entries["lottery"]["threads"] == 1
    (line,) = nondeterministic_lines(results, "ndcg_at_10")
    assert "lottery on quickstart-mini: 3 different sets of rows in 3 repeats" in line
    assert "ndcg_at_10 on all moves by" in line


def test_the_verifier_computes_it_again(tmp_path: Path) -> None:
    made = box(tmp_path, "overlap", "lottery", repeats=2)
    made.run()
    report = made.verify()
    assert (report.faults, report.recomputed.holds) == ((), True)
    results = stored(made)
    assert list(compare_results(results, results)) == []
    forged = json.loads(json.dumps(results))
    forged["determinism"][1]["rows_identical"] = True
    (fault,) = compare_results(forged, results)
    assert fault.message.startswith("determinism[1].rows_identical")
    del forged["determinism"]
    assert len(list(compare_results(forged, results))) == 1


def test_nothing_is_said_where_there_is_one_repeat(tmp_path: Path) -> None:
    made = box(tmp_path, "overlap", repeats=1)
    made.run()
    assert "determinism" not in stored(made)
    assert list(nondeterministic_lines(stored(made), "ndcg_at_10")) == []


def test_repeats_that_failed_are_not_compared(tmp_path: Path) -> None:
    made = box(tmp_path, "sometimes", repeats=2)
    made.run()
    (entry,) = stored(made)["determinism"]
    assert (entry["repeats"], entry["measured"]) == (2, 1)
    assert (entry["rows_identical"], entry["distinct_rows"], entry["scores"]) == (None, None, [])
    assert made.verify().faults == ()
