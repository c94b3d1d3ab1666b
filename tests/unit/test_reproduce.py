"""Whole re-executions on the fake engine: every verdict, every refusal, every signature."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runner import schemas
from runner.bundle.reviews import signatures_folder
from runner.canonical import canonical_bytes, sha256_label
from runner.clock import SystemClock
from runner.commands.reviewing import verdict_text
from runner.compare import Verdict
from runner.engine.fake import FAKE_INFO, FakeEngine, Script
from runner.engine.fake_cgroups import FakeCgroups
from runner.errors import BundleError, DataError, ImageError, StorageError
from runner.keys import SigningKey
from runner.progress import make_reporter
from runner.reproduce import ReproduceRequest, Reproduction, reproduce
from runner.reproduction import difference_lines
from runner.run import Host
from runner.signals import CancelToken
from runner.trust import KeyRole, KeyStatus, Trust, TrustedKey
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle
from tests.sealed import (
    DATA_ROOT,
    KEY,
    SCRIPTS,
    TRUST,
    Sandbox,
    does,
    overlap,
    protocol,
    sandbox,
    write_rows,
)

REVIEWER = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([11]) * 32))
SECOND = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([12]) * 32))


def trusted(*people: tuple[SigningKey, str]) -> Trust:
    """The submitter, and people who may review."""
    reviewers = tuple(
        TrustedKey(public=key.public, principal=name, roles=(KeyRole.REVIEWER,))
        for key, name in people
    )
    return Trust(keys=(TrustedKey(public=KEY.public, principal="submitter"), *reviewers))


BOTH = trusted((REVIEWER, "reviewer"))


def again(
    box: Sandbox,
    *,
    scripts: Mapping[str, Script] | None = None,
    engine: FakeEngine | None = None,
    cancel: CancelToken | None = None,
    **changes: Any,
) -> Reproduction:
    """Reproduce what lies in the sandbox's ``out``, as another person would."""
    other = replace(box, scripts={**box.scripts, **(scripts or {})})
    made = engine or other.engine()
    bundle = box.out / "bundle"
    request = ReproduceRequest(
        **{
            "bundle": bundle,
            "protocol_id": protocol().protocol_id,
            "trust": TRUST,
            "data_root": DATA_ROOT,
            "key": REVIEWER,
            "out": box.folder / "again",
            "countersign": signatures_folder(bundle),
            **changes,
        }
    )
    return reproduce(
        request,
        host=Host(
            open_engine=lambda: made, open_cgroups=lambda _info: FakeCgroups(), patience_s=0.2
        ),
        reporter=make_reporter("quiet", io.StringIO()),
        cancel=cancel or CancelToken(),
    )


def verified(bundle: Path, trust: Trust, *, reviewers: int = 1) -> VerifyReport:
    expected = protocol()
    return verify_bundle(
        VerifyRequest(
            bundle=bundle,
            protocol_id=expected.protocol_id,
            protocol=expected,
            trust=trust,
            data_root=DATA_ROOT,
            reviewers=reviewers,
        )
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def shifted(mounts: Mapping[str, Path]) -> None:
    """``overlap`` with one score of one row changed."""
    overlap(mounts)
    rows = [json.loads(line) for line in (mounts["/out"] / "rows.jsonl").read_text().splitlines()]
    rows[3]["ranking"][0][1] += 0.25
    write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))


def reversed_rows(mounts: Mapping[str, Path]) -> None:
    """``overlap`` that took longer and answered in another order."""
    overlap(mounts)
    rows = [json.loads(line) for line in (mounts["/out"] / "rows.jsonl").read_text().splitlines()]
    text = "".join(json.dumps({**row, "latency_ms": 99.5}) + "\n" for row in reversed(rows))
    write_rows(mounts, text)


def test_the_same_methods_come_out_identical_and_the_original_is_not_touched(
    tmp_path: Path,
) -> None:
    box = sandbox(tmp_path, "overlap", "backwards", "crash")
    box.run()
    before = contents(box.out / "bundle")
    made = again(box, scripts={"overlap": does(reversed_rows)})
    assert made.verdict is Verdict.IDENTICAL
    assert contents(box.out / "bundle") == before
    assert [one["verdict"] for one in made.document["methods"]] == ["identical"] * 3
    assert list(difference_lines(made.document)) == []
    report = verified(box.out / "bundle", BOTH)
    assert report.faults == ()
    assert report.reproduced.holds is True
    assert [review.principal for review in report.reviews] == ["reviewer"]


