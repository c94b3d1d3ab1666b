"""A small sealed bundle for the tests: every kind of file that a real one has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runner.bundle.manifest import Role
from runner.bundle.parts import JSONL, FileKind
from runner.bundle.rocrate import CrateInfo
from runner.bundle.statement import ImageClaim, MethodClaim, RunClaims
from runner.bundle.write import LOG, SCORES, BundleWriter, SealedBundle
from runner.keys import SigningKey
from runner.model import Limits
from runner.trust import explicit

PROTOCOL_ID = "sha256:" + "11" * 32
RUN_ID = "sha256:" + "22" * 32
ROWS_KIND = FileKind(Role.ROWS, JSONL, "row-retrieval")
INFO = CrateInfo(name="Tiny run", description="Two queries", licence="https://example.org/licence")
ROWS = (
    b'{"query_id":"1","ranking":[["a",2.0],["b",1.0]],"latency_ms":1.5,"error":null}\n',
    b'{"query_id":"2","ranking":[],"latency_ms":null,"error":"out of words"}\n',
)


def signing_key(seed: int = 1) -> SigningKey:
    """Return the same key for the same seed."""
    return SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


KEY = signing_key()
TRUST = explicit([KEY.public])


def allowed_signers(principal: str) -> str:
    """Return the file that ``ssh-keygen -Y verify -f`` wants, for the key of these bundles."""
    return f'{principal} namespaces="sealbench" {KEY.public.openssh()}\n'


def claims(**changes: Any) -> RunClaims:
    """Return the claims of the tiny run."""
    made = RunClaims(
        benchmark_id="tiny-v1",
        benchmark_version="1.0.0",
        protocol_id=PROTOCOL_ID,
        run_id=RUN_ID,
        splits=("all",),
        seeds=(7,),
        repeats=1,
        methods=(
            MethodClaim(
                name="bm25", method_id="sha256:" + "33" * 32, image="sha256:" + "44" * 32,
                limits=Limits(),
            ),
        ),
        images=(
            ImageClaim(
                name="lexical", digest="sha256:" + "44" * 32, platform="linux/amd64", published=True
            ),
        ),
        datasets={"tiny": "sha256:" + "55" * 32},
        source_commit="ab" * 20,
        source_dirty=False,
        runner_version="0.1.0",
        engine_version="docker 20.10.24",
        runtime_version="runc 1.1.5",
        started="2026-01-31T12:00:00Z",
        finished="2026-01-31T12:00:09.5Z",
    )  # fmt: skip
    return replace(made, **changes)


def stage(writer: BundleWriter, rows: Iterable[bytes] = ROWS) -> None:
    """Fill a writer with everything but the seal."""
    for path, data in (
        ("run.yaml", b"schema: sealbench/run/v1\n"),
        ("plan.json", b'{"schema":"sealbench/plan/v1"}'),
        ("protocol.json", b'{"schema":"sealbench/protocol/v1"}'),
        ("outcomes.jsonl", b'{"unit_id":"u"}\n'),
        ("results.json", b'{"aggregate":[],"per_dataset":[]}'),
        ("host.json", b'{"cores":2}'),
        ("images.json", b"{}"),
    ):
        writer.add_bytes(path, data)
    with writer.open_part("rows/bm25/tiny/part-00000.jsonl", ROWS_KIND) as part:
        for row in rows:
            part.write(row)
    writer.add_bytes("scores/bm25/tiny.csv", b"query_id,document_id,relevance,score\n", SCORES)
    writer.add_bytes("logs/bm25/tiny.stdout.log", b"\xff raw \x00 bytes", LOG)
    writer.add_bytes("logs/bm25/tiny.stderr.log", b"", LOG)


def seal(
    parent: Path, *, key: SigningKey | None = KEY, rows: Iterable[bytes] = ROWS, **changes: Any
) -> SealedBundle:
    """Write and seal the tiny bundle below ``parent``."""
    with BundleWriter(parent, "test") as writer:
        stage(writer, rows)
        return writer.seal(claims(**changes), key=key, info=INFO)


def files_of(bundle: Path) -> list[str]:
    """Return the paths of all files in a bundle, sorted."""
    return sorted(str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file())
