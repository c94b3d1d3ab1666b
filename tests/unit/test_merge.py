"""Merging partial bundles: what is taken over, what is refused, and that the result verifies."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runner.commands import configuring
from runner.config_freeze import FILE, sign_freeze
from runner.errors import BundleError, SealbenchError, StorageError
from runner.keys import SigningKey
from runner.manifest import load_freeze_manifest, load_run_manifest, parse_run_manifest
from runner.merge import MergeRequest, choose, merge
from runner.merge_manifest import run_yaml
from runner.model import ImportedFile, ModelPin, NetworkPolicy
from runner.plan import Overrides
from runner.protocol.freeze import freeze
from runner.report.benchmark import benchmark_page
from runner.trust import KeyRole, Trust, TrustedKey, explicit
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle
from tests.plagiarism import Bench, bench, three_runs
from tests.sealed import DATA_ROOT, KEY, ROOT, TRUST, Sandbox, protocol, sandbox, sealed_again
from tests.unit.code_files import CONTENT
from tests.unit.test_verify import edit, scale, sign_again
from tests.unit.units import PLAN

OTHER = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([5]) * 32))
STAMP = "2026-01-31T12:00:00.000Z"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def parts(made: Bench) -> dict[str, Path]:
    return three_runs(made)


def request(made: Bench, out: Path, *bundles: Path, name: str | None = None) -> MergeRequest:
    return MergeRequest(
        bundles=bundles,
        protocol=made.protocol,
        data_root=made.data_root,
        trust=TRUST,
        out=out,
        key=KEY,
        name=name,
    )


def test_merged_methods_are_ranked_together_and_verify(
    made: Bench, parts: dict[str, Path], tmp_path: Path
) -> None:
    merge(request(made, tmp_path / "m", parts["first"], parts["second"], name="both"))
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["bundle", "bundle.sigs"]
    report = made.verify(tmp_path / "m")
    assert report.faults == ()
    assert report.recomputed.holds
    results = json.loads((tmp_path / "m/bundle/results.json").read_bytes())
    ranks = {row["method"]: row["rank"] for row in results["aggregate"] if row["metric"] == "auroc"}
    assert ranks == {"alike": 1, "crash": None, "lengths": 2}
    assert {(e["method"], e["other"]) for e in results["comparisons"]} == {("alike", "lengths")}
    note = next(note for note in results["notes"] if note.startswith("merged from"))
    assert "first (sha256:" in note
    assert "second (sha256:" in note
    rows = "rows/alike/toy-pair/part-00000.jsonl"
    assert (tmp_path / "m/bundle" / rows).read_bytes() == (parts["first"] / rows).read_bytes()
    plan = json.loads((tmp_path / "m/bundle/plan.json").read_bytes())
    assert plan["name"] == "both"
    assert [method["name"] for method in plan["methods"]] == ["alike", "crash", "lengths"]


def refused(made: Bench, out: Path, *bundles: Path) -> SealbenchError:
    with pytest.raises(SealbenchError) as caught:
        merge(request(made, out, *bundles))
    assert not (out / "bundle").exists()
    return caught.value


def test_a_method_that_ran_twice_is_not_merged(
    made: Bench, parts: dict[str, Path], tmp_path: Path
) -> None:
    error = refused(made, tmp_path / "m", parts["first"], parts["third"])
    assert error.code == "merge.duplicate-method"


def test_bundles_of_another_protocol_or_split_are_not_merged(
    made: Bench, parts: dict[str, Path], tmp_path: Path
) -> None:
    made.run(tmp_path / "all", "constant", split="all", name="all")
    assert refused(made, tmp_path / "m", parts["first"], tmp_path / "all" / "bundle").code == (
        "merge.other-frame"
    )
    other = bench(tmp_path / "other", split=CONTENT)
    other.run(tmp_path / "o", "constant")
    error = refused(made, tmp_path / "m", parts["first"], tmp_path / "o" / "bundle")
    assert error.code == "merge.unverified"
    assert "protocol" in error.message
    assert refused(made, tmp_path / "m", parts["first"]).code == "merge.nothing"


def test_what_does_not_verify_is_not_merged(
    made: Bench, parts: dict[str, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(parts["second"], copy)
    edit(copy / "results.json", scale(1.1))
    sign_again(copy)
    assert refused(made, tmp_path / "m", parts["first"], copy).code == "merge.unverified"


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sandbox, Sandbox]:
    """Two runs of a retrieval benchmark, a method each, with settings of all kinds."""
    folder = tmp_path_factory.mktemp("apart")
    first = sandbox(folder / "first", "overlap", extra="jobs: 2\nwaive: [pids]")
    config = (
        '    config: {"no": 1, "1e3": "yes \\U0001f600 \\xe9", "list": [1.0e-7, null, "a\\\\b"]}\n'
    )
    text = first.manifest.read_text() + config
    first.manifest.write_text(text + "    waive: [cpus]\n    cache: true\n")
    second = sandbox(folder / "second", "crash", "backwards")
    crash = "    image: sha256:" + "ab" * 32 + "\n    command: [crash]\n"
    text = second.manifest.read_text()
    second.manifest.write_text(text.replace(crash, crash + "    expect: crashed\n", 1))
    first.run()
    second.run()
    return first, second


def joined(first: Path, second: Path, out: Path, **changes: Any) -> None:
    """Merge two bundles under the quickstart's protocol, with the key and trust of the tests."""
    asked = MergeRequest(
        bundles=(first, second), protocol=protocol(), data_root=DATA_ROOT, trust=TRUST, out=out,
        key=KEY,
    )  # fmt: skip
    merge(replace(asked, **changes))


