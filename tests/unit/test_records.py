"""Records and the documents of a bundle: what is written fits its schema and reads back."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.canonical import MAX_SAFE_INTEGER
from runner.errors import BundleError, Where
from runner.metrics.summary import LatencySummary, RetrievalSummary
from runner.model import (
    Evidence,
    HostUse,
    ImagePin,
    Limits,
    NetworkUse,
    Outcome,
    RowFault,
    RowsReport,
    Unit,
    UnitOutcome,
)
from runner.records import (
    evidence_from_record,
    evidence_record,
    outcome_from_record,
    outcome_line,
    outcome_record,
)
from runner.schemas import is_valid, iter_faults
from tests.unit.manifest_samples import AMD64, digest

UNIT = Unit(
    unit_id=digest("1"), method="okapi", method_id=digest("2"), dataset="toy", repeat=0, seed=7
)
UNITS = {UNIT.unit_id: UNIT}
EVIDENCE = Evidence(
    started=True,
    exit_code=0,
    oom_events=0,
    peak_memory_bytes=12_345,
    cpu_ns=1_500_000_000,
    wall_ns=2_000_000_000,
    death_proven=True,
    load_start=0.25,
    load_end=1.0,
    harvest_refused=("artifacts/x: symlink",),
    rows=RowsReport(
        expected=3,
        valid=2,
        missing=1,
        errors=1,
        faults=(RowFault(line=2, code="row.duplicate-id", message="query q1 twice"),),
        fault_count=1,
    ),
    warnings=("load was high",),
    unmeasured={"rss_peak_bytes": "cgroup v1 has no such file"},
)
OUTCOME = UnitOutcome(
    unit=UNIT,
    outcome=Outcome.OK,
    reason="every planned row is valid",
    evidence=EVIDENCE,
    started="2025-01-31T12:00:00.123456Z",
    image=ImagePin(name="lexical", image_id=digest("a"), platform=AMD64),
    limits=Limits(),
)
NOT_STARTED = replace(
    OUTCOME,
    outcome=Outcome.NOT_STARTED,
    evidence=Evidence(not_started_reason="the wall budget was used up"),
    started=None,
)


def test_the_record_has_the_published_keys() -> None:
    record = outcome_record(OUTCOME)
    assert list(record) == [
        "unit_id",
        "method",
        "method_id",
        "dataset",
        "repeat",
        "outcome",
        "reason",
        "evidence",
        "started",
        "wall_seconds",
        "cpu_seconds",
        "peak_memory_bytes",
        "image",
        "limits",
        "rows_expected",
        "rows_valid",
    ]
    assert (record["wall_seconds"], record["cpu_seconds"]) == (2.0, 1.5)
    assert (record["rows_expected"], record["rows_valid"]) == (3, 2)
    assert set(record["evidence"]) == {one.name for one in fields(Evidence)} - {
        "imported",
        "network",
    }


@pytest.mark.parametrize("outcome", [OUTCOME, NOT_STARTED])
def test_a_record_fits_its_schema_and_reads_back(outcome: UnitOutcome) -> None:
    line = outcome_line(outcome)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    record = json.loads(line)
    for reference in (False, True):
        assert list(iter_faults("outcome", record, reference=reference)) == []
    assert outcome_from_record(record, UNITS) == outcome
    assert outcome_line(outcome_from_record(record, UNITS)) == line


def test_what_was_not_measured_is_null() -> None:
    record = outcome_record(NOT_STARTED)
    for key in ("started", "wall_seconds", "cpu_seconds", "peak_memory_bytes", "rows_valid"):
        assert record[key] is None


@pytest.mark.parametrize(
    ("key", "value", "source"),
    [
        ("method", "other", "the plan"),
        ("method_id", digest("9"), "the plan"),
        ("dataset", "other", "the plan"),
        ("repeat", 1, "the plan"),
        ("wall_seconds", 1.0, "its evidence"),
        ("cpu_seconds", None, "its evidence"),
        ("peak_memory_bytes", 1, "its evidence"),
        ("rows_valid", 3, "its evidence"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(key: str, value: object, source: str) -> None:
    record = outcome_record(OUTCOME) | {key: value}
    where = Where(file="outcomes.jsonl", line=4)
    with pytest.raises(BundleError, match=source) as caught:
        outcome_from_record(record, UNITS, where)
    assert key in caught.value.message
    assert caught.value.where == where


def test_a_unit_that_was_not_planned_is_refused() -> None:
    with pytest.raises(BundleError, match="not in the plan"):
        outcome_from_record(outcome_record(OUTCOME), {})


COUNT = st.none() | st.integers(0, MAX_SAFE_INTEGER)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
ROWS = st.builds(
    RowsReport,
    expected=st.integers(0, 10**9),
    valid=st.integers(0, 10**9),
    missing=st.integers(0, 10**9),
    errors=st.integers(0, 10**9),
    faults=st.lists(
        st.builds(RowFault, line=st.integers(1, 10**9), code=st.just("row.x"), message=TEXT),
        max_size=3,
    ).map(tuple),
    fault_count=st.integers(0, 10**9),
    first_error=st.none() | TEXT,
)


@given(
    st.builds(
        Evidence,
        started=st.booleans(),
        not_started_reason=st.none() | TEXT,
        exit_code=st.none() | st.integers(-255, 255),
        signal_sent=st.sampled_from([None, "TERM", "KILL"]),
        deadline_exceeded=st.booleans(),
        output_exceeded=st.sampled_from([None, "output_bytes", "output_files"]),
        engine_failure=st.none() | TEXT,
        oom_events=COUNT,
        engine_oom_flag=st.none() | st.booleans(),
        peak_memory_bytes=COUNT,
        cpu_ns=COUNT,
        wall_ns=COUNT,
        load_start=st.none() | st.floats(0, 1e6),
        harvest_refused=st.lists(TEXT, max_size=3).map(tuple),
        rows=st.none() | ROWS,
        warnings=st.lists(TEXT, max_size=3).map(tuple),
        unmeasured=st.dictionaries(st.sampled_from(["cpu_ns", "wall_ns"]), st.just("why")),
    )
)
def test_any_evidence_reads_back(evidence: Evidence) -> None:
    assert evidence_from_record(json.loads(json.dumps(evidence_record(evidence)))) == evidence
    outcome = replace(OUTCOME, evidence=evidence)
    record = json.loads(outcome_line(outcome))
    assert is_valid("outcome", record)
    assert outcome_from_record(record, UNITS) == outcome


# --- the other documents of a bundle and of a container -------------------------------------------

HOST: dict[str, Any] = {
    "schema": "sealbench/host/v1",
    "cpu": {
        "model": "Some CPU",
        "vendor": "SomeVendor",
        "logical": 2,
        "physical": 1,
        "governor": None,
        "mhz_max": 2400.5,
    },
    "memory_bytes": 8 << 30,
    "swap_bytes": 0,
    "kernel": "6.1.0",
    "architecture": "x86_64",
    "os": {"id": "debian", "version": "12"},
    "cgroup_version": 1,
    "engine": {
        "name": "docker",
        "version": "20.10.24",
        "api_version": "1.41",
        "runtime": "runc",
        "runtime_version": None,
        "storage_driver": "overlay2",
        "cgroup_driver": "cgroupfs",
        "rootless": False,
    },
    "runner": {"version": "0.1.0", "python": "3.11.7", "source_commit": "a" * 40, "dirty": False},
    "load": {"start": [0.1, 0.2, 0.3], "end": None},
    "gpu": [],
    "unmeasured": {"cpu.governor": "not readable", "load.end": "interrupted"},
}
IMAGES: dict[str, Any] = {
    "schema": "sealbench/images/v1",
    "images": [
        {
            "name": "lexical",
            "image_id": digest("a"),
            "manifest_digest": None,
            "repository": None,
            "platform": "linux/amd64",
            "published": True,
            "methods": ["okapi"],
            "size_bytes": 100,
            "layers": [{"name": "base", "diff_id": digest("1"), "size": 10}],
            "inputs_sha256": None,
            "labels": {"org.opencontainers.image.revision": "a" * 40},
        }
    ],
}
TASK: dict[str, Any] = {
    "schema": "sealbench/task/v1",
    "task": "retrieval",
    "dataset": "toy",
    "seed": 0,
    "top_k": 10,
    "config": {"k1": 1.5, "nested": {"list": [1, "x", None]}},
    "options": {},
    "queries": 3,
    "documents": 4,
    "threads": 1,
}
RESULTS: dict[str, Any] = {
    "schema": "sealbench/results/v1",
    "protocol_id": digest("1"),
    "run_id": digest("2"),
    "per_dataset": [
        {
            "method": "okapi",
            "method_id": digest("3"),
            "task": "retrieval",
            "dataset": "toy",
            "split": "heldout",
            "metric": "ndcg_at_10",
            "score": None,
            "n": 2,
            "eligible": False,
            "outcome": "timeout",
            "error": "timeout: over 10m",
        }
    ],
    "aggregate": [
        {
            "method": "okapi",
            "method_id": digest("3"),
            "task": "retrieval",
            "split": "heldout",
            "metric": "ndcg_at_10",
            "mean_score": None,
            "ci_low": None,
            "ci_high": None,
            "dataset_count": 0,
            "expected_dataset_count": 1,
            "coverage": 0,
            "complete_coverage": False,
            "eligible": False,
            "rank": None,
        }
    ],
    "summaries": [
        {
            "method": "okapi",
            "dataset": "toy",
            "repeat": 0,
            "split": "heldout",
            "latency_ms": {"mean": 1.5, "p50": 1, "p95": 2.5, "max": 3, "n": 2},
            "failures": 0,
            "result_counts": {"10": 2},
            "unique_documents": 15,
            "top1_most_repeated": {"document_id": "d1", "count": 2},
        },
        {"method": "okapi", "dataset": "toy", "split": "all", "latency_ms": None},
    ],
    "notes": ["a note"],
}
DOCUMENTS = {"host": HOST, "images": IMAGES, "task": TASK, "results": RESULTS}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_the_documents_fit_their_schemas(kind: str) -> None:
    for reference in (False, True):
        assert list(iter_faults(kind, DOCUMENTS[kind], reference=reference)) == []


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every object within a document."""
    found = [path] if isinstance(value, dict) else []
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        if isinstance(item, dict | list):
            found += places(item, (*path, key))
    return found


