"""Embedding scores computed again on the fake engine: honest bundles, planted ones, no engine."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.embedding_check import EmbeddingRequest, check_embeddings
from runner.engine.api import ContainerSpec, Engine
from runner.engine.fake import FakeEngine, Script
from runner.engine.fake_cgroups import FakeCgroups
from runner.errors import DataError, EngineError, ImageError
from runner.imagelock import load_locks
from runner.models import read_model
from runner.progress import make_reporter
from runner.run import Host
from runner.signals import CancelToken
from runner.trust import Trust
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle
from tests.sealed import (
    DATA_ROOT,
    PROTOCOL,
    TRUST,
    Method,
    Sandbox,
    does,
    protocol,
    sandbox,
    sealed_again,
    write_rows,
)

METHODS = ("vector_only", "hybrid")
CODE = "bundle.embedding-differs"


def numbers(text: str, seed: str) -> float:
    """A score that is a matter of both texts and nothing else."""
    return int.from_bytes(hashlib.sha256(f"{seed}\n{text}".encode()).digest()[:6], "big") / 2**48


def lines(mounts: Mapping[str, Path], name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (mounts["/in"] / name).read_text().splitlines()]


def answers(mounts: Mapping[str, Path]) -> tuple[dict[str, Any], list[tuple[str, list[Any]]]]:
    """The task, and for each query all documents as (id, score), the best first."""
    task = json.loads((mounts["/in"] / "task.json").read_bytes())
    corpus = lines(mounts, "corpus.jsonl")
    assert (task["documents"], task["queries"]) == (
        len(corpus),
        len(lines(mounts, "queries.jsonl")),
    )
    found = []
    for query in lines(mounts, "queries.jsonl"):
        scored = [(doc["_id"], numbers(doc["text"], query["text"])) for doc in corpus]
        found.append((query["_id"], sorted(scored, key=lambda pair: (-pair[1], pair[0]))))
    return task, found


def vectors(mounts: Mapping[str, Path]) -> None:
    task, found = answers(mounts)
    put(mounts, [{"query_id": query, "ranking": best[: task["top_k"]]} for query, best in found])


def fused(mounts: Mapping[str, Path]) -> None:
    """Reciprocal rank fusion of the vectors with a list by document id."""
    task, found = answers(mounts)
    rows = []
    for query, best in found:
        lists = {
            "vector": best,
            "fts": sorted((name, -float(n)) for n, (name, _) in enumerate(best)),
        }
        ranks = {
            part: {name: place for place, (name, _) in enumerate(entries, 1)}
            for part, entries in lists.items()
        }
        scores = {name: sum(1 / (60.0 + r[name]) for r in ranks.values()) for name, _ in best}
        top = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[: task["top_k"]]
        of_vector = dict(best)
        evidence = {
            "fts_rank": [ranks["fts"][name] for name, _ in top],
            "vector_rank": [ranks["vector"][name] for name, _ in top],
            "vector_score": [of_vector[name] for name, _ in top],
        }
        rows.append({"query_id": query, "ranking": top, "evidence": evidence})
    put(mounts, rows)


def put(mounts: Mapping[str, Path], rows: list[dict[str, Any]]) -> None:
    text = [json.dumps({"latency_ms": 1.0, "error": None, **row}) + "\n" for row in rows]
    write_rows(mounts, "".join(text))


def after(method: Method, change: Callable[[list[dict[str, Any]]], object]) -> Script:
    """The method, with its rows changed before anybody sees them."""

    def act(mounts: Mapping[str, Path]) -> None:
        method(mounts)
        rows = [
            json.loads(line) for line in (mounts["/out"] / "rows.jsonl").read_text().splitlines()
        ]
        change(rows)
        put(mounts, rows)

    return does(act)


SCRIPTS = {"vector_only": does(vectors), "hybrid": does(fused)}


def engine(**scripts: Script) -> FakeEngine:
    def script(spec: ContainerSpec) -> Script:
        name = spec.command[-1].rpartition(".")[2]
        return {**SCRIPTS, **scripts}[name]

    return FakeEngine(script)


def run(folder: Path, made: FakeEngine, *methods: str) -> Sandbox:
    """Seal a run of methods of the dense image, with what it declares of them."""
    box = sandbox(folder)
    head, _, _ = box.manifest.read_text().partition("methods:")
    entries = "".join(f"  - {{name: {name}, image: dense}}\n" for name in methods or METHODS)
    box.manifest.write_text(f"{head}methods:\n{entries}")
    box.run(engine=made)
    return box


def verified(
    box: Sandbox, open_engine: Callable[[], Engine], *, queries: int = 5, **changes: Any
) -> VerifyReport:
    expected, cancel = protocol(), changes.pop("cancel", CancelToken())
    trust: Trust = TRUST
    request = VerifyRequest(
        bundle=box.out / "bundle", protocol_id=expected.protocol_id, protocol=expected,
        trust=trust, data_root=DATA_ROOT,
    )  # fmt: skip
    report = verify_bundle(request)
    host = Host(open_engine=open_engine, open_cgroups=lambda _info: FakeCgroups(), patience_s=0.2)
    return check_embeddings(
        EmbeddingRequest(verify=request, queries=queries, **changes), report, host=host,
        reporter=make_reporter("quiet", io.StringIO()), cancel=cancel,
    )  # fmt: skip


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return run(tmp_path_factory.mktemp("honest") / "box", engine())


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whatever happens, no temporary folder is left."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    yield
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_honest_bundle_comes_out_identical_on_part_of_its_inputs(box: Sandbox) -> None:
    made = engine()
    seen: list[dict[str, Any]] = []

    def look(spec: ContainerSpec) -> Script:
        mounts = {mount.target: mount.source for mount in spec.mounts}
        assert list(mounts["/cache"].iterdir()) == []
        seen.append({name: lines(mounts, f"{name}.jsonl") for name in ("queries", "corpus")})
        seen[-1]["task"] = json.loads((mounts["/in"] / "task.json").read_bytes())
        seen[-1]["command"] = spec.command
        return SCRIPTS[spec.command[-1].rpartition(".")[2]]

    made = FakeEngine(look)
    report = verified(box, lambda: made)
    assert report.faults == ()
    assert report.embeddings.holds is True
    assert report.embeddings.detail == "5 queries x 2 methods, 100 scores recomputed: identical"
    document = report.as_dict()["embeddings"]
    assert (document["tolerance"], document["units"][0]["scores"]) == (1e-9, 50)
    plan = json.loads((box.out / "bundle" / "plan.json").read_bytes())
    for entry, unit, method in zip(seen, document["units"], plan["methods"], strict=True):
        assert {query["_id"] for query in entry["queries"]} == set(unit["queries"])
        assert all(set(query) == {"_id", "text"} for query in entry["queries"])
        assert 10 <= len(entry["corpus"]) <= 50
        assert entry["task"]["top_k"] == len(entry["corpus"])
        assert entry["task"]["config"] == method["config"]
        assert list(entry["command"]) == method["command"]
    assert made.containers({}) == ()


def test_every_query_in_small_parts_comes_out_the_same(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.embedding_check.MAX_SCORES", 300)
    made = engine()
    report = verified(box, lambda: made, queries=1000)
    assert report.embeddings.detail == "25 queries x 2 methods, 500 scores recomputed: identical"
    assert len(made.specs) > 4


def nudged(rows: list[dict[str, Any]]) -> None:
    rows[7]["ranking"][0][1] += 1e-6


def lifted(rows: list[dict[str, Any]]) -> None:
    """The last document of every row becomes the first."""
    for row in rows:
        row["ranking"][-1][1] = row["ranking"][0][1] + 0.5


def lied(rows: list[dict[str, Any]]) -> None:
    rows[3]["evidence"]["vector_score"][0] += 1e-6


def stripped(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        del row["evidence"]


def exchanged(rows: list[dict[str, Any]]) -> None:
    """Documents that are not the best ones by vectors are said to be, and fusion follows."""
    for row in rows:
        evidence = row["evidence"]
        order = sorted(evidence["vector_rank"], reverse=True)
        pairs = sorted(zip(evidence["vector_rank"], range(len(order)), strict=True))
        for rank, (_, place) in zip(order, pairs, strict=True):
            evidence["vector_rank"][place] = rank
        for place, entry in enumerate(row["ranking"]):
            ranks = (evidence["fts_rank"][place], evidence["vector_rank"][place])
            entry[1] = sum(1 / (60.0 + rank) for rank in ranks)
        del evidence["vector_score"]
        evidence["vector_score"] = [None] * len(row["ranking"])


@pytest.mark.parametrize(
    ("name", "method", "change", "words"),
    [
        ("vector_only", vectors, nudged, "recomputed 0."),
        ("vector_only", vectors, lifted, "recomputed 0."),
        ("hybrid", fused, lied, "recomputed 0."),
        ("hybrid", fused, stripped, "in one of the sealed and recomputed rows only"),
        ("hybrid", fused, exchanged, "before it has 0."),
    ],
)
def test_a_planted_score_is_found_and_named(
    tmp_path: Path, name: str, method: Method, change: Callable[[Any], None], words: str
) -> None:
    forged = run(tmp_path / "box", engine(**{name: after(method, change)}))
    report = verified(forged, engine, queries=25)
    assert report.recomputed.holds is True  # nothing but the engine finds it
    assert report.embeddings.holds is False
    assert {fault.code for fault in report.faults} == {CODE}
    fault = report.faults[0]
    assert fault.message.startswith(f"method {name}, dataset quickstart-mini, query '")
    assert words in fault.message
    row = (forged.out / "bundle" / fault.file).read_text().splitlines()[(fault.line or 0) - 1]
    assert f"query '{json.loads(row)['query_id']}'" in fault.message


def test_rows_changed_afterwards_and_sealed_again_with_a_valid_key(
    box: Sandbox, tmp_path: Path
) -> None:
    shutil.copytree(box.folder, tmp_path / "copy")
    forged = replace(box, folder=tmp_path / "copy")
    bundle = forged.out / "bundle"
    rows = bundle / "rows/vector_only/quickstart-mini/part-00000.jsonl"
    scores = bundle / "scores/vector_only/quickstart-mini.csv"
    first = json.loads(rows.read_text().splitlines()[0])["ranking"][0][1]
    for file in (rows, scores):
        file.write_text(file.read_text().replace(repr(first), repr(first + 1e-4)))
    sealed_again(bundle)
    report = verified(forged, engine, queries=25)
    assert report.recomputed.holds is True
    (fault,) = report.faults
    assert f"sealed {first + 1e-4!r}, recomputed {first!r}" in fault.message


def test_within_the_tolerance_of_the_protocol_a_score_may_move(
    box: Sandbox, tmp_path: Path
) -> None:
    def moved(rows: list[dict[str, Any]]) -> None:
        rows[0]["ranking"][0][1] += 2e-10

    report = verified(box, lambda: engine(vector_only=after(vectors, moved)))
    assert report.faults == ()
    assert report.embeddings.holds is True
    assert "1 moved, by at most 2e-10, within the protocol's 1e-09" in report.embeddings.detail


def test_fusion_is_checked_without_an_engine(tmp_path: Path) -> None:
    def better(rows: list[dict[str, Any]]) -> None:
        rows[2]["ranking"][0][1] *= 1.01

    forged = run(tmp_path / "box", engine(hybrid=after(fused, better)), "hybrid")
    report = forged.verify()
    (fault,) = report.faults
    assert (fault.code, fault.line) == ("bundle.fusion-differs", 3)
    assert "and its ranks give 0.0" in fault.message
    assert report.embeddings.holds is None
    assert report.embeddings.detail.startswith("not asked for")


def test_what_does_not_verify_is_not_executed(box: Sandbox, tmp_path: Path) -> None:
    shutil.copytree(box.folder, tmp_path / "copy")
    broken = replace(box, folder=tmp_path / "copy")
    (broken.out / "bundle" / "results.json").write_bytes(b"{}")
    report = verified(broken, _no_engine)
    assert report.embeddings.holds is None
    assert report.embeddings.detail == "not looked at: what does not verify is not executed"


def _no_engine() -> Engine:
    raise EngineError("engine.not-found", "no container engine", fix="start one")


def test_what_a_host_lacks_is_told(box: Sandbox) -> None:
    with pytest.raises(EngineError, match="no container engine"):
        verified(box, _no_engine)
    with pytest.raises(ImageError) as absent:
        verified(box, lambda: FakeEngine({}, images=[]))
    assert absent.value.code == "image.absent"
    assert "sealbench images build dense" in absent.value.fix
    with pytest.raises(EngineError) as lost:
        dead = engine()
        dead.die()
        verified(box, lambda: dead)
    assert lost.value.code == "engine.lost"


def test_a_method_without_its_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "models" / "other").mkdir(parents=True)
    (tmp_path / "models" / "other" / "weights").write_text("w")
    (tmp_path / "models" / "other" / "weights").chmod(0o644)
    digest = read_model(tmp_path / "models" / "other").digest
    box = sandbox(tmp_path / "box")
    head, _, _ = box.manifest.read_text().partition("methods:")
    pin = f"models: [{{name: other, revision: {'ab' * 20}, digest: '{digest}'}}]"
    entry = f"  - {{name: mounted, image: dense, method: vector_only, {pin}}}\n"
    box.manifest.write_text(f"{head}methods:\n{entry}")
    box.run(engine=engine(), models_root=tmp_path / "models")
    with pytest.raises(DataError) as lack:
        verified(box, _no_engine)
    assert lack.value.code == "data.no-model"
    assert "other (abababababab)" in lack.value.message
    report = verified(box, engine, models_root=tmp_path / "models")
    assert report.embeddings.detail == "5 queries x 1 method, 50 scores recomputed: identical"


def test_a_bundle_without_vectors_does_not_pass(tmp_path: Path) -> None:
    plain = sandbox(tmp_path / "box", "overlap")
    plain.run()
    report = verified(plain, _no_engine)
    assert report.faults == ()
    assert report.embeddings.holds is None
    assert "no ok unit of an executed method declares vectors" in report.embeddings.detail


def test_a_container_that_fails_or_is_stopped_is_no_pass_and_no_fault(box: Sandbox) -> None:
    crash = does(lambda _mounts: None, exit_code=3)
    report = verified(box, lambda: engine(vector_only=crash))
    assert (report.faults, report.embeddings.holds) == ((), None)
    assert "vector_only on quickstart-mini: not computed again, crashed" in report.embeddings.detail
    assert report.embeddings.units[1].scores == 50
    cancel, made = CancelToken(), engine()
    cancel.cancel()
    report = verified(box, lambda: made, cancel=cancel)
    assert (report.faults, report.embeddings.holds) == ((), None)
    assert made.specs == []


def test_a_query_that_fails_now_and_did_not_then_is_a_fault(box: Sandbox) -> None:
    def failed(rows: list[dict[str, Any]]) -> None:
        rows[0].update(ranking=[], error="Broken")

    report = verified(box, lambda: engine(vector_only=after(vectors, failed)))
    (fault,) = report.faults
    assert "sealed with a ranking, and now it fails: 'Broken'" in fault.message


def test_the_image_declares_what_the_check_goes_by() -> None:
    declared = load_locks(local=None).published.methods["dense"]
    for name in METHODS:
        assert declared[name].declares["mode"] == name
        assert declared[name].declares["dimensions"] == 384
    assert PROTOCOL.exists()
