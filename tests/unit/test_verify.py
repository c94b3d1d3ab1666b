"""What a thief of figures could do, signed again with the trusted key: only recomputing sees it.

Every case starts from a bundle that verifies, changes it in one way, lists the new digests in a new
manifest and signs that properly. A verifier that believed anything stored would accept it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import schemas
from runner.bundle import dsse
from runner.bundle.manifest import parse_manifest
from runner.bundle.statement import build_statement, parse_statement
from runner.canonical import canonical_bytes
from runner.commands.verifying import report_text
from tests.sealed import KEY, TRUST, Sandbox, sandbox

Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    box = sandbox(tmp_path_factory.mktemp("sealed"), "overlap", "backwards", "crash")
    box.run()
    assert box.verify().faults == ()
    return box


@pytest.fixture
def copy(sealed: Sandbox, tmp_path: Path) -> Sandbox:
    shutil.copytree(sealed.folder, tmp_path / "copy")
    return replace(sealed, folder=tmp_path / "copy")


def sign_again(bundle: Path) -> None:
    """List whatever the files are now, and sign that with the key that is trusted."""
    listed = parse_manifest((bundle / "manifest.json").read_bytes())
    files = []
    for entry in listed.files:
        path = bundle / entry.path
        if not path.exists():
            continue
        data = path.read_bytes()
        rows = None if entry.rows is None else data.count(b"\n")
        sha256 = hashlib.sha256(data).hexdigest()
        files.append(replace(entry, size=len(data), sha256=sha256, rows=rows))
    manifest = replace(listed, files=tuple(files)).to_bytes()
    (bundle / "manifest.json").write_bytes(manifest)
    envelope = (bundle / "receipt.dsse.json").read_bytes()
    _, claims = parse_statement(dsse.verify(envelope, TRUST.public_keys, file="r").payload)
    statement = build_statement(hashlib.sha256(manifest).hexdigest(), claims)
    (bundle / "receipt.dsse.json").write_bytes(dsse.sign(statement, KEY))


def edit(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(canonical_bytes(document))


def edit_lines(path: Path, change: Callable[[list[Any]], None]) -> None:
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    change(records)
    path.write_bytes(b"".join(canonical_bytes(record) + b"\n" for record in records))


def results(change: Callable[[Any], None]) -> Change:
    return lambda bundle: edit(bundle / "results.json", change)


def outcomes(change: Callable[[list[Any]], None]) -> Change:
    return lambda bundle: edit_lines(bundle / "outcomes.jsonl", change)


def scale(factor: float) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for row in document["per_dataset"]:
            if row["score"] is not None:
                row["score"] *= factor
        for row in document["aggregate"]:
            if row["mean_score"] is not None:
                for name in ("mean_score", "ci_low", "ci_high"):
                    row[name] *= factor

    return change


def swap_names(document: Any) -> None:
    names = {"overlap": "backwards", "backwards": "overlap"}
    for table in ("per_dataset", "aggregate", "summaries"):
        for row in document[table]:
            row["method"] = names.get(row["method"], row["method"])


def score_the_failed(document: Any) -> None:
    for row in document["per_dataset"]:
        if row["method"] == "crash":
            row.update(score=0.99, eligible=True, outcome="ok", error=None)


def better_rows(bundle: Path) -> None:
    rows = bundle / "rows/backwards/quickstart-mini/part-00000.jsonl"
    rows.write_bytes((bundle / "rows/overlap/quickstart-mini/part-00000.jsonl").read_bytes())


def swap_two_queries(bundle: Path) -> None:
    path = bundle / "rows/overlap/quickstart-mini/part-00000.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines[0]["ranking"], lines[1]["ranking"] = lines[1]["ranking"], lines[0]["ranking"]
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def drop_a_row(bundle: Path) -> None:
    path = bundle / "rows/overlap/quickstart-mini/part-00000.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))


def repeat_a_row(bundle: Path) -> None:
    path = bundle / "rows/overlap/quickstart-mini/part-00000.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[1:], lines[1]]))


def change_scores_csv(bundle: Path) -> None:
    path = bundle / "scores/overlap/quickstart-mini.csv"
    path.write_bytes(path.read_bytes().replace(b",0,", b",1,", 1))


def change_per_query(bundle: Path) -> None:
    path = bundle / "per-query/overlap/quickstart-mini.csv"
    path.write_bytes(path.read_bytes().replace(b",1.0,", b",0.5,", 1))


def empty_scores_csv(bundle: Path) -> None:
    path = bundle / "scores/overlap/quickstart-mini.csv"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


def rename_outcome(records: list[Any]) -> None:
    records[2].update(outcome="ok", reason="all rows")


def shorter_wall(records: list[Any]) -> None:
    records[0]["wall_seconds"] = 0.001


def drop_record(records: list[Any]) -> None:
    del records[1]


def swap_records(records: list[Any]) -> None:
    records[0], records[1] = records[1], records[0]


def other_evidence(records: list[Any]) -> None:
    records[2]["evidence"]["exit_code"] = 0


def more_memory(records: list[Any]) -> None:
    records[0]["limits"]["memory_bytes"] *= 2


def other_config(bundle: Path) -> None:
    edit(bundle / "plan.json", lambda plan: plan["methods"][0]["config"].update(k1=1.5))


def fewer_units(bundle: Path) -> None:
    edit(bundle / "plan.json", lambda plan: plan["units"].pop())


def other_run_yaml(bundle: Path) -> None:
    path = bundle / "run.yaml"
    path.write_bytes(path.read_bytes().replace(b"wall: 20s", b"wall: 21s"))


def other_image(bundle: Path) -> None:
    edit(
        bundle / "images.json",
        lambda doc: doc["images"][0].update(image_id="sha256:" + "cd" * 32),
    )


def claims(change: Callable[[Any], None]) -> Change:
    return lambda bundle: edit(bundle / "claims.json", change)


def cleaner_source(document: Any) -> None:
    dirty = not document["runner"]["dirty"]
    document["runner"].update(dirty=dirty, source_commit="ab" * 20)


def empty_crate(bundle: Path) -> None:
    (bundle / "ro-crate-metadata.json").write_bytes(b"{}")


def emptied(document: Any) -> None:
    document.update(per_dataset=[], aggregate=[], summaries=[])


#: name -> (change, a file that the verifier must name)
CASES: dict[str, tuple[Change, str]] = {
    "all scores scaled alike": (results(scale(1.01)), "results.json"),
    "names swapped": (results(swap_names), "results.json"),
    "a failed method scored": (results(score_the_failed), "results.json"),
    "tables emptied": (results(emptied), "results.json"),
    "notes left out": (results(lambda doc: doc.update(notes=[])), "results.json"),
    "one rank": (results(lambda doc: doc["aggregate"][0].update(rank=2)), "results.json"),
    "one interval": (results(lambda doc: doc["aggregate"][0].update(ci_low=0.9)), "results.json"),
    "latencies": (
        results(lambda doc: doc["summaries"][0]["latency_ms"].update(p95=0.1)),
        "results.json",
    ),
    "another's rows": (better_rows, "results.json"),
    "two rankings swapped": (swap_two_queries, "scores/overlap/quickstart-mini.csv"),
    "a row dropped": (drop_a_row, "rows/overlap/quickstart-mini"),
    "a row repeated": (repeat_a_row, "rows/overlap/quickstart-mini/part-00000.jsonl"),
    "a relevance in the artifact": (change_scores_csv, "scores/overlap/quickstart-mini.csv"),
    "the artifact emptied": (empty_scores_csv, "scores/overlap/quickstart-mini.csv"),
    "an outcome renamed": (outcomes(rename_outcome), "outcomes.jsonl"),
    "a wall time": (outcomes(shorter_wall), "outcomes.jsonl"),
    "a record dropped": (outcomes(drop_record), "outcomes.jsonl"),
    "records swapped": (outcomes(swap_records), "outcomes.jsonl"),
    "evidence": (outcomes(other_evidence), "outcomes.jsonl"),
    "limits of a record": (outcomes(more_memory), "outcomes.jsonl"),
    "a config": (other_config, "plan.json"),
    "a unit not planned": (fewer_units, "plan.json"),
    "the manifest": (other_run_yaml, "run.yaml"),
    "the image": (other_image, "images.json"),
    "a metric of one query": (change_per_query, "per-query/overlap/quickstart-mini.csv"),
    "the queries' figures missing": (
        lambda bundle: (bundle / "per-query/overlap/quickstart-mini.csv").unlink(),
        "per-query/overlap/quickstart-mini.csv",
    ),
    "a boundary left out": (
        claims(lambda doc: doc["boundary"]["does_not_show"].pop()), "claims.json",
    ),
    "an exactness": (
        claims(lambda doc: doc["methods"][0].update(exactness="exact")), "claims.json",
    ),
    "a setting of the claims": (
        claims(lambda doc: doc["methods"][0]["config"].update(k1=9)), "claims.json",
    ),
    "an index": (
        claims(lambda doc: doc["methods"][0]["index"][0].update(documents=9)), "claims.json",
    ),
    "a capability": (
        claims(lambda doc: doc["capabilities"][0].update(methods=["overlap"], because=None)),
        "claims.json",
    ),
    "the claims missing": (lambda bundle: (bundle / "claims.json").unlink(), "claims.json"),
    "the dirty state": (
        lambda bundle: edit(bundle / "host.json", cleaner_source), "host.json",
    ),
    "the crate": (
        empty_crate,
        "ro-crate-metadata.json",
    ),
    "an artifact missing": (
        lambda bundle: (bundle / "scores/overlap/quickstart-mini.csv").unlink(),
        "scores/overlap/quickstart-mini.csv",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_only_recomputing_sees_is_named(copy: Sandbox, name: str) -> None:
    change, file = CASES[name]
    bundle = copy.out / "bundle"
    change(bundle)
    sign_again(bundle)
    report = copy.verify()
    assert file in {fault.file for fault in report.faults}
    assert report.intact.holds is False


@pytest.mark.parametrize(
    "name",
    [
        "names swapped", "a failed method scored", "one rank", "a row dropped", "a row repeated",
        "an outcome renamed", "a record dropped", "a config", "the manifest", "tables emptied",
        "a boundary left out", "an exactness", "an index", "the dirty state", "the claims missing",
    ],
)  # fmt: skip
def test_without_labels_much_is_still_seen(copy: Sandbox, name: str) -> None:
    change, _ = CASES[name]
    change(copy.out / "bundle")
    sign_again(copy.out / "bundle")
    report = copy.verify(labels=False)
    assert report.faults
    assert report.recomputed.holds is None


def test_signing_again_is_itself_no_fault(copy: Sandbox) -> None:
    sign_again(copy.out / "bundle")
    assert copy.verify().faults == ()


def test_any_unsigned_change_is_refused_and_named(copy: Sandbox) -> None:
    target = copy.out / "bundle" / "host.json"
    target.write_bytes(target.read_bytes().replace(b'"x86_64"', b'"riscv64"', 1) + b" ")
    assert "host.json" in {fault.file for fault in copy.verify().faults}


def test_the_reference_validator_agrees(sealed: Sandbox) -> None:
    from runner.verify.bundle import VerifyRequest, verify_bundle
    from tests.sealed import DATA_ROOT, protocol

    report = verify_bundle(
        VerifyRequest(
            bundle=sealed.out / "bundle", protocol_id=protocol().protocol_id, protocol=protocol(),
            trust=TRUST, data_root=DATA_ROOT, reference=True,
        )
    )  # fmt: skip
    assert report.faults == ()


def test_an_independent_review_makes_it_reproduced(copy: Sandbox) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from runner.bundle.reviews import Property, write_review
    from runner.keys import SigningKey
    from runner.trust import KeyRole, Trust, TrustedKey

    reviewer = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32))
    manifest = (copy.out / "bundle" / "manifest.json").read_bytes()
    write_review(
        copy.out / "bundle.sigs", hashlib.sha256(manifest).hexdigest(),
        [Property.BUNDLE_VALID, Property.SCORES_RECOMPUTED, Property.RUN_REPRODUCED],
        time_created="2026-02-01T00:00:00Z", key=reviewer,
    )  # fmt: skip
    trusted = TrustedKey(public=reviewer.public, principal="rita", roles=(KeyRole.REVIEWER,))
    assert copy.verify(trust=Trust(keys=(*TRUST.keys, trusted))).reproduced.holds is True
    assert copy.verify().reproduced.holds is False


def test_a_good_bundle_of_another_version_is_not_called_false(
    copy: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if this verifier's schema of a plan had been edited since."""
    digest = schemas.schema_sha256
    monkeypatch.setattr(
        schemas, "schema_sha256", lambda kind: "0" * 64 if kind == "plan" else digest(kind)
    )
    report = copy.verify()
    assert [fault.code for fault in report.faults] == ["bundle.schema-differs"]
    assert report.recomputed.holds  # what else there is to find is found
    last = report_text(report).splitlines()[-1]
    assert last.startswith("REFUSED: the bundle is of another version of sealbench")
    (copy.out / "bundle" / "host.json").write_bytes(b"{}")
    last = report_text(copy.verify()).splitlines()[-1]
    assert last == "REFUSED: the bundle is not what it claims to be"