def verified(out: Path, trust: Trust = TRUST) -> VerifyReport:
    report = verify_bundle(
        VerifyRequest(
            bundle=out / "bundle",
            protocol_id=protocol().protocol_id,
            protocol=protocol(),
            trust=trust,
            data_root=DATA_ROOT,
        )
    )
    assert report.faults == ()
    assert report.recomputed.holds
    return report


def test_the_manifest_of_a_merged_bundle_says_all_that_its_plan_does(
    apart: tuple[Sandbox, Sandbox], tmp_path: Path
) -> None:
    first, second = apart
    joined(first.out / "bundle", second.out / "bundle", tmp_path / "m")
    plan = verified(tmp_path / "m").documents.plan  # type: ignore[union-attr]  # it has no faults
    manifest = load_run_manifest(tmp_path / "m" / "bundle" / "run.yaml")
    assert (manifest.name, manifest.seed, manifest.splits) == (plan.name, plan.seed, plan.splits)
    assert (manifest.jobs, plan.jobs, manifest.repeats, manifest.tuned) == (2, 2, 1, False)
    assert [spec.name for spec in manifest.methods] == ["overlap", "crash", "backwards"]
    for spec, method in zip(manifest.methods, plan.methods, strict=True):
        assert spec.config == method.config
        assert (spec.cache, spec.waive, spec.expect) == (method.cache, method.waive, method.expect)
        assert spec.limits == {
            name: getattr(method.limits, name) for name in method.limits.__dataclass_fields__
        }
    overlap = plan.methods[0]
    assert (overlap.cache, overlap.waive) == (True, ("cpus", "pids"))
    assert overlap.config == {"no": 1, "1e3": "yes \U0001f600 \xe9", "list": [1e-07, None, "a\\b"]}


def test_what_would_not_verify_is_not_written(
    apart: tuple[Sandbox, Sandbox], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = apart
    monkeypatch.setattr("runner.merge.run_yaml", lambda *_, **__: first.manifest.read_bytes())
    with pytest.raises(BundleError, match="would not verify") as caught:
        joined(first.out / "bundle", second.out / "bundle", tmp_path / "new")
    assert caught.value.code == "merge.result"
    assert not (tmp_path / "new").exists()
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "notes.txt").write_text("mine")
    with pytest.raises(BundleError):
        joined(first.out / "bundle", second.out / "bundle", kept)
    assert [path.name for path in kept.iterdir()] == ["notes.txt"]
    (kept / "bundle").mkdir()
    with pytest.raises(StorageError):
        joined(first.out / "bundle", second.out / "bundle", kept)


def test_who_merges_need_not_be_trusted_to_run(
    apart: tuple[Sandbox, Sandbox], tmp_path: Path
) -> None:
    first, second = apart
    reviewer = TrustedKey(public=OTHER.public, principal="rea", roles=(KeyRole.REVIEWER,))
    trust = Trust(keys=(*TRUST.keys, reviewer))
    bundles = first.out / "bundle", second.out / "bundle"
    joined(*bundles, tmp_path / "m", trust=trust, key=OTHER)
    verified(tmp_path / "m", explicit([OTHER.public]))
    joined(*bundles, tmp_path / "u", key=None)
    assert not (tmp_path / "u" / "bundle" / "receipt.dsse.json").exists()
    with pytest.raises(BundleError) as caught:
        joined(bundles[0], tmp_path / "u" / "bundle", tmp_path / "x")
    assert caught.value.code == "merge.unverified"


