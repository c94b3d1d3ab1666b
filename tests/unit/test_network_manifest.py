"""What a manifest may say about hosts, secrets and recordings, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.canonical import canonical_bytes
from runner.errors import BundleError, KeyError_
from runner.ids import given_to, method_id
from runner.manifest import RunManifest, lint_run_manifest, load_run_manifest
from runner.model import NetworkPolicy, Plan
from runner.plan import build_plan, plan_document, plan_from_document
from runner.plan_text import render_plan
from runner.secret_refs import Secret, SecretRef, load_secrets
from tests.unit.manifest_samples import AMD64, PROTOCOL, locks

VALUE = "sk-something-long-and-secret"


def write(folder: Path, extra: str) -> Path:
    text = (
        "schema: sealbench/run/v1\nname: toy\nprotocol: toy.json\nsplits: [all]\n"
        "methods:\n  - name: okapi\n    image: lexical\n" + extra
    )
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def faults(folder: Path, extra: str) -> list[tuple[str, int | None]]:
    _, found = lint_run_manifest(write(folder, extra))
    return [(error.code, error.where.line if error.where else None) for error in found]


def planned(manifest: RunManifest) -> Plan:
    return build_plan(manifest, PROTOCOL, locks(), AMD64)


def test_nothing_is_allowed_by_default(tmp_path: Path) -> None:
    plan = planned(load_run_manifest(write(tmp_path, "")))
    assert plan.methods[0].network is None
    assert not {"network", "secrets", "recordings"} & plan_document(plan)["methods"][0].keys()


def test_allow_list_is_canonical_and_part_of_the_method(tmp_path: Path) -> None:
    extra = "    network: {allow: ['LLM.example.org.', '[::1]:8080'], bytes: 1MiB}\n"
    manifest = load_run_manifest(write(tmp_path, extra))
    policy = NetworkPolicy(allow=("[::1]:8080", "llm.example.org:443"), max_bytes=1 << 20)
    assert manifest.methods[0].network == policy
    plan, without = planned(manifest), planned(load_run_manifest(write(tmp_path, "")))
    (method,) = plan.methods
    assert method.network == policy
    assert method.method_id != without.methods[0].method_id
    pin = method.pin
    given = given_to(policy)
    assert method.method_id == method_id(
        pin, method.command, method.config, cache=False, given=given
    )
    other = given_to(NetworkPolicy(allow=("other.example.org:443",)))
    assert method.method_id != method_id(
        pin, method.command, method.config, cache=False, given=other
    )
    assert plan_from_document(plan_document(plan)) == plan
    assert "[::1]:8080, llm.example.org:443 (1MiB a unit)" in render_plan(plan)


@pytest.mark.parametrize(
    "host",
    [
        "*.example.org", "https://example.org", "example.org/path", "user@example.org",
        "example.org:0", "example.org:65536", "example.org:x", "169.254.169.254", "[fe80::1]:80",
        "0.0.0.0:80", "224.0.0.1", "127.1", "2130706433", "0x7f000001", "::1", "[::1", "-a.org",
        "a..org", "exämple.org", "[::ffff:169.254.169.254]:80", "[fe80::1%eth0]:80", "",
    ],
)  # fmt: skip
def test_hosts_that_cannot_be_allowed(tmp_path: Path, host: str) -> None:
    extra = f"    network:\n      allow:\n        - ok.example.org\n        - {json.dumps(host)}\n"
    ((code, line),) = faults(tmp_path, extra)
    assert code in {"manifest.bad-host", "schema.bound"}
    assert line == 11


def test_host_named_twice(tmp_path: Path) -> None:
    extra = "    network: {allow: [a.example.org, 'A.example.org:443']}\n"
    assert faults(tmp_path, extra) == [("manifest.duplicate", 8)]


@pytest.mark.parametrize(
    "secrets",
    ["{api_key: {env: X}}", "{KEY: {env: X, file: y}}", "{KEY: {}}", "{KEY: sk-123}",
     "{KEY: {value: x}}", "{KEY: {env: 'A B'}}", "{KEY: {file: /etc/key}}"],
)  # fmt: skip
def test_bad_secrets(tmp_path: Path, secrets: str) -> None:
    found = faults(tmp_path, f"    secrets: {secrets}\n")
    assert found
    assert all(line == 8 for _, line in found)


def test_secrets_are_references(tmp_path: Path) -> None:
    extra = "    secrets: {KEY: {file: keys/llm.key}, OTHER: {env: SOME_VARIABLE}}\n"
    manifest = load_run_manifest(write(tmp_path, extra))
    assert manifest.methods[0].secrets == (
        SecretRef(name="KEY", file=tmp_path / "keys/llm.key"),
        SecretRef(name="OTHER", env="SOME_VARIABLE"),
    )
    plan, without = planned(manifest), planned(load_run_manifest(write(tmp_path, "")))
    assert plan.methods[0].secrets == ("KEY", "OTHER")
    assert plan.methods[0].method_id == without.methods[0].method_id
    assert plan_from_document(plan_document(plan)) == plan
    assert b"llm.key" not in canonical_bytes(plan_document(plan))


def test_secret_values(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(VALUE + "\n")
    file.chmod(0o600)
    refs = (SecretRef(name="KEY", file=file), SecretRef(name="OTHER", env="X"))
    found = load_secrets(refs, {"X": VALUE})
    assert [secret.value for secret in found] == [VALUE.encode()] * 2
    assert VALUE not in repr(found)


@pytest.mark.parametrize(
    ("mode", "content", "code"),
    [
        (0o644, b"x" * 20, "secret.too-open"),
        (0o600, b"short\n", "secret.too-short"),
        (0o600, b"x" * (64 << 10) + b"yy", "secret.too-long"),
        (0o600, b"x" * 20 + b"\0", "secret.too-long"),
        (None, b"", "secret.missing"),
    ],
)
def test_secret_files_that_are_refused(
    tmp_path: Path, mode: int | None, content: bytes, code: str
) -> None:
    file = tmp_path / "key"
    if mode is not None:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(KeyError_) as caught:
        load_secrets([SecretRef(name="KEY", file=file)])
    assert caught.value.code == code
    with pytest.raises(KeyError_, match="SOME_VARIABLE is not set"):
        load_secrets([SecretRef(name="KEY", env="SOME_VARIABLE")], {})


def test_secret_does_not_show() -> None:
    assert VALUE not in repr(Secret(name="KEY", value=VALUE.encode()))


def test_recordings_are_hashed_for_every_dataset(tmp_path: Path) -> None:
    extra = "    recordings: rec/{dataset}.jsonl\n"
    manifest = load_run_manifest(write(tmp_path, extra))
    assert manifest.methods[0].recording_path("toy") == tmp_path / "rec/toy.jsonl"
    (tmp_path / "rec").mkdir()
    names = [entry["name"] for entry in PROTOCOL["datasets"]]
    for name in names:
        (tmp_path / f"rec/{name}.jsonl").write_bytes(b"{}\n")
    plan = planned(manifest)
    assert [file.dataset for file in plan.methods[0].recordings] == names
    assert plan_from_document(plan_document(plan)) == plan
    (tmp_path / f"rec/{names[0]}.jsonl").write_bytes(b"{ }\n")
    assert planned(manifest).methods[0].method_id != plan.methods[0].method_id


@pytest.mark.parametrize(
    "change",
    [
        {"allow": ["b.example:443", "a.example:443"], "max_bytes": 1},
        {"allow": ["A.example:443"], "max_bytes": 1},
        {"allow": ["a.example"], "max_bytes": 1},
        {"allow": ["169.254.169.254:80"], "max_bytes": 1},
        {"allow": ["*:443"], "max_bytes": 1},
    ],
)
def test_forged_plan_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    extra = "    network: {allow: [a.example]}\n"
    document = plan_document(planned(load_run_manifest(write(tmp_path, extra))))
    document["methods"][0]["network"] = change
    with pytest.raises(BundleError):
        plan_from_document(document)
