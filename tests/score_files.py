"""Sealed runs of every task, to be changed and signed again, or verified without their data."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from runner.bundle import dsse
from runner.bundle.manifest import parse_manifest
from runner.bundle.paths import CRATE
from runner.bundle.rocrate import crate, run_info
from runner.bundle.statement import parse_statement
from runner.canonical import canonical_bytes
from runner.engine.fake import FakeEngine
from runner.engine.fake_cgroups import FakeCgroups
from runner.manifest import load_freeze_manifest
from runner.plan_document import plan_from_document
from runner.progress import make_reporter
from runner.protocol.freeze import freeze
from runner.protocol.load import Protocol, parse_protocol
from runner.run import Host, RunOptions, run_manifest
from runner.signals import CancelToken
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle
from tests.plagiarism import bench
from tests.sealed import IMAGE, KEY, TRUST, Method, does, write_rows
from tests.unit.beir_files import write_beir
from tests.unit.reviewer_files import write_compact
from tests.unit.test_expertise_task import frozen
from tests.unit.test_verify import edit, sign_again

Change = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A sealed run, what it was run under, and the data, which only a comparison may use."""

    bundle: Path
    protocol: Protocol
    data_root: Path

    def verify(self, *, labels: bool = False) -> VerifyReport:
        return verify_bundle(
            VerifyRequest(
                bundle=self.bundle,
                protocol_id=self.protocol.protocol_id,
                protocol=self.protocol if labels else None,
                trust=TRUST,
                data_root=self.data_root if labels else None,
            )
        )

    def changed(self, folder: Path, *changes: Change) -> Sealed:
        """A copy that was changed and signed again."""
        shutil.copytree(self.bundle, folder / "bundle")
        for change in changes:
            change(folder / "bundle")
        forge(folder / "bundle", self.protocol)
        return replace(self, bundle=folder / "bundle")


def forge(bundle: Path, protocol: Protocol) -> None:
    """List, describe and sign whatever the files are now, as their author would have."""
    sign_again(bundle)
    manifest = parse_manifest((bundle / "manifest.json").read_bytes())
    envelope = (bundle / "receipt.dsse.json").read_bytes()
    _, claims = parse_statement(dsse.verify(envelope, TRUST.public_keys, file="r").payload)
    plan = plan_from_document(json.loads((bundle / "plan.json").read_bytes()))
    files = [entry for entry in manifest.files if entry.path != CRATE]
    info = run_info(plan, protocol.title, protocol.version)
    (bundle / CRATE).write_bytes(canonical_bytes(crate(files, claims, info, signed=True)))
    sign_again(bundle)


def run(folder: Path, protocol: Protocol, root: Path, methods: Mapping[str, Method]) -> Sealed:
    """Run methods on the fake engine and seal what comes out."""
    splits = [name for name in protocol.splits if name != "calibration"]
    return run_splits(folder, protocol, root, methods, splits)


def run_splits(
    folder: Path, protocol: Protocol, root: Path, methods: Mapping[str, Method],
    splits: Sequence[str],
) -> Sealed:  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "protocol.json").write_bytes(protocol.raw)
    lines = [
        "schema: sealbench/run/v1", "name: toy", "protocol: protocol.json",
        f"splits: [{', '.join(splits)}]",
        "limits: {wall: 20s, grace: 100ms, memory: 256MiB, output: 1MiB}", "methods:",
    ]  # fmt: skip
    for name in methods:
        lines += [f"  - name: {name}", f"    image: {IMAGE}", f"    command: [{name}]"]
    (folder / "run.yaml").write_text("\n".join(lines) + "\n")
    engine = FakeEngine(lambda spec: does(methods[spec.command[0]]))
    run_manifest(
        folder / "run.yaml",
        RunOptions(key=KEY, data_root=root, out=folder / "out"),
        host=Host(open_engine=lambda: engine, open_cgroups=lambda _: FakeCgroups(), patience_s=0.2),
        reporter=make_reporter("quiet", io.StringIO()),
        cancel=CancelToken(),
    )
    return Sealed(bundle=folder / "out" / "bundle", protocol=protocol, data_root=root)


def knows(mounts: Mapping[str, Path]) -> None:
    """A method for reviewers: scores by the ids' numbers."""
    _reviewers(mounts, lambda who, paper: (int(who[1:]) * 3 + int(paper[1:])) % 5 / 4)


def indifferent(mounts: Mapping[str, Path]) -> None:
    _reviewers(mounts, lambda who, paper: 0.5)  # noqa: ARG005