def test_times_of_one_host_stay_and_those_of_several_do_not(
    apart: tuple[Sandbox, Sandbox], tmp_path: Path
) -> None:
    first, second = (box.out / "bundle" for box in apart)
    joined(first, second, tmp_path / "one")
    report = verified(tmp_path / "one")
    claims = json.loads((tmp_path / "one/bundle/claims.json").read_bytes())
    assert [row["method"] for row in claims["timing"]["methods"]] == [
        "overlap", "crash", "backwards",
    ]  # fmt: skip
    assert "other_hosts" not in json.loads((tmp_path / "one/bundle/host.json").read_bytes())
    assert "Compare them within this run only" in benchmark_page(report)
    away = tmp_path / "away"
    shutil.copytree(second, away)
    edit(away / "host.json", lambda host: host["cpu"].update(model="Another CPU"))
    sealed_again(away)
    joined(first, away, tmp_path / "two")
    report = verified(tmp_path / "two")
    claims = json.loads((tmp_path / "two/bundle/claims.json").read_bytes())
    assert claims["timing"] is None
    assert "2 hosts" in claims["timing_reason"]
    (other,) = json.loads((tmp_path / "two/bundle/host.json").read_bytes())["other_hosts"]
    assert other["cpu"]["model"] == "Another CPU"
    assert "timings come from 2 hosts and must not be compared" in report.documents.results["notes"]  # type: ignore[union-attr]
    page = benchmark_page(report)
    assert "times compare within one host only" in page
    assert "Compare them within this run only" not in page


def test_runs_that_two_keys_signed_are_not_taken_for_one_hosts(
    apart: tuple[Sandbox, Sandbox], tmp_path: Path
) -> None:
    other = sandbox(tmp_path / "other", "backwards")
    other.run(key=OTHER)
    trust = explicit([KEY.public, OTHER.public])
    first = apart[0].out / "bundle"
    joined(first, other.out / "bundle", tmp_path / "m", trust=trust)
    assert json.loads((tmp_path / "m/bundle/claims.json").read_bytes())["timing"] is None


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("  - name: theirs\n    precomputed: run.trec\n", "merge.not-merged"),
        ("    config: {depth: 3}\n", "merge.duplicate-name"),
        ("repeats: 2\n", "merge.other-frame"),
    ],
)
def test_what_is_not_merged(
    more: str, code: str, apart: tuple[Sandbox, Sandbox], tmp_path: Path
) -> None:
    box = sandbox(tmp_path / "box", "overlap" if code == "merge.duplicate-name" else "late")
    box.manifest.write_text(box.manifest.read_text() + more)
    (box.folder / "run.trec").write_text("q1 Q0 d1 1 1.0 t\n", encoding="utf-8")
    box.run()
    with pytest.raises(BundleError) as caught:
        joined(apart[0].out / "bundle", box.out / "bundle", tmp_path / "m")
    assert caught.value.code == code
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"network": NetworkPolicy(allow=("llm.example.org:443",))},
        {"recordings": (ImportedFile(dataset="d", sha256="sha256:" + "1" * 64, size=1),)},
    ],
)
def test_what_a_network_answered_is_not_merged(given: dict[str, Any]) -> None:
    plan = replace(PLAN, methods=(replace(PLAN.methods[0], **given),))
    documents = Namespace(plan=plan, outcomes=())
    part: Any = Namespace(documents=documents, folder=Path("bundle"))
    with pytest.raises(BundleError, match="not run in an image on local data alone") as caught:
        choose([part])
    assert caught.value.code == "merge.not-merged"


