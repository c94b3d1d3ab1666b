"""The in-image SDK: inputs read strictly, rows written whole, the tie rule, the end by TERM."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sealbench_sdk as sdk
from hypothesis import given
from hypothesis import strategies as st

from runner.schemas import is_valid

SDK_FOLDER = str(Path(sdk.__file__).parent)


def write_inputs(folder: Path, *, queries: int = 3, config: dict[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    task = {
        "schema": "sealbench/task/v1",
        "task": "retrieval",
        "dataset": "tiny",
        "seed": 7,
        "top_k": 2,
        "config": config or {},
        "options": {},
        "queries": queries,
        "documents": 2,
        "threads": 1,
    }
    (folder / "task.json").write_text(json.dumps(task))
    corpus = [{"_id": "d1", "title": "Ä", "text": "one"}, {"_id": "d2", "title": "", "text": "two"}]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in corpus))
    asked = [{"_id": f"q{n}", "text": f"text {n}"} for n in range(queries)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in asked))
    return folder


def test_inputs_become_dataclasses(tmp_path: Path) -> None:
    folder = write_inputs(tmp_path, config={"k1": 1.5})
    task = sdk.load_task(folder)
    assert (task.dataset, task.seed, task.top_k, task.config) == ("tiny", 7, 2, {"k1": 1.5})
    documents = sdk.load_corpus(folder)
    assert [(d.id, d.content) for d in documents] == [("d1", "Ä one"), ("d2", "two")]
    assert sdk.load_queries(folder)[0] == sdk.Query("q0", "text 0")


def test_unknown_keys_and_blank_lines_are_forgiven(tmp_path: Path) -> None:
    folder = write_inputs(tmp_path)
    (folder / "corpus.jsonl").write_text('\n{"_id": "a", "text": "t", "url": "u"}\n\n')
    assert sdk.load_corpus(folder) == [sdk.Document("a", "", "t")]
    task = json.loads((folder / "task.json").read_text()) | {"new": 1}
    (folder / "task.json").write_text(json.dumps(task))
    assert sdk.load_task(folder).seed == 7


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "corpus.jsonl:1 is not JSON"),
        ("[]", "corpus.jsonl:1 is not a JSON object"),
        ('{"text": "t"}', "corpus.jsonl:1 has no '_id'"),
        ('{"_id": "a"}', "corpus.jsonl:1 has no 'text'"),
        ('{"_id": 5, "text": "t"}', "'_id' is int, not str"),
        ('{"_id": "a", "text": null}', "'text' is NoneType, not str"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "corpus.jsonl").write_text(line)
    with pytest.raises(sdk.InputError, match=message.replace("[", r"\[")):
        sdk.load_corpus(tmp_path)


def test_a_boolean_is_no_number(tmp_path: Path) -> None:
    folder = write_inputs(tmp_path)
    task = json.loads((folder / "task.json").read_text()) | {"top_k": True}
    (folder / "task.json").write_text(json.dumps(task))
    with pytest.raises(sdk.InputError, match="'top_k' is bool"):
        sdk.load_task(folder)


@pytest.mark.parametrize(
    ("scores", "ids", "k", "expected"),
    [
        ([1, 2, 3], ["a", "b", "c"], 2, [("c", 3.0), ("b", 2.0)]),
        ([1, 1, 1], ["b", "a", "c"], 2, [("a", 1.0), ("b", 1.0)]),
        ([1, 1], ["10", "9"], 2, [("10", 1.0), ("9", 1.0)]),
        ([0.0, -0.0], ["b", "a"], 2, [("a", 0.0), ("b", 0.0)]),
        ([-1], ["a"], 10, [("a", -1.0)]),
        ([], [], 10, []),
        ([1], ["a"], 0, []),
    ],
)
def test_ranking(scores: list[float], ids: list[str], k: int, expected: sdk.Ranking) -> None:
    assert sdk.ranking(scores, ids, k) == expected


@given(
    st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), st.text(max_size=3))),
    st.integers(0, 9),
)
def test_ranking_is_the_tie_rule(pairs: list[tuple[float, str]], k: int) -> None:
    scores, ids = [p[0] for p in pairs], [p[1] for p in pairs]
    expected = sorted(((i, s) for s, i in pairs), key=lambda p: (-p[1], p[0]))[:k]
    assert sdk.ranking(scores, ids, k) == expected


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_has_no_rank(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        sdk.ranking([1.0, bad], ["a", "b"], 1)


def test_ranking_wants_a_score_for_each_id() -> None:
    with pytest.raises(ValueError, match="argument"):
        sdk.ranking([1.0], ["a", "b"], 1)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_rows_fit_the_schema_and_time_each_query(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"

    def slow(query: sdk.Query) -> sdk.Ranking:
        time.sleep(0.01)
        return [("d\ud800ü", 1)]

    with sdk.Rows(path) as rows:
        rows.answer(sdk.Query("q", ""), slow)
        assert len(rows_of(path)) == 1, "a row is in the file as soon as it is answered"
        rows.error(sdk.Query("r", ""), "TooLong")
    first, second = rows_of(path)
    assert first["latency_ms"] >= 10
    assert first["ranking"] == [["d\ud800ü", 1.0]]
    assert second == {"query_id": "r", "ranking": [], "latency_ms": None, "error": "TooLong"}
    assert is_valid("row-retrieval", second)


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (KeyError("a secret text"), "KeyError"),
        ([("d", math.nan)], "ValueError"),
        ([("d", "x")], "ValueError"),
        (None, "TypeError"),
    ],
)
def test_an_exception_is_a_row_with_its_type_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], result: Any, error: str
) -> None:
    def answer(query: sdk.Query) -> sdk.Ranking:
        if isinstance(result, Exception):
            raise result
        ranking: sdk.Ranking = result
        return ranking

    with sdk.Rows(tmp_path / "rows.jsonl") as rows:
        rows.answer(sdk.Query("q", ""), answer)
    (row,) = rows_of(tmp_path / "rows.jsonl")
    assert (row["error"], row["ranking"]) == (error, [])
    assert "secret" not in (tmp_path / "rows.jsonl").read_text()
    assert error in capsys.readouterr().err


def test_the_signal_handler_is_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with sdk.Rows(tmp_path / "rows.jsonl"):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


METHOD = """
import sys, time
from sealbench_sdk import run
def prepare(task, corpus):
    print("preparing", flush=True)
    time.sleep({prepare})
    seen = []
    def answer(query):
        seen.append(query.id)
        print("answering", query.id, len(seen), flush=True)
        time.sleep({answer})
        return [(corpus[0].id, 1.0)]
    return answer
