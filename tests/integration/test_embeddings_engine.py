"""Embedding scores of a sealed bundle, computed again on a real engine by the dense image."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from runner.embedding_check import EmbeddingRequest, check_embeddings
from runner.engine.docker import DockerEngine
from runner.engine.lease import RUN
from runner.imagebuild import build
from runner.progress import make_reporter
from runner.run import Host, RunOptions, run_manifest
from runner.signals import CancelToken
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle
from tests.sealed import DATA_ROOT, KEY, ROOT, TRUST, Sandbox, protocol, sandbox, sealed_again

pytestmark = pytest.mark.engine
ROWS = "rows/hybrid/quickstart-mini/part-00000.jsonl"


@pytest.fixture(scope="module")
def box(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A sealed run of ``hybrid``: both of its parts are the methods of their own names."""
    build(["dense"], engine=engine, cache_dir=ROOT / ".cache")
    made = sandbox(tmp_path_factory.mktemp("dense") / "box")
    head, _, _ = made.manifest.read_text().partition("limits:")
    made.manifest.write_text(
        f"{head}limits: {{memory: 1GiB, cpus: 2}}\nmethods:\n  - {{name: hybrid, image: dense}}\n"
    )
    run_manifest(
        made.manifest,
        RunOptions(data_root=DATA_ROOT, out=made.out, key=KEY),
        host=Host(open_engine=DockerEngine),
        reporter=make_reporter("quiet", io.StringIO()),
        cancel=CancelToken(),
    )
    return made


def looked_at(box: Sandbox) -> VerifyReport:
    expected = protocol()
    request = VerifyRequest(
        bundle=box.out / "bundle", protocol_id=expected.protocol_id, protocol=expected,
        trust=TRUST, data_root=DATA_ROOT,
    )  # fmt: skip
    report = verify_bundle(request)
    assert report.faults == ()
    return check_embeddings(
        EmbeddingRequest(verify=request, queries=4), report,
        host=Host(open_engine=DockerEngine), reporter=make_reporter("quiet", io.StringIO()),
        cancel=CancelToken(),
    )  # fmt: skip


def test_other_texts_in_a_batch_and_an_empty_cache_change_no_bit(
    box: Sandbox, engine: DockerEngine
) -> None:
    report = looked_at(box)
    assert report.faults == ()
    assert report.embeddings.holds is True
    (unit,) = report.embeddings.units
    assert (len(unit.queries), unit.moved) == (4, 0)
    assert unit.scores >= 30  # of 40: some documents are the full text's alone
    run_id = json.loads((box.out / "bundle" / "plan.json").read_bytes())["run_id"]
    assert engine.containers({RUN: run_id}) == ()


def test_scores_planted_by_whoever_holds_the_key_are_found(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    forged = replace(box, folder=tmp_path / "box")
    box.out.rename(forged.out)
    rows = forged.out / "bundle" / ROWS
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    for row in lines:  # all, for the sample follows from the bundle that is made
        ranks, scores = (row["evidence"][f"vector_{name}"] for name in ("rank", "score"))
        best = min(range(len(ranks)), key=lambda place: ranks[place] or 1000)
        scores[best] += 1e-6
    rows.write_text("".join(json.dumps(row) + "\n" for row in lines))
    sealed_again(forged.out / "bundle")
    report = looked_at(forged)
    assert report.embeddings.holds is False
    assert {fault.code for fault in report.faults} == {"bundle.embedding-differs"}
    assert {fault.file for fault in report.faults} == {ROWS}
    assert len(report.faults) == 4