def test_what_a_method_is_given_is_written_as_a_manifest_reads_it() -> None:
    pin = ModelPin(name="small", revision="a" * 40, digest="sha256:" + "b" * 64)
    method = replace(
        PLAN.methods[0], name="1e5", models=(pin,), requires=("weights",), secrets=("FILED", "SET"),
        module="sha256:" + "c" * 64, limits=replace(PLAN.methods[0].limits, cpus_milli=1500),
    )  # fmt: skip
    entry = """
schema: sealbench/run/v1
name: part
protocol: p.json
splits: [all]
methods:
  - name: "1e5"
    image: code
    method: custom
    secrets: {FILED: {file: keys/one}, SET: {env: KEY}}
"""
    (spec,) = parse_run_manifest(entry.encode(), Path("run.yaml")).methods
    plan = replace(PLAN, name="null", methods=(method,))
    raw = run_yaml(plan, {"1e5": spec}, tuned=True, frozen=False)
    manifest = parse_run_manifest(raw, Path("run.yaml"))
    (found,) = manifest.methods
    assert (manifest.name, manifest.tuned, manifest.config_freeze) == ("null", True, None)
    assert (found.name, found.image, found.method, found.command) == ("1e5", "code", "custom", None)
    assert (found.models, found.requires) == (method.models, method.requires)
    assert found.secrets == spec.secrets
    assert found.module == Path("modules") / ("c" * 32)
    assert found.limits["cpus_milli"] == 1500


def test_runs_with_repeats_are_not_merged(tmp_path: Path) -> None:
    boxes = [sandbox(tmp_path / name, name, extra="repeats: 2") for name in ("overlap", "crash")]
    for box in boxes:
        box.run()
    with pytest.raises(BundleError) as caught:
        joined(boxes[0].out / "bundle", boxes[1].out / "bundle", tmp_path / "m")
    assert caught.value.code == "merge.repeats"


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """Two methods, settled on a calibration split and then run apart on the held-out one."""
    folder = tmp_path_factory.mktemp("frozen")
    text = (ROOT / "manifests" / "benchmarks" / "quickstart-v1.yaml").read_text(encoding="utf-8")
    text += "splits: {algorithm: sha256-id-order, calibration: 10}\n"
    (folder / "halved.yaml").write_text(text.replace("quickstart-v1", "halved-v1"))
    document, _ = freeze(load_freeze_manifest(folder / "halved.yaml"), DATA_ROOT)
    made = sandbox(folder / "made", "overlap", "backwards", extra="tuned: true")
    made.use_protocol(document)
    halves(made, "calibration", "calibration")
    settled, _ = configuring.of_bundle(made.folder / "calibration/bundle", KEY.public, STAMP)
    (made.folder / "freeze.json").write_bytes(sign_freeze(settled, KEY))
    late = replace(settled, frozen_on="2026-02-01T12:00:00.000Z")
    (made.folder / "later.json").write_bytes(sign_freeze(late, KEY))
    for method in ("overlap", "backwards"):
        halves(made, method, "heldout", record="freeze.json", methods=(method,))
    halves(made, "later", "heldout", record="later.json", methods=("backwards",))
    return made


def halves(
    made: Sandbox, out: str, split: str, record: str | None = None,
    methods: tuple[str, ...] | None = None,
) -> None:  # fmt: skip
    made.run(
        out=made.folder / out,
        overrides=Overrides(splits=(split,), methods=methods),
        config_freeze=None if record is None else made.folder / record,
    )


def of_frozen(made: Sandbox, second: str, out: Path) -> MergeRequest:
    from runner.protocol.load import load_protocol

    return MergeRequest(
        bundles=(made.folder / "overlap/bundle", made.folder / second / "bundle"),
        protocol=load_protocol(made.folder / "p" / "protocol.json"),
        data_root=DATA_ROOT,
        trust=TRUST,
        out=out,
        key=KEY,
    )


def test_a_shared_configuration_freeze_is_carried_and_holds(frozen: Sandbox) -> None:
    merge(of_frozen(frozen, "backwards", frozen.out))
    assert (frozen.out / "bundle" / FILE).read_bytes() == (
        frozen.folder / "freeze.json"
    ).read_bytes()
    for labels in (True, False):
        assert frozen.verify(labels=labels).faults == ()
    manifest = load_run_manifest(frozen.out / "bundle" / "run.yaml")
    assert manifest.tuned
    assert manifest.config_freeze == frozen.out / "bundle" / FILE
    claims = json.loads((frozen.out / "bundle" / "claims.json").read_bytes())
    assert claims["config_freeze"]["frozen_on"] == STAMP


def test_parts_that_were_settled_apart_are_not_merged(frozen: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is another one than that of") as caught:
        merge(of_frozen(frozen, "later", tmp_path / "m"))
    assert caught.value.code == "merge.other-freeze"
    assert not (tmp_path / "m").exists()
