"""Rows with an error and null scores of units that ended as ok: said on the screen and the page."""

from __future__ import annotations

import html
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.commands.running import summary_text
from runner.model import Outcome
from runner.progress import make_reporter
from runner.report.benchmark import benchmark_page
from runner.rows.faults import NO_RESULT
from tests.sealed import ROOT, does, sandbox, sealed_again, write_rows

HOMEWORK = ROOT / "manifests" / "benchmarks" / "homework-v1.protocol.json"
WHY = "ValueError: no \u202etokens"
SHOWN = "ValueError: no \\u202etokens"


def _asked(mounts: Mapping[str, Path], name: str, key: str) -> list[str]:
    lines = (mounts["/in"] / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)[key] for line in lines]


def at_a_loss(mounts: Mapping[str, Path]) -> None:
    """A method of similarity that has an error for every pair, or every query."""
    if (mounts["/in"] / "pairs.jsonl").exists():
        rows: list[dict[str, Any]] = [
            {"pair_id": pair, "score": None, "error": WHY}
            for pair in _asked(mounts, "pairs.jsonl", "pair_id")
        ]
    else:
        rows = [_failed(query) for query in _asked(mounts, "queries.jsonl", "_id")]
    write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))


def sometimes(mounts: Mapping[str, Path]) -> None:
    """A method of retrieval that fails on the last three queries and finds nothing else."""
    (first, *_), queries = (_asked(mounts, f"{n}.jsonl", "_id") for n in ("corpus", "queries"))
    rows: list[dict[str, Any]] = [
        {"query_id": query, "ranking": [[first, 1.0]], "latency_ms": 1.0, "error": None}
        for query in queries[:-3]
    ]
    rows += [_failed(query) for query in queries[-3:]]
    write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))


def _failed(query: str) -> dict[str, Any]:
    return {"query_id": query, "ranking": [], "latency_ms": None, "error": WHY}


def test_a_null_score_of_a_unit_that_is_ok_has_its_reason(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "lost", scripts={"lost": does(at_a_loss)})
    box.use_protocol(json.loads(HOMEWORK.read_bytes()))
    box.manifest.write_text(box.manifest.read_text().replace("[all]", "[test]"))
    told = io.StringIO()
    result = box.run(reporter=make_reporter("plain", told))
    assert {record.outcome for record in result.outcomes} == {Outcome.OK}
    rows = result.outcomes[0].evidence.rows
    assert rows is not None
    assert rows.first_error == SHOWN
    count = rows.expected
    errors = f"rows {count}/{count}, {count} with the method's own error, first: {SHOWN}"
    assert f"lost on homework-pair: ok, {errors}, " in told.getvalue()

    report = box.verify()
    assert report.faults == ()
    lines = summary_text(result, report).splitlines()
    (null,) = [line for line in lines if " null " in line and line.startswith("-")]
    reason = lines[lines.index(null) + 2]  # after a blank line
    assert reason.startswith("lost: average_precision on test is null: homework-pair: ")
    assert f"lost on homework-pair: ok, {errors}" in lines
    (queries,) = [line for line in lines if "count as empty answers" in line]
    assert queries.startswith("lost on homework-retrieval: ok, but ")
    page = html.unescape(benchmark_page(report))
    for line in (reason, f"lost on homework-pair: ok, {errors}", queries):
        assert f"{line}." in page


def test_queries_that_failed_count_as_empty_answers_and_are_told(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "some", "overlap", scripts={"some": does(sometimes)})
    result = box.run()
    lines = summary_text(result, box.verify()).splitlines()
    rows = result.outcomes[0].evidence.rows
    assert rows is not None
    said = f"3 of {rows.expected} queries failed and count as empty answers, first: {SHOWN}"
    assert f"some on quickstart-mini: ok, but {said}" in lines
    assert not any("overlap on" in line for line in lines)


def test_what_a_file_leaves_out_is_no_error_of_the_method(tmp_path: Path) -> None:
    box = sandbox(tmp_path)
    queries = (ROOT / "manifests" / "data" / "quickstart-mini" / "queries.jsonl").read_text()
    first = json.loads(queries.splitlines()[0])["_id"]
    corpus = (ROOT / "manifests" / "data" / "quickstart-mini" / "corpus.jsonl").read_text()
    known = json.loads(corpus.splitlines()[0])["_id"]
    (tmp_path / "theirs.json").write_text(json.dumps({first: {known: 1.0}}))
    lines = "  - name: theirs\n    precomputed: theirs.json\n"
    box.manifest.write_text(box.manifest.read_text() + lines)
    told = io.StringIO()
    result = box.run(reporter=make_reporter("plain", told))
    (record,) = result.outcomes
    rows = record.evidence.rows
    assert rows is not None
    assert (record.outcome, rows.first_error) == (Outcome.OK, NO_RESULT)
    text = summary_text(result, box.verify())
    left = f"{rows.errors} of {rows.expected} queries were left out by the file"
    assert f"theirs (imported) on quickstart-mini: ok, but {left} and count as empty" in text
    assert f"{rows.errors} left out by the file" in told.getvalue()
    assert f"{rows.errors} left out by the file" in record.reason
    assert "own error" not in text + told.getvalue() + record.reason


def test_a_first_error_that_the_rows_do_not_have_is_a_fault(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "some", scripts={"some": does(sometimes)})
    box.run()
    path = box.out / "bundle" / "outcomes.jsonl"
    path.write_bytes(path.read_bytes().replace(b"ValueError: no", b"ValueError: on"))
    sealed_again(box.out / "bundle")
    told = [fault.message for fault in box.verify().faults]
    assert "the outcome record gives another first error than the rows" in told
