"""The expertise task from freezing to a verified bundle, on a toy; and who may never be named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest

from runner.canonical import canonical_bytes
from runner.datasets.reviewers import ExpertiseDataset
from runner.engine.api import ContainerSpec
from runner.engine.fake import FakeEngine, Script
from runner.engine.fake_cgroups import FakeCgroups
from runner.errors import ProtocolError
from runner.keys import SigningKey
from runner.manifest import load_freeze_manifest
from runner.model import Outcome
from runner.progress import make_reporter
from runner.protocol.bind import bind
from runner.protocol.freeze import freeze
from runner.protocol.load import Protocol, load_protocol, parse_protocol
from runner.purge import purge
from runner.rows.expertise import ExpertiseIds, ExpertiseRows
from runner.rows.faults import FaultLog, RowRefused
from runner.rows.read import read_rows
from runner.run import Host, RunOptions, RunResult, run_manifest
from runner.schemas import iter_faults
from runner.signals import CancelToken
from runner.tasks import expertise
from runner.tasks.api import TaskOptions
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle
from tests.sealed import IMAGE, KEY, TRUST, does, write_rows
from tests.unit.reviewer_files import PEOPLE, write_compact, write_counts

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
METRICS = ("wkt_loss", "easy_accuracy", "hard_accuracy", "wktd_at_1", "mrr_at_3", "ndcg_at_3")
FREEZE = """schema: sealbench/freeze/v1
benchmark: toy-v1
version: "1.0.0"
title: A toy
description: Made for tests.
category: expertise
metrics: [{metrics}]
primary_metric: wkt_loss
top_k: 3
rules: {{missing_score: invalid}}
datasets:
"""
DATASET = """  - name: {name}
    task: expertise
    format: reviewer-compact
    texts: toy
    ratings: toy
    version: {version}
    source_url: https://example.invalid/toy
    source_revision: own:1
    licence: none
    citation: none
    redistribution: none
    selection: everybody
