"""Countersignatures: strict to read, counted by key, never by the runner for itself."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.bundle import dsse, reviews
from runner.bundle.reviews import (
    MAX_REVIEWS,
    Property,
    Subject,
    read_reviews,
    reproduced_by,
    signatures_folder,
    write_review,
)
from runner.bundle.write import SealedBundle
from runner.canonical import canonical_bytes
from runner.errors import BundleError
from runner.keys import SigningKey
from runner.trust import KeyRole, KeyStatus, Trust, TrustedKey
from tests.unit.bundle_files import KEY, files_of, seal, signing_key

REVIEWER, OTHER = signing_key(2), signing_key(3)
BOTH = (KeyRole.RUNNER, KeyRole.REVIEWER)
RUNNER_ENTRY = TrustedKey(public=KEY.public, principal="runner", roles=BOTH)
REVIEWER_ENTRY = TrustedKey(public=REVIEWER.public, principal="reviewer", roles=(KeyRole.REVIEWER,))
TRUST = Trust(keys=(RUNNER_ENTRY, REVIEWER_ENTRY))
NOW = "2026-02-01T00:00:00Z"
ALL = tuple(Property)


@pytest.fixture
def sealed(tmp_path: Path) -> SealedBundle:
    return seal(tmp_path / "out")


def subject_of(sealed: SealedBundle) -> Subject:
    return Subject(
        manifest_sha256=sealed.manifest_sha256,
        benchmark_id=sealed.claims.benchmark_id,
        runner=KEY.public,
        runner_principal="runner",
    )


def review(sealed: SealedBundle, key: SigningKey = REVIEWER, **changes: Any) -> Path:
    made: dict[str, Any] = {"manifest_sha256": sealed.manifest_sha256, "properties": ALL} | changes
    return write_review(
        signatures_folder(sealed.path), made["manifest_sha256"], made["properties"],
        time_created=changes.get("time_created", NOW), key=key,
    )  # fmt: skip


def codes(sealed: SealedBundle, trust: Trust = TRUST) -> list[str]:
    found, faults = read_reviews(signatures_folder(sealed.path), subject_of(sealed), trust)
    assert found == ()
    return [fault.code for fault in faults]


def test_a_trusted_reviewer_counts_and_no_sealed_byte_changes(sealed: SealedBundle) -> None:
    before = {name: (sealed.path / name).read_bytes() for name in files_of(sealed.path)}
    path = review(sealed)
    assert path.name == f"{REVIEWER.public.keyid[:16]}.dsse.json"
    assert {name: (sealed.path / name).read_bytes() for name in files_of(sealed.path)} == before
    found, faults = read_reviews(signatures_folder(sealed.path), subject_of(sealed), TRUST)
    assert faults == ()
    assert [(item.principal, item.properties, item.independent) for item in found] == [
        ("reviewer", (Property.BUNDLE_VALID, Property.RUN_REPRODUCED, Property.SCORES_RECOMPUTED),
         True)
    ]  # fmt: skip
    assert reproduced_by(found) == 1


def test_the_payload_is_a_simple_verification_result(sealed: SealedBundle) -> None:
    envelope = review(sealed, properties=[Property.BUNDLE_VALID]).read_bytes()
    payload = dsse.verify(envelope, [REVIEWER.public], file="x").payload
    assert json.loads(payload) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "manifest.json", "digest": {"sha256": sealed.manifest_sha256}}],
        "predicateType": "https://in-toto.io/attestation/svr/v0.1",
        "predicate": {
            "verifier": {"id": reviews.VERIFIER_ID},
            "timeCreated": NOW,
            "properties": ["BUNDLE_VALID"],
        },
    }


def test_no_folder_means_no_reviews(sealed: SealedBundle) -> None:
    assert codes(sealed) == []


def test_reproduced_needs_the_property_and_somebody_else(sealed: SealedBundle) -> None:
    review(sealed, KEY)
    review(sealed, REVIEWER, properties=[Property.BUNDLE_VALID, Property.SCORES_RECOMPUTED])
    found, faults = read_reviews(signatures_folder(sealed.path), subject_of(sealed), TRUST)
    assert (len(found), faults, reproduced_by(found)) == (2, (), 0)
    assert {item.principal: item.independent for item in found} == {
        "runner": False, "reviewer": True,
    }  # fmt: skip


def test_the_runner_with_a_second_key_is_still_the_runner(sealed: SealedBundle) -> None:
    review(sealed)
    same_person = Trust(keys=(RUNNER_ENTRY, replace(REVIEWER_ENTRY, principal="runner")))
    found, _ = read_reviews(signatures_folder(sealed.path), subject_of(sealed), same_person)
    assert reproduced_by(found) == 0


def test_a_newer_review_replaces_the_older_one_of_the_same_key(sealed: SealedBundle) -> None:
    review(sealed)
    review(sealed, properties=[Property.BUNDLE_VALID], time_created="2026-03-01T00:00:00Z")
    found, faults = read_reviews(signatures_folder(sealed.path), subject_of(sealed), TRUST)
    assert ([item.time_created for item in found], faults) == (["2026-03-01T00:00:00Z"], ())


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (replace(REVIEWER_ENTRY, public=OTHER.public), "dsse.unknown-signer"),
        (replace(REVIEWER_ENTRY, roles=(KeyRole.RUNNER,)), "trust.role"),
        (replace(REVIEWER_ENTRY, benchmarks=("other-v1",)), "trust.benchmark"),
        (replace(REVIEWER_ENTRY, status=KeyStatus.REVOKED), "trust.revoked"),
        (replace(REVIEWER_ENTRY, not_after="2026-01-31T00:00:00Z"), "trust.too-late"),
        (replace(REVIEWER_ENTRY, not_before="2026-02-02T00:00:00Z"), "trust.too-early"),
    ],
)
def test_reviewers_must_be_trusted_as_such(
    sealed: SealedBundle, entry: TrustedKey, code: str
) -> None:
    review(sealed)
    assert codes(sealed, Trust(keys=(RUNNER_ENTRY, entry))) == [code]


def test_a_review_of_another_bundle_is_refused(sealed: SealedBundle) -> None:
    review(sealed, manifest_sha256="ab" * 32)
    assert codes(sealed) == ["review.subject"]


def test_no_bit_of_a_review_can_be_flipped(sealed: SealedBundle) -> None:
    path = review(sealed)
    good = path.read_bytes()
    for offset in range(0, len(good), 5):
        bad = bytearray(good)
        bad[offset] ^= 1 << offset % 8
        path.write_bytes(bad)
        assert len(codes(sealed)) == 1


def renamed(path: Path) -> None:
    path.rename(path.with_name("0" * 16 + ".dsse.json"))


def copied(path: Path) -> None:
    """One key, two files: it must not count twice."""
    shutil.copy(path, path.with_name("copy.dsse.json"))
    path.unlink()


def linked(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def huge(path: Path) -> None:
    os.truncate(path, 1 << 40)


def other_suffix(path: Path) -> None:
    path.rename(path.with_suffix(".txt"))


def odd_name(path: Path) -> None:
    path.rename(path.parent / os.fsdecode(b"\xff\x1b.dsse.json"))


def receipt(path: Path) -> None:
    shutil.copy(path.parents[2] / "bundle" / "receipt.dsse.json", path)


def reviews_folder_is_a_link(path: Path) -> None:
    path.parent.rename(path.parent.parent / "real")
    path.parent.symlink_to("real")


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (renamed, "review.name"),
        (copied, "review.name"),
        (linked, "bundle.not-regular"),
        (fifo, "bundle.not-regular"),
        (folder, "bundle.not-regular"),
        (huge, "bundle.too-large"),
        (other_suffix, "review.name"),
        (odd_name, "review.name"),
        (receipt, "review.name"),
        (reviews_folder_is_a_link, "review.folder"),
    ],
)
def test_odd_files_are_faults(
    sealed: SealedBundle, spoil: Callable[[Path], None], code: str
) -> None:
    spoil(review(sealed))
    assert codes(sealed) == [code]


def test_a_receipt_under_the_runners_name_is_no_review(sealed: SealedBundle) -> None:
    path = review(sealed, KEY)
    shutil.copy(sealed.path / "receipt.dsse.json", path)
    assert codes(sealed) == ["schema.unknown-key"] or codes(sealed)[0].startswith("schema.")


def test_a_flood_of_files_is_not_read(sealed: SealedBundle) -> None:
    parent = review(sealed).parent
    for number in range(MAX_REVIEWS):
        (parent / f"{number:016x}.dsse.json").write_bytes(b"")
    assert codes(sealed) == ["review.too-many"]


@pytest.mark.parametrize(
    "predicate",
    [
        {"properties": ["RUN_REPRODUCED", "BUNDLE_VALID"]},
        {"properties": ["BUNDLE_VALID", "BUNDLE_VALID"]},
        {"properties": []},
        {"properties": ["EVERYTHING_FINE"]},
        {"timeCreated": "2026-02-30T00:00:00Z"},
        {"timeCreated": "now"},
        {"verifier": {"id": "no uri"}},
        {"policy": "mine"},
    ],
    ids=str,
)
def test_other_predicates_are_refused(sealed: SealedBundle, predicate: dict[str, Any]) -> None:
    path = review(sealed)
    payload = json.loads(dsse.verify(path.read_bytes(), [REVIEWER.public], file="x").payload)
    payload["predicate"] |= predicate
    path.write_bytes(dsse.sign(canonical_bytes(payload), REVIEWER))
    assert len(codes(sealed)) == 1


@pytest.mark.parametrize(
    "changes", [{"properties": []}, {"time_created": "now"}, {"manifest_sha256": "short"}], ids=str
)
def test_what_could_not_be_read_is_not_written(
    sealed: SealedBundle, changes: dict[str, Any]
) -> None:
    with pytest.raises(BundleError):
        review(sealed, **changes)
    assert not (signatures_folder(sealed.path) / "reviews").exists()
