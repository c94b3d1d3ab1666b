"""Whose signature counts: the decision as a table, and files that say two things at once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import trust
from runner.errors import KeyError_
from runner.keys import PublicKey
from runner.trust import KeyRole, KeyStatus, Trust, TrustedKey
from tests.unit.bundle_files import KEY, signing_key

ME = TrustedKey(
    public=KEY.public,
    principal="me@example.org",
    roles=(KeyRole.RUNNER, KeyRole.REVIEWER),
    benchmarks=("tiny-v1", "other-v1"),
    not_before="2026-01-01T00:00:00Z",
    not_after="2026-12-31T23:59:59Z",
)
STOLEN = replace(ME, status=KeyStatus.REVOKED, compromised_at="2026-06-01T00:00:00Z")
REVOKED = replace(ME, status=KeyStatus.REVOKED)
JUNE = "2026-06-15T00:00:00Z"
MAY = "2026-05-15T00:00:00Z"

DECISIONS: list[tuple[str, TrustedKey, dict[str, Any], str]] = [
    ("good", ME, {}, "trust.ok"),
    ("reviewer too", ME, {"role": KeyRole.REVIEWER}, "trust.ok"),
    ("no leaderboard", ME, {"role": KeyRole.LEADERBOARD}, "trust.role"),
    ("second benchmark", ME, {"benchmark": "other-v1"}, "trust.ok"),
    ("another benchmark", ME, {"benchmark": "third-v1"}, "trust.benchmark"),
    ("all benchmarks", replace(ME, benchmarks=("*",)), {"benchmark": "third-v1"}, "trust.ok"),
    ("first moment", ME, {"claimed_time": "2026-01-01T00:00:00Z"}, "trust.ok"),
    ("too early", ME, {"claimed_time": "2025-12-31T23:59:59.999Z"}, "trust.too-early"),
    ("last moment", ME, {"claimed_time": "2026-12-31T23:59:59Z"}, "trust.ok"),
    ("too late", ME, {"claimed_time": "2026-12-31T23:59:59.001Z"}, "trust.too-late"),
    ("no time", ME, {"claimed_time": "yesterday"}, "trust.time"),
    ("local time", ME, {"claimed_time": "2026-06-15T00:00:00+02:00"}, "trust.time"),
    ("revoked", REVOKED, {}, "trust.revoked"),
    ("revoked, whatever is proven", REVOKED, {"proven_time": MAY}, "trust.revoked"),
    ("stolen", STOLEN, {}, "trust.revoked"),
    ("stolen, claims to be older", STOLEN, {"claimed_time": MAY}, "trust.revoked"),
    ("stolen, proven older", STOLEN, {"claimed_time": MAY, "proven_time": MAY}, "trust.ok"),
    ("stolen, proven later", STOLEN, {"claimed_time": MAY, "proven_time": JUNE}, "trust.revoked"),
    (
        "proven older but for another benchmark",
        STOLEN,
        {"proven_time": MAY, "claimed_time": MAY, "benchmark": "third-v1"},
        "trust.benchmark",
    ),
    ("unbounded", replace(ME, not_before=None, not_after=None), {}, "trust.ok"),
]


@pytest.mark.parametrize(("key", "changes", "code"), [row[1:] for row in DECISIONS],
                         ids=[row[0] for row in DECISIONS])  # fmt: skip
def test_decisions(key: TrustedKey, changes: dict[str, Any], code: str) -> None:
    asked: dict[str, Any] = {
        "role": KeyRole.RUNNER, "benchmark": "tiny-v1", "claimed_time": JUNE,
    }  # fmt: skip
    decision = trust.evaluate(Trust(keys=(key,)), KEY.public.raw, **(asked | changes))
    assert (decision.code, decision.trusted) == (code, code == "trust.ok")
    assert decision.principal == "me@example.org"


def test_an_unknown_key_has_no_principal() -> None:
    decision = trust.evaluate(
        Trust(keys=(ME,)), signing_key(2).public.raw, role=KeyRole.RUNNER, benchmark="tiny-v1",
        claimed_time=JUNE,
    )  # fmt: skip
    assert (decision.trusted, decision.code, decision.principal) == (False, "trust.unknown", None)


def test_an_explicit_key_counts_once_and_for_one_role() -> None:
    made = trust.explicit([KEY.public, PublicKey(KEY.public.raw)])
    assert len(made.keys) == 1
    for role, trusted in ((KeyRole.RUNNER, True), (KeyRole.REVIEWER, False)):
        decision = trust.evaluate(
            made, KEY.public.raw, role=role, benchmark="any", claimed_time=JUNE
        )
        assert decision.trusted is trusted


def test_a_file_is_written_read_and_changed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "trust.json"
    trust.add(path, ME)
    other = TrustedKey(public=signing_key(2).public, principal="you@example.org")
    trust.add(path, other)
    assert trust.load(path).keys == (ME, other)
    trust.revoke(path, KEY.public.keyid[:12], compromised_at="2026-06-01T00:00:00Z")
    assert trust.load(path).keys == (STOLEN, other)
    assert trust.load(path).public_keys == (KEY.public, other.public)
    assert [item.name for item in path.parent.iterdir()] == ["trust.json"]


def test_a_key_is_added_once(tmp_path: Path) -> None:
    path = tmp_path / "trust.json"
    trust.add(path, ME)
    before = path.read_bytes()
    with pytest.raises(KeyError_) as caught:
        trust.add(path, replace(ME, principal="someone else"))
    assert caught.value.code in ("trust.duplicate-key", "schema.pattern")
    assert path.read_bytes() == before


@pytest.mark.parametrize("keyid", ["", "short", "0" * 64, KEY.public.keyid[:7]])
def test_revoking_needs_one_key(tmp_path: Path, keyid: str) -> None:
    path = tmp_path / "trust.json"
    trust.add(path, ME)
    with pytest.raises(KeyError_) as caught:
        trust.revoke(path, keyid)
    assert caught.value.code == "trust.keyid"


def document(**changes: Any) -> dict[str, Any]:
    return {"schema": "sealbench/trust/v1", "keys": [ME.as_dict() | changes]}


def written(value: object) -> bytes:
    return json.dumps(value).encode()


SMALL = PublicKey.__new__(PublicKey)
object.__setattr__(SMALL, "raw", (1).to_bytes(32, "little"))
MALFORMED: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"keys:", "document.not-json"),
    "an array": (b"[]", "document.not-json"),
    "duplicate key": (
        written(document()).replace(b'"principal"', b'"principal": "x", "principal"', 1),
        "document.not-json",
    ),
    "NaN": (written(document()).replace(b"null", b"NaN", 1), "document.not-json"),
    "BOM": (b"\xef\xbb\xbf" + written(document()), "document.not-json"),
    "not UTF-8": (b"\xff", "document.not-json"),
    "huge": (b" " * (17 << 20), "document.not-json"),
    "other schema": (written({"schema": "sealbench/trust/v2", "keys": []}), "schema.value"),
    "unknown key": (written(document(colour="red")), "schema.unknown-key"),
    "unknown role": (written(document(roles=["admin"])), "schema.value"),
    "no roles": (written(document(roles=[])), "schema.bound"),
    "principal with spaces": (written(document(principal="a b")), "schema.pattern"),
    "line feed behind a time": (
        written(document(not_after="2026-01-01T00:00:00Z\n")), "schema.pattern",
    ),
    "impossible time": (written(document(not_after="2026-02-30T00:00:00Z")), "trust.time"),
    "compromised yet active": (
        written(document(compromised_at="2026-06-01T00:00:00Z")), "trust.contradiction",
    ),
    "star and more": (written(document(benchmarks=["*", "tiny-v1"])), "trust.benchmarks"),
    "the key twice": (
        written({"schema": "sealbench/trust/v1", "keys": [ME.as_dict(), ME.as_dict()]}),
        "trust.duplicate-key",
    ),
    "no key": (written(document(public_key="none")), "key.malformed"),
    "small-order key": (written(document(public_key=SMALL.pem)), "key.weak"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "code"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_files_are_refused(data: bytes, code: str) -> None:
    with pytest.raises(KeyError_) as caught:
        trust.parse(data)
    assert caught.value.code == code


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyError_) as caught:
        trust.load(tmp_path / "none.json")
    assert caught.value.code == "trust.missing"
    assert str(tmp_path / "none.json") in str(caught.value)


def test_a_bundle_cannot_bring_its_own_judge(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    trust.save(Trust(keys=(ME,)), bundle / "trust.json")
    (tmp_path / "link.json").symlink_to(bundle / "trust.json")
    for path in (bundle / "trust.json", tmp_path / "link.json"):
        with pytest.raises(KeyError_) as caught:
            trust.load(path, not_inside=bundle)
        assert caught.value.code == "trust.inside-bundle"
    trust.save(Trust(keys=(ME,)), tmp_path / "trust.json")
    assert trust.load(tmp_path / "trust.json", not_inside=bundle).keys == (ME,)
