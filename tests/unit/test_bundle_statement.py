"""What a receipt binds, and that it can be read one way only."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

from runner.bundle.statement import (
    ImageClaim,
    MethodClaim,
    RunClaims,
    build_statement,
    parse_statement,
    plan_claims,
)
from runner.canonical import canonical_bytes
from runner.errors import BundleError
from runner.model import ImagePin, Limits, MethodPlan, Plan, Unit
from tests.unit.bundle_files import claims

SUBJECT = "0f" * 32
FULL = claims(challenge="leaderboard-2026-01", schemas={"run": "sha256:" + "66" * 32})
PAYLOAD = build_statement(SUBJECT, FULL)
LABEL = "sha256:" + "77" * 32
METHOD = FULL.methods[0]
IMAGE = FULL.images[0]


def edited(*steps: str | int, value: Any) -> bytes:
    """Return the statement with one value replaced (or removed: ``value=None`` at a key)."""
    document = json.loads(PAYLOAD)
    here = document
    for step in steps[:-1]:
        here = here[step]
    here[steps[-1]] = value
    return canonical_bytes(document)


def test_what_was_built_is_what_is_read() -> None:
    assert parse_statement(PAYLOAD) == (SUBJECT, FULL)
    sparse = replace(
        FULL, challenge=None, source_commit=None, source_dirty=None, engine_version=None,
        runtime_version=None, schemas={},
    )  # fmt: skip
    assert parse_statement(build_statement(SUBJECT, sparse)) == (SUBJECT, sparse)


def test_the_models_of_in_toto_and_slsa_read_the_same_statement() -> None:
    """Numbers are doubles to them: none of ours may be one that a double changes."""
    read = json_format.Parse(PAYLOAD, statement_pb2.Statement())
    Statement.copy_from_pb(read).validate()
    assert json_format.MessageToDict(read) == json.loads(PAYLOAD)
    assert {subject.name: dict(subject.digest) for subject in read.subject} == {
        "manifest.json": {"sha256": SUBJECT}
    }
    predicate = json.dumps(json.loads(PAYLOAD)["predicate"])
    provenance = json_format.Parse(predicate, provenance_pb2.Provenance())  # no unknown member
    assert (
        provenance.build_definition.build_type
        == json.loads(predicate)["buildDefinition"]["buildType"]
    )


CHANGES: dict[str, Any] = {
    "benchmark_id": "other-v1",
    "benchmark_version": "1.0.1",
    "protocol_id": LABEL,
    "run_id": LABEL,
    "splits": ("heldout",),
    "seeds": (7, 8),
    "repeats": 2,
    "methods": (replace(METHOD, limits=replace(METHOD.limits, wall_ms=1)),),
    "images": (replace(IMAGE, published=False),),
    "datasets": {"tiny": LABEL},
    "imports": {"theirs/tiny": LABEL},
    "schemas": {"run": LABEL},
    "source_commit": "cd" * 20,
    "source_dirty": True,
    "runner_version": "0.1.1",
    "engine_version": "docker 27.0",
    "runtime_version": "crun 1.0",
    "started": "2026-01-31T12:00:01Z",
    "finished": "2026-01-31T12:00:10Z",
    "challenge": "leaderboard-2026-02",
}


def test_the_table_of_changes_has_every_claim() -> None:
    assert CHANGES.keys() == {item.name for item in fields(RunClaims)}


@pytest.mark.parametrize("name", CHANGES)
def test_every_claim_is_bound(name: str) -> None:
    changed = replace(FULL, **{name: CHANGES[name]})
    payload = build_statement(SUBJECT, changed)
    assert payload != PAYLOAD
    assert parse_statement(payload) == (SUBJECT, changed)


def test_there_is_exactly_one_subject() -> None:
    document = json.loads(PAYLOAD)
    assert document["subject"] == [{"name": "manifest.json", "digest": {"sha256": SUBJECT}}]


BUILD = ("predicate", "buildDefinition")
EXTERNAL = (*BUILD, "externalParameters")
RUN = ("predicate", "runDetails")
DEPENDENCIES = json.loads(PAYLOAD)["predicate"]["buildDefinition"]["resolvedDependencies"]
SUBJECT_ITEM = json.loads(PAYLOAD)["subject"][0]
REFUSED: dict[str, bytes] = {
    "two subjects": edited("subject", value=[SUBJECT_ITEM, SUBJECT_ITEM]),
    "no subject": edited("subject", value=[]),
    "another file": edited("subject", 0, "name", value="results.json"),
    "another digest kind": edited("subject", 0, "digest", value={"sha1": "ab" * 20}),
    "upper case digest": edited("subject", 0, "digest", "sha256", value=SUBJECT.upper()),
    "line feed behind a digest": edited("subject", 0, "digest", "sha256", value=SUBJECT + "\n"),
    "another type": edited("_type", value="https://in-toto.io/Statement/v0.1"),
    "another predicate": edited("predicateType", value="https://slsa.dev/provenance/v0.2"),
    "another build type": edited(*BUILD, "buildType", value="https://example.org/build"),
    "extra field": edited(*EXTERNAL, "note", value="hi"),
    "float": edited(*EXTERNAL, "repeats", value=1.5),
    "negative seed": edited(*EXTERNAL, "seeds", value=[-1]),
    "seed as text": edited(*EXTERNAL, "seeds", value=["7"]),
    "seed twice": edited(*EXTERNAL, "seeds", value=[7, 7]),
    "short challenge": edited(*EXTERNAL, "challenge", value="short"),
    "null challenge": edited(*EXTERNAL, "challenge", value=None),
    "no limits": edited(*EXTERNAL, "methods", 0, "limits", value={}),
    "unbound image": edited(*EXTERNAL, "methods", 0, "image", value=LABEL),
    "dirty as text": edited(*BUILD, "internalParameters", "source", "dirty", value="no"),
    "dependencies reversed": edited(*BUILD, "resolvedDependencies", value=DEPENDENCIES[::-1]),
    "dependency twice": edited(
        *BUILD, "resolvedDependencies", value=[*DEPENDENCIES, DEPENDENCIES[-1]]
    ),
    "protocol missing": edited(*BUILD, "resolvedDependencies", value=DEPENDENCIES[1:]),
    "annotated dataset": edited(
        *BUILD, "resolvedDependencies", 1, "annotations",
        value={"platform": "linux/amd64", "published": True},
    ),
    "unknown dependency": edited(*BUILD, "resolvedDependencies", 1, "name", value="model/x"),
    "another protocol among the dependencies": edited(
        *BUILD, "resolvedDependencies", 0, "digest", "sha256", value="88" * 32
    ),
    "another builder": edited(*RUN, "builder", "id", value="https://example.org/me"),
    "local time": edited(*RUN, "metadata", "startedOn", value="2026-01-31T12:00:00+01:00"),
    "impossible time": edited(*RUN, "metadata", "startedOn", value="2026-02-31T12:00:00Z"),
    "nanoseconds": edited(*RUN, "metadata", "startedOn", value="2026-01-31T12:00:00.123456789Z"),
    "time runs backwards": edited(*RUN, "metadata", "startedOn", value="2027-01-31T12:00:00Z"),
    "white space": PAYLOAD.replace(b":", b": ", 1),
    "duplicate key": PAYLOAD.replace(b'{"_type"', b'{"_type":"x","_type"', 1),
    "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("payload", REFUSED.values(), ids=REFUSED.keys())
def test_any_other_statement_is_refused(payload: bytes) -> None:
    with pytest.raises(BundleError) as caught:
        parse_statement(payload)
    assert caught.value.where is not None
    assert caught.value.where.file == "receipt.dsse.json"


@pytest.mark.parametrize(
    "changes",
    [
        {"finished": "2020-01-01T00:00:00Z"},
        {"started": "yesterday"},
        {"seeds": (1, 1)},
        {"methods": (METHOD, METHOD)},
        {"images": ()},
        {"images": (IMAGE, replace(IMAGE, digest=LABEL))},
        {"protocol_id": "scifact"},
        {"run_id": "sha256:short"},
        {"seeds": (2**53,)},
        {"challenge": "two words"},
    ],
    ids=str,
)
def test_claims_that_make_no_sense_are_never_signed(changes: dict[str, Any]) -> None:
    with pytest.raises(BundleError):
        build_statement(SUBJECT, claims(**changes))


def test_a_plan_decides_most_claims() -> None:
    pin = ImagePin(name="lexical", image_id="sha256:" + "44" * 32)
    method = MethodPlan(
        name="bm25", method_id="sha256:" + "33" * 32, image=pin, command=("x",), config={},
        limits=Limits(),
    )  # fmt: skip
    units = tuple(
        Unit(unit_id=f"u{repeat}", method="bm25", method_id=method.method_id, dataset="tiny",
             repeat=repeat, seed=7 + repeat)
        for repeat in (1, 0)
    )  # fmt: skip
    plan = Plan(
        run_id=FULL.run_id, name="n", benchmark_id="tiny-v1", protocol_id=FULL.protocol_id,
        splits=("all", "heldout"), seed=7, repeats=2, jobs=1, methods=(method,), units=units,
    )  # fmt: skip
    decided = plan_claims(plan)
    assert decided["seeds"] == (7, 8)
    assert decided["methods"] == (
        MethodClaim(
            name="bm25", method_id=method.method_id, image=pin.digest, limits=method.limits
        ),
    )
    assert decided["images"] == (
        ImageClaim(name="lexical", digest=pin.digest, platform="linux/amd64", published=True),
    )
    bound = replace(FULL, **decided)
    assert parse_statement(build_statement(SUBJECT, bound)) == (SUBJECT, bound)