OPEN = {"config", "options", "nested", "labels", "result_counts", "unmeasured"}


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (kind, path)
        for kind, document in DOCUMENTS.items()
        for path in places(document)
        if not OPEN & {*path}
    ],
)
def test_no_document_takes_an_unknown_key(kind: str, path: tuple[Any, ...]) -> None:
    document = json.loads(json.dumps(DOCUMENTS[kind]))
    inner = document
    for key in path:
        inner = inner[key]
    inner["hostname"] = "machine"
    assert not is_valid(kind, document)
    assert not is_valid(kind, document, reference=True)


@pytest.mark.parametrize(
    ("latency", "top"),
    [(LatencySummary(count=2, mean=1.5, p50=1.0, p95=2.0, max=2.0), "d1"), (None, None)],
)
def test_a_retrieval_summary_is_one_of_the_results(
    latency: LatencySummary | None, top: str | None
) -> None:
    summary = RetrievalSummary(
        queries=3,
        missing=1,
        failures=0,
        latency=latency,
        result_counts={10: 1, 2: 1},
        unique_documents=11,
        top_document=top,
        top_document_queries=2 if top else 0,
    ).as_dict()
    place = {"method": "okapi", "dataset": "toy", "repeat": 0, "split": "all"}
    document = {**RESULTS, "summaries": [{**place, **summary}]}
    assert list(iter_faults("results", document, reference=True)) == []
    assert (summary["latency_ms"] is None) == (latency is None)
    assert summary["top1_most_repeated"] == (top and {"document_id": "d1", "count": 2})


@pytest.mark.parametrize("name", ["method", "method_id", "score", "n", "eligible", "error"])
def test_results_lack_nothing(name: str) -> None:
    document = json.loads(json.dumps(RESULTS))
    del document["per_dataset"][0][name]
    assert not is_valid("results", document)


def test_what_went_through_the_proxy_stands_in_the_record() -> None:
    use = NetworkUse(
        hosts={"llm.example.org:443": HostUse(connections=2, bytes_sent=10, bytes_received=20)},
        refused={"evil.example:80": 3},
        refused_total=4,
        capped=True,
    )
    outcome = replace(OUTCOME, evidence=replace(OUTCOME.evidence, network=use))
    record = outcome_record(outcome)
    assert is_valid("outcome", record)
    assert record["evidence"]["network"]["hosts"]["llm.example.org:443"]["failed"] == 0
    assert outcome_from_record(record, {outcome.unit.unit_id: outcome.unit}) == outcome
