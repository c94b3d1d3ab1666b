"""Results that were made elsewhere: read, checked, scored, sealed, and marked as not executed."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.datasets.beir import RetrievalDataset, load_beir
from runner.errors import DataError, EngineError, ManifestError
from runner.imports import digest_file
from runner.model import Outcome
from runner.progress import make_reporter
from runner.rows.faults import NO_RESULT, FaultLog, RowRefused
from runner.run import Host, RunOptions, RunResult, run_manifest
from runner.signals import CancelToken
from runner.tasks import retrieval_import
from runner.verify.bundle import VerifyReport
from tests.sealed import DATA_ROOT, KEY, PROTOCOL, Sandbox, sandbox


@pytest.fixture(scope="module")
def dataset() -> RetrievalDataset:
    name = "quickstart-mini"
    return load_beir(DATA_ROOT / name, name=name, qrels_split="test", root=DATA_ROOT)


def rows_of(dataset: RetrievalDataset, data: bytes) -> tuple[dict[str, Any], FaultLog]:
    faults = FaultLog()
    ids = tuple(dataset.queries)
    found = retrieval_import.import_rows(io.BytesIO(data), dataset, ids, faults)
    return {key: json.loads(line) for key, line in found}, faults


def perfect(dataset: RetrievalDataset) -> dict[str, dict[str, float]]:
    """The labels themselves as results: nDCG is 1 for every query with a positive."""
    return {
        query: {document: float(grade) for document, grade in grades.items() if grade > 0}
        for query, grades in dataset.qrels.items()
    }


def trec(results: Mapping[str, Mapping[str, float]]) -> bytes:
    lines = [
        f"{query} Q0 {document} {rank} {score} tag\n"
        for query, scores in results.items()
        for rank, (document, score) in enumerate(scores.items(), 1)
    ]
    return "".join(lines).encode()


def test_every_format_gives_the_same_rows(dataset: RetrievalDataset) -> None:
    results = perfect(dataset)
    rows = b"".join(
        json.dumps(
            {"query_id": q, "ranking": list(map(list, r.items())), "latency_ms": 5, "error": None}
        ).encode()
        + b"\n"
        for q, r in results.items()
    )
    mteb = {"mteb_model_meta": {"model_name": "x"}, "default": {"test": results}}
    made = [
        rows_of(dataset, data)
        for data in (
            trec(results), json.dumps(results).encode(), json.dumps(results, indent=1).encode(),
            json.dumps(mteb).encode(), rows,
        )
    ]  # fmt: skip
    assert all(found == made[0][0] and log.count == 0 for found, log in made)
    assert made[0][0].keys() == results.keys()
    # Timings of another machine are not carried over.
    assert {row["latency_ms"] for row in made[0][0].values()} == {None}


def test_a_query_without_results_counts_as_one_that_found_nothing(
    dataset: RetrievalDataset,
) -> None:
    results = perfect(dataset)
    left_out = next(iter(results))
    del results[left_out]
    for data in (trec(results), json.dumps(results).encode()):
        rows, _ = rows_of(dataset, data)
        assert rows[left_out]["ranking"] == []
        assert rows[left_out]["error"] == NO_RESULT


@pytest.mark.parametrize("data", [b"", b"other Q0 d 1 1.0 t\n", b'{"other": {"d": 1.0}}'])
def test_a_file_that_knows_no_query_of_ours_stays_incomplete(
    dataset: RetrievalDataset, data: bytes
) -> None:
    rows, _ = rows_of(dataset, data)
    assert not rows.keys() & dataset.queries.keys()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"a": 1}', "rows.import-form"),
        (b'{"a": {"d": NaN}}', "rows.non-finite"),
        (b'{"a": {"d": 1, "d": 2}}', "rows.duplicate-key"),
        (b'{"mteb_model_meta": {}, "en": {}, "de": {}}', "rows.import-form"),
        (b'{"mteb_model_meta": {}, "en": {"dev": {}}}', "rows.import-form"),
        (b'{"half": {"d": 1.0}', "rows.json"),
        (b'{"query_id": "q", "ranking": []}\n[]\n', "rows.json"),
    ],
)
def test_what_is_no_file_of_results_is_refused(
    dataset: RetrievalDataset, data: bytes, code: str
) -> None:
    with pytest.raises(RowRefused) as caught:
        rows_of(dataset, data)
    assert caught.value.code == code


def no_engine() -> Any:
    raise EngineError("engine.unreachable", "no engine", fix="none is needed")


def imported(folder: Path, data: bytes, *more: str) -> Sandbox:
    """A manifest with one precomputed method, ``theirs``, beside the executed ones named."""
    made = sandbox(folder, *more)
    (folder / "run.trec").write_bytes(data)
    lines = "  - name: theirs\n    precomputed: run.trec\n"
    made.manifest.write_text(made.manifest.read_text() + lines, encoding="utf-8")
    return made


def run_here(made: Sandbox, **options: Any) -> RunResult:
    """Run with no engine anywhere."""
    return run_manifest(
        made.manifest,
        RunOptions(key=KEY, data_root=DATA_ROOT, out=made.out, **options),
        host=Host(open_engine=no_engine),
        reporter=make_reporter("quiet", io.StringIO()),
        cancel=CancelToken(),
    )


def sound(report: VerifyReport) -> None:
    assert report.faults == ()
    assert report.intact.holds and report.recomputed.holds


def score_of(result: RunResult, method: str, metric: str) -> dict[str, Any]:
    rows: Any = result.results["aggregate"]
    return next(row for row in rows if (row["method"], row["metric"]) == (method, metric))


def test_an_import_alone_needs_no_engine_and_says_that_it_was_not_executed(
    tmp_path: Path, dataset: RetrievalDataset
) -> None:
    made = imported(tmp_path, trec(perfect(dataset)))
    result = run_here(made)
    (record,) = result.outcomes
    assert record.outcome is Outcome.OK
    assert record.image is None and record.started is None
    assert "not executed here" in record.reason
    assert record.evidence.imported == digest_file(tmp_path / "run.trec")[0]
    assert record.evidence.unmeasured["wall_ns"].startswith("not executed here")
    row = score_of(result, "theirs", "recall_at_5")
    assert row["executed"] is False and row["rank"] == 1
    notes: Any = result.results["notes"]
    assert any("theirs is precomputed" in note for note in notes)
    bundle = made.out / "bundle"
    assert json.loads((bundle / "images.json").read_text())["images"] == []
    assert json.loads((bundle / "host.json").read_text())["engine"] is None
    sound(made.verify())
    sound_without = made.verify(labels=False)
    assert sound_without.faults == ()


def test_imported_and_executed_methods_stand_side_by_side(
    tmp_path: Path, dataset: RetrievalDataset
) -> None:
    made = imported(tmp_path, trec(perfect(dataset)), "overlap")
    result = made.run()
    assert [record.outcome for record in result.outcomes] == [Outcome.OK, Outcome.OK]
    assert "executed" not in score_of(result, "overlap", "ndcg_at_10")
    best = score_of(result, "theirs", "ndcg_at_10")
    assert best["rank"] == 1 and best["mean_score"] > 0.9
    sound(made.verify())


def test_rows_that_were_not_asked_are_left_out_and_counted(
    tmp_path: Path, dataset: RetrievalDataset
) -> None:
    made = imported(tmp_path, trec({**perfect(dataset), "stranger": {"d1": 1.0}}))
    (record,) = run_here(made).outcomes
    assert record.outcome is Outcome.OK
    assert record.evidence.warnings[0].startswith("1 rows for what is not asked")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"nobody Q0 d1 1 1.0 t\n", "rows"),
        (b'{"a": 1}', "rows.import-form"),
        (b"\xff\xfe\n", "columns"),
    ],
)
def test_a_bad_file_is_an_outcome_with_null_scores(tmp_path: Path, data: bytes, words: str) -> None:
    made = imported(tmp_path, data)
    result = run_here(made)
    (record,) = result.outcomes
    assert record.outcome is Outcome.INVALID_OUTPUT
    assert words in record.reason
    assert score_of(result, "theirs", "ndcg_at_10")["mean_score"] is None
    assert made.verify().faults == ()


def test_an_unknown_document_is_a_fault(tmp_path: Path, dataset: RetrievalDataset) -> None:
    results = perfect(dataset)
    results[next(iter(results))] = {"no-such-document": 1.0}
    (record,) = run_here(imported(tmp_path, trec(results))).outcomes
    assert record.outcome is Outcome.INVALID_OUTPUT
    assert "rows.unknown-document" in record.reason


def test_a_file_that_is_missing_or_no_file_is_refused_beforehand(tmp_path: Path) -> None:
    made = imported(tmp_path, b"")
    (tmp_path / "run.trec").unlink()
    with pytest.raises(DataError) as caught:
        run_here(made)
    assert caught.value.code == "data.import-unreadable"
    assert caught.value.where is not None and caught.value.where.line is not None
    os.mkfifo(tmp_path / "run.trec")
    with pytest.raises(DataError, match="no regular file"):
        run_here(made)
    assert not made.out.exists()


def test_a_precomputed_method_has_nothing_to_execute(tmp_path: Path) -> None:
    made = imported(tmp_path, b"")
    made.manifest.write_text(made.manifest.read_text() + "    command: [python3]\n")
    with pytest.raises(ManifestError, match="is precomputed") as caught:
        run_here(made)
    assert caught.value.code == "manifest.precomputed"


def test_the_identity_is_the_content(tmp_path: Path, dataset: RetrievalDataset) -> None:
    data = trec(perfect(dataset))
    first = run_here(imported(tmp_path / "a", data))
    second = imported(tmp_path / "b", data)
    (tmp_path / "b" / "run.trec").rename(tmp_path / "b" / "other.trec")
    text = second.manifest.read_text().replace("run.trec", "other.trec")
    second.manifest.write_text(text.replace("theirs", "renamed"))
    again = run_here(second)
    changed = run_here(imported(tmp_path / "c", data + b"stranger Q0 d1 1 1.0 t\n"))
    ids = [run.resolved.plan.methods[0].method_id for run in (first, again, changed)]
    assert ids[0] == ids[1] != ids[2]


def test_a_file_changed_after_the_plan_is_not_scored(
    tmp_path: Path, dataset: RetrievalDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runner import run as run_module

    made = imported(tmp_path, trec(perfect(dataset)))
    resolve = run_module.resolve

    def resolve_then_change(*arguments: Any) -> Any:
        resolved = resolve(*arguments)
        (tmp_path / "run.trec").write_bytes(b"changed Q0 d1 1 1.0 t\n")
        return resolved

    monkeypatch.setattr(run_module, "resolve", resolve_then_change)
    (record,) = run_here(made).outcomes
    assert record.outcome is Outcome.NOT_STARTED
    assert "changed since the plan" in record.reason
    assert not (made.out / "bundle" / "rows").exists()


def test_dataset_stands_for_the_datasets_name(tmp_path: Path, dataset: RetrievalDataset) -> None:
    made = imported(tmp_path, b"")
    (tmp_path / "quickstart-mini.trec").write_bytes(trec(perfect(dataset)))
    text = made.manifest.read_text().replace("run.trec", '"{dataset}.trec"')
    made.manifest.write_text(text)
    (record,) = run_here(made).outcomes
    assert record.outcome is Outcome.OK
    assert PROTOCOL.exists()