def test_the_new_bundle_verifies_and_names_the_original_by_digest(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    original = box.run()
    made = again(box)
    new = verified(
        made.result.bundle.path,
        Trust(keys=(TrustedKey(public=REVIEWER.public, principal="reviewer"),)),
    )
    assert new.faults == ()
    assert new.reproduction is not None
    assert new.reproduction["original"] == {
        "manifest_sha256": original.bundle.manifest_sha256,
        "protocol_id": protocol().protocol_id,
        "run_id": original.bundle.claims.run_id,
        "signer": KEY.public.keyid,
        "started": original.bundle.claims.started,
        "finished": original.bundle.claims.finished,
    }
    assert new.as_dict()["reproduction"]["verdict"] == "identical"
    assert made.result.bundle.claims.run_id == original.bundle.claims.run_id
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == [
        "bundle", "bundle.sigs", "bundle.tar",
    ]  # fmt: skip


def test_one_changed_score_is_different_and_shown_side_by_side(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", "backwards", scripts={"overlap": does(shifted)})
    box.run()
    made = again(box, scripts={"overlap": does(overlap)})
    assert made.verdict is Verdict.DIFFERENT
    verdicts = {one["method"]: one["verdict"] for one in made.document["methods"]}
    assert verdicts == {"overlap": "different", "backwards": "identical"}
    (unit,) = made.document["methods"][0]["units"]
    assert (unit["rows"]["differing"], unit["rows"]["beyond"]) == (1, 1)
    assert unit["rows"]["largest"] == 0.25
    (row,) = unit["rows"]["first"]
    assert row["place"] == "ranking[0]"
    assert json.loads(row["original"])[1] == json.loads(row["reproduction"])[1] + 0.25
    text = "\n".join(difference_lines(made.document))
    assert row["original"] in text
    assert row["reproduction"] in text


def test_a_different_run_is_not_signed_as_reproduced(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap", scripts={"overlap": does(shifted)})
    box.run()
    made = again(box, scripts={"overlap": does(overlap)})
    assert made.review is not None
    report = verified(box.out / "bundle", BOTH)
    assert report.reproduced.holds is False
    assert [item.value for item in report.reviews[0].properties] == [
        "BUNDLE_VALID", "SCORES_RECOMPUTED",
    ]  # fmt: skip


def test_an_outcome_that_changed_is_different(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    made = again(box, scripts={"overlap": SCRIPTS["crash"]})
    assert made.verdict is Verdict.DIFFERENT
    assert made.document["methods"][0]["reason"].startswith("it was ok, and is now crashed")
    assert verified(made.result.bundle.path, trusted_runner(REVIEWER)).faults == ()


def trusted_runner(key: SigningKey) -> Trust:
    return Trust(keys=(TrustedKey(public=key.public, principal="reviewer"),))


def test_an_engine_that_goes_away_leaves_nothing_to_compare(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    made = again(box, scripts={"overlap": Script(engine_dies_on="start")})
    assert made.verdict is Verdict.NOT_COMPARABLE
    assert "engine_error" in made.document["methods"][0]["reason"]


def test_a_reviewer_who_stops_it_says_so(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    cancel = CancelToken()
    cancel.cancel()
    made = again(box, cancel=cancel)
    assert made.verdict is Verdict.NOT_COMPARABLE
    assert made.result.summary.complete is False


def test_a_changed_byte_is_refused_before_anything_runs(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    path = box.out / "bundle" / "rows" / "overlap" / "quickstart-mini" / "part-00000.jsonl"
    path.write_bytes(path.read_bytes().replace(b"1.0", b"2.0", 1))
    engine = box.engine()
    with pytest.raises(BundleError) as caught:
        again(box, engine=engine)
    assert "does not verify" in caught.value.message
    assert engine.calls == []


def test_data_that_changed_by_one_byte_are_refused(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    data = tmp_path / "data" / "quickstart-mini"
    for path in sorted((DATA_ROOT / "quickstart-mini").rglob("*")):
        if path.is_file():
            target = data / path.relative_to(DATA_ROOT / "quickstart-mini")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    corpus = data / "corpus.jsonl"
    corpus.write_bytes(corpus.read_bytes().replace(b"e", b"a", 1))
    with pytest.raises(DataError) as caught:
        again(box, data_root=tmp_path / "data")
    assert caught.value.code == "data.changed"


def test_another_protocol_than_the_expected_one(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    with pytest.raises(BundleError) as caught:
        again(box, protocol_id="sha256:" + "0" * 64)
    assert caught.value.code == "bundle.other-protocol"


def test_an_unsigned_original_needs_to_be_allowed(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run(key=None)
    with pytest.raises(BundleError) as caught:
        again(box)
    assert caught.value.code == "bundle.unsigned"
    made = again(box, allow_unsigned=True)
    assert made.verdict is Verdict.IDENTICAL
    assert made.document["original"]["signer"] is None


def test_a_revoked_or_expired_key_is_refused(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    entry = TrustedKey(public=KEY.public, principal="submitter")
    for changed, code in (
        (replace(entry, status=KeyStatus.REVOKED), "trust.revoked"),
        (replace(entry, not_after="2020-01-01T00:00:00Z"), "trust.too-late"),
    ):
        with pytest.raises(BundleError) as caught:
            again(box, trust=Trust(keys=(changed,)))
        assert caught.value.code == code


def test_an_image_of_another_architecture(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    engine = FakeEngine(info=replace(FAKE_INFO, architecture="arm64"))
    with pytest.raises(ImageError) as caught:
        again(box, engine=engine)
    assert caught.value.code == "image.platform"


def test_an_image_that_is_nowhere(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    with pytest.raises(ImageError) as caught:
        again(box, engine=FakeEngine(images=[]))
    assert caught.value.code == "image.nowhere"
    assert not (tmp_path / "again").exists()


def test_a_taken_output_folder(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    with pytest.raises(StorageError) as caught:
        again(box, out=box.out)
    assert caught.value.code == "storage.occupied"


def test_two_people_are_two_reviewers_and_one_with_two_keys_is_one(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    bundle = box.out / "bundle"
    again(box)
    again(box, key=SECOND, out=tmp_path / "third")
    two = trusted((REVIEWER, "reviewer"), (SECOND, "colleague"))
    assert verified(bundle, two, reviewers=2).reproduced.holds is True
    one = trusted((REVIEWER, "reviewer"), (SECOND, "reviewer"))
    assert verified(bundle, one, reviewers=2).reproduced.holds is False
    assert verified(bundle, two, reviewers=3).reproduced.holds is False


def test_the_submitter_cannot_be_the_reviewer(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    made = again(box, key=KEY)
    assert not made.independent
    assert "the submitter's own and does not count" in verdict_text(made)
    somebody = again(box, out=tmp_path / "third")
    assert somebody.independent
    assert "does not count" not in verdict_text(somebody)
    twice = trusted((REVIEWER, "submitter"))
    assert not again(box, out=tmp_path / "fourth", trust=twice).independent
    own = TrustedKey(
        public=KEY.public, principal="submitter", roles=(KeyRole.RUNNER, KeyRole.REVIEWER)
    )
    report = verified(box.out / "bundle", Trust(keys=(own,)))
    assert report.reviews[0].independent is False
    assert report.reproduced.holds is False


def test_a_clock_that_was_set_back_by_a_day_is_noted_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    past = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    monkeypatch.setattr(SystemClock, "utc_stamp", lambda _self: past)
    made = again(box)
    assert made.verdict is Verdict.IDENTICAL
    (note,) = made.document["notes"]
    assert "one of the two clocks is wrong" in note
    assert verified(box.out / "bundle", BOTH).as_dict()["reviews"][0]["before_run"] is True


def test_a_claimed_verdict_that_does_not_follow_is_a_fault(tmp_path: Path) -> None:
    from runner.reproduction import contradictions

    box = sandbox(tmp_path, "overlap", scripts={"overlap": does(shifted)})
    box.run()
    made = again(box, scripts={"overlap": does(overlap)})
    document = json.loads(json.dumps(made.document))
    plan = made.result.resolved.plan
    assert list(contradictions(document, plan.run_id, plan.protocol_id)) == []
    document["verdict"] = "identical"
    assert len(list(contradictions(document, plan.run_id, plan.protocol_id))) == 1
    document["methods"][0]["verdict"] = "identical"
    assert len(list(contradictions(document, plan.run_id, plan.protocol_id))) == 1
    assert len(list(contradictions(document, plan.protocol_id, plan.protocol_id))) == 2


def test_a_strangers_countersignature_is_ignored_and_no_fault(tmp_path: Path) -> None:
    box = sandbox(tmp_path, "overlap")
    box.run()
    again(box)
    report = verified(box.out / "bundle", TRUST)
    assert (report.faults, report.reviews) == ((), ())
    assert [fault.code for fault in report.ignored] == ["dsse.unknown-signer"]
    revoked = TrustedKey(
        public=REVIEWER.public,
        principal="reviewer",
        roles=(KeyRole.REVIEWER,),
        status=KeyStatus.REVOKED,
    )
    report = verified(box.out / "bundle", Trust(keys=(*TRUST.keys, revoked)))
    assert (report.faults, report.reproduced.holds) == ((), False)
    assert [fault.code for fault in report.ignored] == ["trust.revoked"]


def test_a_move_within_the_declared_tolerance_is_equivalent(tmp_path: Path) -> None:
    document = {**protocol().document, "tolerances": {"row_score": 0.5}}
    box = sandbox(tmp_path, "overlap", scripts={"overlap": does(shifted)})
    raw = canonical_bytes(document)
    (box.folder / "p" / "protocol.json").write_bytes(raw)
    box.run()
    made = again(box, scripts={"overlap": does(overlap)}, protocol_id=sha256_label(raw))
    assert made.verdict is Verdict.EQUIVALENT
    (method,) = made.document["methods"]
    assert "moved, by at most 0.25: within the tolerance" in method["reason"]
    assert made.document["tolerances"]["row_score"] == 0.5


def test_a_bundle_of_another_version_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = sandbox(tmp_path, "overlap")
    made = box.run()
    known = schemas.schema_sha256

    def newer(kind: str) -> str:
        return "0" * 64 if kind == "results" else known(kind)

    monkeypatch.setattr(schemas, "schema_sha256", newer)
    with pytest.raises(BundleError) as caught:
        again(box)
    assert caught.value.code == "bundle.other-version"
    assert made.bundle.claims.runner_version in caught.value.fix
    assert str(made.bundle.claims.source_commit) in caught.value.fix
