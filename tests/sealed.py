"""Whole runs on the fake engine: real manifest, protocol, data, rows, scores and bundle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runner.bundle import dsse
from runner.bundle.manifest import FileEntry, parse_manifest
from runner.bundle.paths import CRATE
from runner.bundle.rocrate import crate, run_info
from runner.bundle.statement import build_statement, parse_statement
from runner.canonical import canonical_bytes
from runner.engine.api import ContainerSpec
from runner.engine.fake import NEVER, FakeEngine, Script, Step
from runner.engine.fake_cgroups import FakeCgroups
from runner.keys import SigningKey
from runner.plan_document import plan_from_document
from runner.progress import Reporter, make_reporter
from runner.protocol.load import Protocol, load_protocol
from runner.run import Host, RunOptions, RunResult, run_manifest
from runner.signals import CancelToken
from runner.trust import Trust, explicit
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle

ROOT = Path(__file__).resolve().parent.parent
PROTOCOL = ROOT / "manifests" / "benchmarks" / "quickstart-v1.protocol.json"
DATA_ROOT = ROOT / "manifests" / "data"
KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([9]) * 32))
TRUST = explicit([KEY.public])
IMAGE = "sha256:" + "ab" * 32

Method = Callable[[Mapping[str, Path]], None]


def protocol() -> Protocol:
    return load_protocol(PROTOCOL)


def overlap(mounts: Mapping[str, Path]) -> None:
    """A method: documents by the number of words that they share with the query."""
    lines = [json.loads(line) for line in _text(mounts, "corpus.jsonl")]
    corpus = {doc["_id"]: set(f"{doc['title']} {doc['text']}".lower().split()) for doc in lines}
    rows = []
    for query in (json.loads(line) for line in _text(mounts, "queries.jsonl")):
        words = set(query["text"].lower().split())
        scores = sorted(((-len(words & doc), ident) for ident, doc in corpus.items()))[:10]
        ranking = [[ident, float(-score)] for score, ident in scores]
        rows.append(
            {"query_id": query["_id"], "ranking": ranking, "latency_ms": 1.0, "error": None}
        )
    write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))


def backwards(mounts: Mapping[str, Path]) -> None:
    """A method: the first ten documents, whatever was asked."""
    documents = [json.loads(line)["_id"] for line in _text(mounts, "corpus.jsonl")][:10]
    ranking = [[ident, 1.0] for ident in documents]
    rows = [
        {"query_id": json.loads(line)["_id"], "ranking": ranking, "latency_ms": 2.0, "error": None}
        for line in _text(mounts, "queries.jsonl")
    ]
    write_rows(mounts, "".join(json.dumps(row) + "\n" for row in rows))


def write_rows(mounts: Mapping[str, Path], text: str) -> None:
    (mounts["/out"] / "rows.jsonl").write_text(text, encoding="utf-8")


def _text(mounts: Mapping[str, Path], name: str) -> list[str]:
    return (mounts["/in"] / name).read_text(encoding="utf-8").splitlines()


def does(method: Method, **script: object) -> Script:
    """A container that does what the method says and then exits."""
    return Script(steps=(Step(act=method),), exit_after_s=0.05, **script)  # type: ignore[arg-type]  # any member


def sealed_again(bundle: Path) -> None:
    """Make crate, manifest and receipt anew, with the trusted key, for whatever the files are now:
    what somebody does who holds the key and changes rows."""
    listed = parse_manifest((bundle / "manifest.json").read_bytes())
    envelope = (bundle / "receipt.dsse.json").read_bytes()
    _, claims = parse_statement(dsse.verify(envelope, TRUST.public_keys, file="receipt").payload)
    plan = plan_from_document(json.loads((bundle / "plan.json").read_bytes()))
    under = load_protocol(bundle / "protocol.json")
    others = [_entry(bundle, entry) for entry in listed.files if entry.path != CRATE]
    info = run_info(plan, under.title, under.version)
    (bundle / CRATE).write_bytes(canonical_bytes(crate(others, claims, info, signed=True)))
    files = tuple(_entry(bundle, entry) for entry in listed.files)
    manifest = replace(listed, files=files).to_bytes()
    (bundle / "manifest.json").write_bytes(manifest)
    statement = build_statement(hashlib.sha256(manifest).hexdigest(), claims)
    (bundle / "receipt.dsse.json").write_bytes(dsse.sign(statement, KEY))


def _entry(bundle: Path, entry: FileEntry) -> FileEntry:
    data = (bundle / entry.path).read_bytes()
    rows = None if entry.rows is None else data.count(b"\n")
    return replace(entry, size=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=rows)


SCRIPTS = {
    "overlap": does(overlap),
    "backwards": does(backwards),
    "crash": does(lambda _mounts: None, exit_code=3),
    "late": Script(exit_after_s=NEVER, ignores_term=True),
    "liar": does(lambda mounts: write_rows(mounts, '{"query_id": "nobody"}\n')),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A folder with a run manifest over the quickstart's protocol and data."""

    folder: Path
    scripts: Mapping[str, Script]

    @property
    def manifest(self) -> Path:
        return self.folder / "run.yaml"

    def use_protocol(self, document: Mapping[str, object]) -> None:
        """Run under another protocol than the quickstart's."""
        (self.folder / "p" / "protocol.json").write_bytes(canonical_bytes(document))

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def engine(self) -> FakeEngine:
        def script(spec: ContainerSpec) -> Script:
            return self.scripts[spec.command[0]]

        return FakeEngine(script)

    def run(
        self,
        *,
        key: SigningKey | None = KEY,
        engine: FakeEngine | None = None,
        reporter: Reporter | None = None,
        cancel: CancelToken | None = None,
        **options: object,
    ) -> RunResult:
        """Run the manifest and return the result; the bundle lies in ``out``."""
        import io

        made = engine or self.engine()
        chosen = {"data_root": DATA_ROOT, "out": self.out, **options}
        return run_manifest(
            self.manifest,
            RunOptions(key=key, **chosen),  # type: ignore[arg-type]  # checked by the dataclass
            host=Host(
                open_engine=lambda: made,
                open_cgroups=lambda _info: FakeCgroups(),
                patience_s=0.2,
            ),
            reporter=reporter or make_reporter("quiet", io.StringIO()),
            cancel=cancel or CancelToken(),
        )

    def verify(
        self, *, trust: Trust | None = TRUST, labels: bool = True, allow_unsigned: bool = False
    ) -> VerifyReport:
        """Verify what lies in ``out``."""
        expected = load_protocol(self.folder / "p" / "protocol.json")
        return verify_bundle(
            VerifyRequest(
                bundle=self.out / "bundle",
                protocol_id=expected.protocol_id,
                protocol=expected,
                trust=trust,
                data_root=DATA_ROOT if labels else None,
                allow_unsigned=allow_unsigned,
            )
        )


def sandbox(
    folder: Path, *methods: str, extra: str = "", scripts: Mapping[str, Script] | None = None
) -> Sandbox:
    """Write a manifest with one method for each name, which is also its script's name."""
    (folder / "p").mkdir(parents=True)
    (folder / "p" / "protocol.json").write_bytes(PROTOCOL.read_bytes())
    lines = [
        "schema: sealbench/run/v1",
        "name: sandbox",
        "protocol: p/protocol.json",
        "splits: [all]",
        "limits: {wall: 20s, grace: 100ms, memory: 256MiB, output: 1MiB}",
        *extra.splitlines(),
        "methods:",
    ]
    for name in methods:
        lines += [f"  - name: {name}", f"    image: {IMAGE}", f"    command: [{name}]"]
        if name == "late":
            lines += ["    limits: {wall: 300ms}"]
    (folder / "run.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Sandbox(folder=folder, scripts={**SCRIPTS, **(scripts or {})})