def _reviewers(mounts: Mapping[str, Path], score: Callable[[str, str], float]) -> None:
    ids = {
        name: [json.loads(line)["_id"] for line in (mounts["/in"] / name).read_text().splitlines()]
        for name in ("reviewers.jsonl", "submissions.jsonl")
    }
    rows = [
        {
            "reviewer_id": who,
            "scores": {paper: score(who, paper) for paper in ids["submissions.jsonl"]},
            "error": None,
        }
        for who in ids["reviewers.jsonl"]
    ]
    write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))


BEIR = """schema: sealbench/freeze/v1
benchmark: toy-v1
version: "1.0.0"
title: Toy
description: Made for tests.
category: retrieval
metrics: [METRICS]
primary_metric: ndcg_at_2
top_k: 2
splits: {algorithm: sha256-id-order, calibration: 1}
rules: {queries_without_positives: POLICY}
datasets:
  - name: toy
    task: retrieval
    format: beir
    qrels: test
    source_url: https://example.invalid/toy
    source_revision: own:1
    licence: none
    citation: none
    redistribution: none
    selection: all judged queries; those without a relevant document too
"""
#: query -> graded documents. q1: one of grade 3 that nobody retrieves; q4: nothing is relevant.
GRADES: Mapping[str, Mapping[str, int]] = {
    "q1": {"d1": 2, "d2": 0, "d4": 3}, "q2": {"d2": 1}, "q4": {"d3": 0},
}  # fmt: skip
FOUND: Mapping[str, Mapping[str, Sequence[str]]] = {
    "first": {"q1": ("d1", "d2"), "q2": ("d2", "d1"), "q4": ("d1", "d3")},
    "second": {"q1": ("d3", "d1"), "q2": ("d1", "d2"), "q4": ("d2", "d1")},
}


def beir(
    folder: Path, *, metrics: str = "ndcg_at_2, recall_at_2, mrr_at_1",
    policy: str = "count_as_zero",
) -> tuple[Protocol, Path]:  # fmt: skip
    rows = [f"{q}\t{d}\t{g}\n" for q, graded in GRADES.items() for d, g in graded.items()]
    write_beir(folder / "root" / "toy", qrels="".join(["query-id\tcorpus-id\tscore\n", *rows]))
    path = folder / "freeze.yaml"
    path.write_text(BEIR.replace("METRICS", metrics).replace("POLICY", policy))
    document = freeze(load_freeze_manifest(path), folder / "root")[0]
    return parse_protocol(canonical_bytes(document), path), folder / "root"


def finds(found: Mapping[str, Sequence[str]]) -> Method:
    """A method that answers as it was told, in this order."""

    def act(mounts: Mapping[str, Path]) -> None:
        queries = [
            json.loads(line)["_id"]
            for line in (mounts["/in"] / "queries.jsonl").read_text().splitlines()
        ]
        rows = [
            {
                "query_id": query,
                "ranking": [[name, 1.0 - 0.1 * at] for at, name in enumerate(found[query])],
                "latency_ms": 1.0,
                "error": None,
            }
            for query in queries
        ]
        write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))

    return act


def methods_of(found: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, Method]:
    return {name: finds(one) for name, one in found.items()}


def make_code(folder: Path) -> Sealed:
    made = bench(folder)
    made.run(made.folder / "out", "alike", "lengths", "crash")
    return Sealed(
        bundle=made.folder / "out" / "bundle", protocol=made.protocol, data_root=made.data_root
    )


def make_people(folder: Path) -> Sealed:
    root = write_compact(folder / "root")
    methods = {"knows": knows, "indifferent": indifferent}
    return run(folder / "run", frozen(root), root, methods)


def make_graded(folder: Path) -> Sealed:
    protocol, root = beir(folder)
    return run(folder / "run", protocol, root, methods_of(FOUND))


#: A dataset of each kind: code has pairs and whole rankings, graded is BEIR's.
MAKERS: Mapping[str, Callable[[Path], Sealed]] = {
    "code": make_code, "people": make_people, "graded": make_graded,
}  # fmt: skip
Make = Callable[[str], Sealed]


def maker(factory: pytest.TempPathFactory) -> Make:
    """Make each run once, when it is first asked for."""
    return cache(lambda name: MAKERS[name](factory.mktemp(name)))


def results(change: Callable[[Any], None]) -> Change:
    return lambda bundle: edit(bundle / "results.json", change)


def scaled(factor: float) -> Callable[[Any], None]:
    """All figures of both tables, and what is between two methods, by one factor."""

    def change(document: Any) -> None:
        names = ("score", "mean_score", "ci_low", "ci_high", "difference")
        for row in (*document["per_dataset"], *document["aggregate"], *document["comparisons"]):
            row.update({name: row[name] * factor for name in names if row.get(name) is not None})

    return change


def other_threshold(document: Any) -> None:
    next(one for one in document["summaries"] if one.get("threshold"))["threshold"] = 0.25