run(prepare{options})
"""


def start(tmp_path: Path, *, prepare: float = 0, answer: float = 0, options: str = "") -> Any:
    write_inputs(tmp_path / "in")
    (tmp_path / "out").mkdir()
    source = METHOD.format(prepare=prepare, answer=answer, options=options)
    return subprocess.Popen(
        [sys.executable, "-c", source],
        env={
            "PYTHONPATH": SDK_FOLDER,
            "inputDataset": str(tmp_path / "in"),
            "outputDir": str(tmp_path / "out"),
        },
        stdout=subprocess.PIPE,
        text=True,
    )


def test_run_warms_up_once_and_writes_every_row(tmp_path: Path) -> None:
    process = start(tmp_path)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.split("\n")[1:-1] == [
        "answering q0 1",
        "answering q0 2",
        "answering q1 3",
        "answering q2 4",
    ]
    rows = rows_of(tmp_path / "out/rows.jsonl")
    assert [row["query_id"] for row in rows] == ["q0", "q1", "q2"]
    assert all(is_valid("row-retrieval", row) for row in rows)


def test_the_warm_up_can_be_turned_off(tmp_path: Path) -> None:
    process = start(tmp_path, options=", warm_up=0")
    out, _ = process.communicate(timeout=30)
    assert "answering q2 3" in out


def test_term_finishes_the_row_at_hand(tmp_path: Path) -> None:
    process = start(tmp_path, answer=0.5, options=", warm_up=0")
    while "answering" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert [row["query_id"] for row in rows_of(tmp_path / "out/rows.jsonl")] == ["q0"]


def test_term_while_preparing_ends_at_once(tmp_path: Path) -> None:
    process = start(tmp_path, prepare=60)
    assert "preparing" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert not (tmp_path / "out/rows.jsonl").exists()