"""


def frozen(root: Path, metrics: tuple[str, ...] = METRICS) -> Protocol:
    """Freeze both versions of the toy below ``root``."""
    text = FREEZE.format(metrics=", ".join(metrics))
    text += "".join(DATASET.format(name=f"toy-{v}", version=f"v_{v}") for v in (1, 2))
    path = root / "freeze.yaml"
    path.write_text(text)
    return parse_protocol(canonical_bytes(freeze(load_freeze_manifest(path), root)[0]), path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_compact(tmp_path / "root")


def first(root: Path) -> tuple[Protocol, ExpertiseDataset]:
    protocol = frozen(root)
    dataset = bind(protocol, root)["toy-1"]
    assert isinstance(dataset, ExpertiseDataset)
    return protocol, dataset


# --- freezing ------------------------------------------------------------------------------------


def test_a_frozen_protocol_binds_again_and_names_nobody(root: Path) -> None:
    protocol = frozen(root)
    assert not any(person.encode() in protocol.raw for person in PEOPLE)
    assert protocol.rules["truth_tie"] == "rating_desc_id_desc"
    assert [dataset.splits["all"].queries for dataset in protocol.datasets] == [4, 4]
    assert len({dataset.splits["all"].ids_sha256 for dataset in protocol.datasets}) == 1
    assert set(bind(protocol, root)) == {"toy-1", "toy-2"}


@pytest.mark.parametrize(
    ("metrics", "code"),
    [
        (("wkt_loss", "recall_at_3"), "metric.unknown"),
        (("wkt_loss", "mrr_at_5"), "metric.beyond-top-k"),
    ],
)
def test_metrics_that_cannot_be_frozen(root: Path, metrics: tuple[str, ...], code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        frozen(root, metrics)
    assert caught.value.code == code


# --- blind inputs --------------------------------------------------------------------------------


def test_a_method_sees_texts_under_opaque_ids_and_nothing_else(root: Path, tmp_path: Path) -> None:
    write_counts(root)
    protocol, dataset = first(root)
    ids = expertise.expected_ids(protocol, dataset, ["all"])
    shared = tmp_path / "shared"
    shared.mkdir()
    report = expertise.write_blind_inputs(
        dataset,
        ids,
        TaskOptions(seed=7, top_k=3, config={"regime": "t"}),
        tmp_path / "in",
        shared=expertise.share_inputs(dataset, shared),
    )
    files = {path.name: path.read_bytes() for path in report.folder.iterdir()}
    assert sorted(files) == sorted(file.name for file in report.files)
    assert sorted(files) == [
        "reviewers.jsonl", "submissions.jsonl", "task.json", "wordcounts.jsonl",
    ]  # fmt: skip
    task = json.loads(files["task.json"])
    assert list(iter_faults("task", task, reference=True)) == []
    assert (task["reviewers"], task["submissions"]) == (4, 6)
    assert task["options"] == {"regimes": ["t", "ta", "f"]}
    reviewers = [json.loads(line) for line in files["reviewers.jsonl"].splitlines()]
    assert [one["_id"] for one in reviewers] == list(ids)
    assert all(list(one) == ["_id", "papers"] for one in reviewers)
    papers = [paper for one in reviewers for paper in one["papers"]]
    papers += [json.loads(line) for line in files["submissions.jsonl"].splitlines()]
    assert all(list(paper) == ["_id", "title", "abstract"] for paper in papers)
    counted = [json.loads(line)["_id"] for line in files["wordcounts.jsonl"].splitlines()]
    assert counted == sorted({paper["_id"] for paper in papers})
    data = b"".join(files.values())
    for leak in (*PEOPLE, "no_ss", "evaluations", "ParticipantID", "4.25", "year"):
        assert leak.encode() not in data
    again = expertise.write_blind_inputs(
        dataset, ids, TaskOptions(seed=7, top_k=3, config={"regime": "t"}), tmp_path / "again"
    )
    assert sorted(again.files, key=lambda f: f.name) == sorted(report.files, key=lambda f: f.name)
    for folder in (report.folder, again.folder):
        purge(folder)


@pytest.mark.parametrize("ids", [["r1", "r1"], ["nobody"]])
def test_only_reviewers_of_the_dataset_are_asked(
    root: Path, tmp_path: Path, ids: list[str]
) -> None:
    _, dataset = first(root)
    with pytest.raises(ValueError, match="reviewers of the dataset"):
        expertise.write_blind_inputs(dataset, ids, TaskOptions(seed=0, top_k=3), tmp_path / "in")
    assert not (tmp_path / "in").exists()


# --- rows ----------------------------------------------------------------------------------------

ROW = '{"reviewer_id": "r1", "scores": {"s1": 0.5, "s2": 1}, "error": null}\n'
IDS = ExpertiseIds.of(["r1", "r2"], ["s1", "s2"], {"r1": ["s1"], "r2": ["s1", "s2"]})


def faults_of(text: str, ids: ExpertiseIds | None = IDS) -> list[str]:
    report = read_rows(BytesIO(text.encode()), ExpertiseRows(ids)).report
    return [fault.code for fault in report.faults]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (ROW, None),
        (ROW.replace("r1", "r2"), None),
        ('{"reviewer_id": "r1", "scores": {"s1": 0.5}, "error": null}\n', None),  # what was rated
        ('{"reviewer_id": "r1", "scores": {}, "error": "failed"}\n', None),
        ('{"reviewer_id": "r2", "scores": {"s1": 0.5}, "error": null}\n', "rows.missing-score"),
        ('{"reviewer_id": "r1", "scores": {"s2": 0.5}, "error": null}\n', "rows.missing-score"),
        ('{"reviewer_id": "r1", "scores": {}, "error": null}\n', "rows.missing-score"),
        (ROW.replace("s2", "s3"), "rows.unknown-paper"),
        (ROW.replace("1}", '1, "s9": 2}'), "rows.unknown-paper"),
        (ROW.replace("r1", "r3"), "rows.unknown-id"),
        (ROW.replace("null", '"late"'), "rows.error-with-scores"),
        (ROW.replace("0.5", "NaN"), "rows.non-finite"),
        (ROW.replace("0.5", "1e999"), "rows.non-finite"),
        (ROW.replace("0.5", "null"), "schema.type"),
        (ROW.replace("0.5", "true"), "schema.type"),
        (ROW.replace('"s2"', '"s1"'), "rows.duplicate-key"),
        (ROW.replace('"error"', '"reviewer_id": "r1", "error"'), "rows.duplicate-key"),
        (ROW.replace('"error"', '"more": 1, "error"'), "schema.unknown-key"),
    ],
)
def test_rows(line: str, code: str | None) -> None:
    assert faults_of(line) == ([] if code is None else [code])


def test_without_ids_only_the_form_is_checked() -> None:
    assert faults_of(ROW, None) == []
    assert faults_of(ROW + ROW, None) == ["rows.duplicate-id"]


# --- released predictions ------------------------------------------------------------------------


def imported(dataset: ExpertiseDataset, data: str) -> tuple[list[dict[str, Any]], list[str]]:
    faults = FaultLog()
    ids = tuple(dataset.profiles)
    found = list(expertise.import_rows(BytesIO(data.encode()), dataset, ids, faults))
    rows = [json.loads(line) for key, line in found if key in ids]
    said = " ".join(fault.message for fault in faults.kept)
    assert not any(person in said for person in PEOPLE)
    return rows, [fault.code for fault in faults.kept]


def table(dataset: ExpertiseDataset, score: Callable[[float], str] = str) -> str:
    """Released predictions of the rated pairs that are the ratings themselves."""
    people = {alias: person for person, alias in dataset.real_reviewers.items()}
    papers = {alias: paper for paper, alias in dataset.real_submissions.items()}
    lines = ["reviewer,paper,v_2,v_1"]
    for alias, rated in dataset.ratings.items():
        lines += [f"{people[alias]},{papers[p]},9,{score(value)}" for p, value in rated.items()]
    return "\n".join(lines) + "\n"


def test_a_table_of_the_rated_pairs_is_whole(root: Path) -> None:
    _, dataset = first(root)
    rows, faults = imported(dataset, table(dataset))
    assert faults == []
    assert {row["reviewer_id"]: row["scores"] for row in rows} == dataset.ratings
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert imported(dataset, text) == (rows, [])
    people = {alias: person for person, alias in dataset.real_reviewers.items()}
    papers = {alias: paper for paper, alias in dataset.real_submissions.items()}
    nested = {
        people[who]: {papers[p]: value for p, value in rated.items()}
        for who, rated in dataset.ratings.items()
    }
    assert imported(dataset, json.dumps(nested)) == (rows, [])


def test_what_is_wrong_with_a_table_is_told_without_names(root: Path) -> None:
    _, dataset = first(root)
    good = table(dataset)
    line = good.splitlines()[1]
    person = line.split(",")[0]
    assert imported(dataset, good + line + "\n")[1] == ["rows.duplicate-score"]
    assert imported(dataset, good + f"{person},elsewhere,1,1\n")[1] == ["rows.unknown-paper"]
    assert imported(dataset, good + "someone,s1,1,1\n")[1] == []  # nobody that is asked about
    assert imported(dataset, good.replace(line, line.rpartition(",")[0] + ",nan"))[1] == [
        "rows.not-finite"
    ]
    assert imported(dataset, good.replace(line, line.rpartition(",")[0] + ","))[1] == [
        "rows.no-number"
    ]
    assert imported(dataset, good.replace(line, line + ",7"))[1] == ["rows.import-columns"]
    for bad in ("", "a,b\n", good.replace("v_1", "v_7"), '{"x": 1}', f'{{"{person}": NaN}}'):
        with pytest.raises(RowRefused) as caught:
            imported(dataset, bad)
        assert person not in caught.value.message


# --- a whole run ---------------------------------------------------------------------------------


def _lines(mounts: Mapping[str, Path], name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (mounts["/in"] / name).read_text().splitlines()]


def overlap(mounts: Mapping[str, Path]) -> None:
    """A method: the number of words that a profile and a submission share."""
    submissions = _lines(mounts, "submissions.jsonl")
    rows = []
    for one in _lines(mounts, "reviewers.jsonl"):
        own = {w for p in one["papers"] for w in f"{p['title']} {p['abstract']}".lower().split()}
        scores = {
            p["_id"]: len(own & {*f"{p['title']} {p['abstract']}".lower().split()})
            for p in submissions
        }
        rows.append({"reviewer_id": one["_id"], "scores": scores, "error": None})
    write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))


def constant(mounts: Mapping[str, Path]) -> None:
    """A method: everything is equal."""
    scores = {paper["_id"]: 1 for paper in _lines(mounts, "submissions.jsonl")}
    rows = [
        {"reviewer_id": one["_id"], "scores": scores, "error": None}
        for one in _lines(mounts, "reviewers.jsonl")
    ]
    write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))


def failing(mounts: Mapping[str, Path]) -> None:
    """A method: an error instead of scores, for one reviewer."""
    constant(mounts)
    lines = (mounts["/out"] / "rows.jsonl").read_text().splitlines()
    row = json.loads(lines[0])
    bad = {"reviewer_id": row["reviewer_id"], "scores": {}, "error": "timeout"}
    write_rows(mounts, "\n".join([json.dumps(bad), *lines[1:]]) + "\n")


SCRIPTS: Mapping[str, Script] = {
    "overlap": does(overlap),
    "constant": does(constant),
    "failing": does(failing),
}


def sealed(
    root: Path, folder: Path, *methods: str, key: SigningKey | None = KEY
) -> tuple[RunResult, VerifyReport]:
    protocol = frozen(root)
    (folder / "p.json").write_bytes(protocol.raw)
    lines = ["schema: sealbench/run/v1", "name: toy", "protocol: p.json", "splits: [all]"]
    lines += ["limits: {wall: 20s, grace: 100ms, memory: 256MiB, output: 1MiB}", "methods:"]
    for name in methods:
        lines += [f"  - name: {name}", f"    image: {IMAGE}", f"    command: [{name}]"]
    released = folder / "theirs.csv"
    _, dataset = first(root)
    released.write_text(table(dataset).replace("v_2,v_1", "v_1,v_2"))
    lines += ["  - name: theirs", "    precomputed: theirs.csv"]
    (folder / "run.yaml").write_text("\n".join(lines) + "\n")
    return run_and_verify(folder, root, key)


def run_and_verify(
    folder: Path, root: Path, key: SigningKey | None = KEY
) -> tuple[RunResult, VerifyReport]:
    """Run ``run.yaml`` of a folder on the fake engine, and verify what came of it."""

    def script(spec: ContainerSpec) -> Script:
        return SCRIPTS[spec.command[0]]

    result = run_manifest(
        folder / "run.yaml",
        RunOptions(key=key, data_root=root, out=folder / "out"),
        host=Host(
            open_engine=lambda: FakeEngine(script),
            open_cgroups=lambda _info: FakeCgroups(),
            patience_s=0.2,
        ),
        reporter=make_reporter("quiet", StringIO()),
        cancel=CancelToken(),
    )
    protocol = load_protocol(folder / "p.json")
    report = verify_bundle(
        VerifyRequest(
            bundle=folder / "out" / "bundle",
            protocol_id=protocol.protocol_id,
            protocol=protocol,
            trust=TRUST if key else None,
            data_root=root,
            allow_unsigned=key is None,
        )
    )
    return result, report


def test_from_a_manifest_to_a_verified_bundle_that_names_nobody(root: Path, tmp_path: Path) -> None:
    result, report = sealed(root, tmp_path, "overlap", "constant", "failing")
    assert report.faults == ()
    assert report.recomputed.holds is True
    found: Any = result.results["aggregate"]
    rows = {(row["method"], row["metric"]): row for row in found}
    assert rows["constant", "wkt_loss"]["mean_score"] == 0.5
    assert rows["constant", "easy_accuracy"]["mean_score"] == 0.0
    # Lower is better: the ratings as scores are right in one version and tied in the other.
    assert rows["theirs", "wkt_loss"]["mean_score"] == 0.25
    assert rows["theirs", "wkt_loss"]["rank"] < rows["constant", "wkt_loss"]["rank"]
    assert rows["failing", "wkt_loss"]["mean_score"] is None
    assert rows["failing", "wkt_loss"]["rank"] is None
    cells: Any = result.results["per_dataset"]
    reasons = {row["error"] for row in cells if row["method"] == "failing"}
    assert reasons == {"1 of 4 reviewers have an error instead of scores"}
    summaries: Any = result.results["summaries"]
    ties = next(one["ties"] for one in summaries if one["method"] == "constant")
    assert (ties["pairs"], ties["pairs_tied_in_scores"]) == (10, 10)
    everything = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert any(path.name == "bundle.tar" for path in everything)
    for path in everything:
        data = path.read_bytes()
        assert not any(person.encode() in data for person in PEOPLE), path
        assert b"no_ss" not in data


def test_the_shipped_methods_without_weights_are_not_started_and_say_so(
    root: Path, tmp_path: Path
) -> None:
    shipped = (MANIFESTS / "reviewer-gold.yaml").read_text()
    entries = [
        f"  - name: {entry}"
        for entry in shipped.split("\n  - name: ")[1:]
        if "requires: [weights]" in entry
    ]
    (tmp_path / "p.json").write_bytes(frozen(root).raw)
    lines = ["schema: sealbench/run/v1", "name: toy", "protocol: p.json", "splits: [all]"]
    lines += ["limits: {memory: 256MiB}", "methods:", *entries]
    lines += [f"  - {{name: constant, image: '{IMAGE}', command: [constant]}}"]
    (tmp_path / "run.yaml").write_text("\n".join(lines) + "\n")
    result, report = run_and_verify(tmp_path, root)
    assert report.faults == ()
    assert report.recomputed.holds is True
    found = {one.unit.method: (one.outcome, one.reason) for one in result.outcomes}
    absent = {
        "specter2": "specter2-base (000000000000), specter2-proximity (000000000000)",
        "specter-mounted": "specter (000000000000)",
        "scincl": "scincl (000000000000)",
        "specter-mfr": "mfr (000000000000), specter (000000000000)",
    }
    expected = {
        name: (
            Outcome.NOT_STARTED, f"model files are not on this host: {models}; see --models-root"
        )
        for name, models in absent.items()
    }  # fmt: skip
    assert found == {**expected, "constant": (Outcome.OK, found["constant"][1])}
    assert len(result.outcomes) == 10
    assert (result.summary.complete, result.summary.unexpected) == (True, 0)
    rows: Any = result.results["aggregate"]
    assert {row["mean_score"] for row in rows if row["method"] in absent} == {None}


def test_the_bundle_holds_rows_and_the_artifact_of_rated_pairs(root: Path, tmp_path: Path) -> None:
    sealed(root, tmp_path, "overlap")
    text = (tmp_path / "out/bundle/scores/overlap/toy-1.csv").read_text()
    lines = text.splitlines()
    assert lines[0] == "reviewer_id,paper_id,rating,score"
    assert len(lines) == 12
    assert all(re.fullmatch(r"r\d,s\d,\d\.\d+,\d+\.\d+", line) for line in lines[1:])


# --- the published data --------------------------------------------------------------------------


def people_of(root: Path) -> re.Pattern[bytes]:
    """A pattern for ids of people as words of their own, not inside a digest or a number."""
    lines = (root / "reviewer-gold" / "evaluations.csv").read_bytes().splitlines()[1:]
    ids = [line.split(b"\t")[0] for line in lines]
    assert len(set(ids)) == 58
    return re.compile(rb"(?<![0-9A-Za-z.])(?:" + b"|".join(ids) + rb")(?![0-9A-Za-z])")


def test_no_frozen_protocol_or_manifest_names_one_of_the_58(reviewer_root: Path) -> None:
    people = people_of(reviewer_root)
    files = [path for path in MANIFESTS.rglob("*") if path.is_file() and "local" not in path.name]
    assert files
    for path in files:
        assert not people.search(path.read_bytes()), path


def test_a_whole_bundle_and_its_tar_name_none_of_the_58(
    reviewer_root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    people = people_of(reviewer_root)
    assert people.search((reviewer_root / "reviewer-gold" / "evaluations.csv").read_bytes())
    protocol = (MANIFESTS / "benchmarks" / "reviewer-gold-v1.protocol.json").read_bytes()
    (tmp_path / "p.json").write_bytes(protocol)
    released = reviewer_root / "reviewer-gold" / "predictions" / "elmo_d_20_ta.csv"
    (tmp_path / "elmo.csv").symlink_to(released)
    text = f"""schema: sealbench/run/v1
name: people
protocol: p.json
splits: [all]
methods:
  - {{name: constant, image: '{IMAGE}', command: [constant]}}
  - {{name: failing, image: '{IMAGE}', command: [failing]}}
  - {{name: elmo, precomputed: elmo.csv}}
"""
    (tmp_path / "run.yaml").write_text(text)
    result, report = run_and_verify(tmp_path, reviewer_root)
    assert report.faults == ()
    found: Any = result.results["aggregate"]
    losses = {row["method"]: row for row in found if row["metric"] == "wkt_loss"}
    assert losses["elmo"]["mean_score"] == pytest.approx(0.344692, abs=1e-6)
    assert losses["constant"]["mean_score"] == pytest.approx(0.5, abs=1e-12)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sum(path.name == "part-00000.jsonl" for path in files) == 30
    for path in files:
        assert not people.search(path.read_bytes()), path
    said = capfd.readouterr()
    assert not people.search((said.out + said.err).encode())
