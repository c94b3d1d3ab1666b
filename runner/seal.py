"""Put what a run left behind into a bundle and seal it: the only writer of result files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import __version__
from runner.bundle.manifest import Role
from runner.bundle.parts import JSONL, FileKind
from runner.bundle.rocrate import run_info
from runner.bundle.statement import RunClaims, plan_claims
from runner.bundle.write import LOG, PER_QUERY, SCORES, BundleWriter, SealedBundle
from runner.canonical import canonical_bytes
from runner.claims import FILE as CLAIMS
from runner.claims import Facts, claims_document
from runner.config_freeze import FILE as FREEZE
from runner.config_freeze import unverified_freeze
from runner.engine.api import ImageInfo
from runner.keys import SigningKey
from runner.model import ImagePin, Plan, UnitOutcome
from runner.modules import INDEX, Module
from runner.plan_document import plan_document
from runner.protocol.load import Protocol
from runner.records import outcome_line
from runner.tasks import task_module
from runner.workspace import UnitFiles, stem

RECORDED = FileKind(Role.ARTIFACT, JSONL)
MODULE_INDEX = FileKind(Role.MODULE, "application/json", "module")
MODULE_FILE = FileKind(Role.MODULE, "text/plain")
IMAGES_SCHEMA = "sealbench/images/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealing:
    """All that goes into a bundle beside the files of the units. Times are RFC 3339 UTC."""

    plan: Plan
    protocol: Protocol
    manifest_raw: bytes
    outcomes: Sequence[UnitOutcome]
    results: Mapping[str, Any]
    host: Mapping[str, Any]
    images: Mapping[ImagePin, ImageInfo]
    started: str
    finished: str
    attached: Mapping[str, bytes] = field(default_factory=dict)  # documents of ``write.STANDARD``
    modules: Sequence[Module] = ()  # every one that the plan names, once


def seal(
    sealing: Sealing, files: Mapping[str, UnitFiles], out: Path, key: SigningKey | None
) -> SealedBundle:
    """Write and seal ``out/bundle``; ``files`` maps unit ids to what the units left.

    Raises ``StorageError`` or ``BundleError``; nothing stands under the final name then.
    """
    bundle_id = sealing.plan.run_id.rpartition(":")[2][:12]
    with BundleWriter(out, bundle_id) as writer:
        writer.add_bytes("run.yaml", sealing.manifest_raw)
        writer.add_bytes("plan.json", canonical_bytes(plan_document(sealing.plan)))
        writer.add_bytes("protocol.json", sealing.protocol.raw)
        writer.add_bytes("host.json", canonical_bytes(dict(sealing.host)))
        writer.add_bytes("images.json", canonical_bytes(images_document(sealing)))
        writer.add_bytes("results.json", canonical_bytes(dict(sealing.results)))
        writer.add_bytes(CLAIMS, canonical_bytes(claims_document(_facts(sealing))))
        writer.add_bytes("outcomes.jsonl", b"".join(map(outcome_line, sealing.outcomes)))
        for name, data in sealing.attached.items():
            writer.add_bytes(name, data)
        for path, data in (item for module in sealing.modules for item in module.sealed()):
            writer.add_bytes(path, data, _module_kind(path))
        for record in sealing.outcomes:
            _add_unit(writer, record, files[record.unit.unit_id], _rows_kind(sealing, record))
        protocol = sealing.protocol
        info = run_info(sealing.plan, protocol.title, protocol.version)
        return writer.seal(claims_of(sealing), key=key, info=info)


def _facts(sealing: Sealing) -> Facts:
    record = sealing.attached.get(FREEZE)
    return Facts(
        plan=sealing.plan,
        protocol=sealing.protocol,
        outcomes=sealing.outcomes,
        host=sealing.host,
        freeze=None if record is None else unverified_freeze(record, file=FREEZE),
    )


def claims_of(sealing: Sealing) -> RunClaims:
    """What the signature binds."""
    runner, engine = sealing.host["runner"], sealing.host["engine"]
    return RunClaims(
        **plan_claims(sealing.plan),
        benchmark_version=sealing.protocol.version,
        datasets={entry.name: entry.fingerprint for entry in sealing.protocol.datasets},
        source_commit=runner["source_commit"],
        source_dirty=runner["dirty"],
        runner_version=__version__,
        engine_version=engine and f"{engine['name']} {engine['version']}",
        runtime_version=engine and f"{engine['runtime']} {engine['runtime_version']}",
        started=sealing.started,
        finished=sealing.finished,
    )


def images_document(sealing: Sealing) -> dict[str, Any]:
    """images.json: every image as pinned, and as the engine's store had it."""
    entries = []
    for pin, image in sealing.images.items():
        entries.append(
            {
                "name": pin.name,
                "image_id": pin.image_id or image.image_id,
                "manifest_digest": pin.manifest_digest,
                "repository": pin.repository,
                "platform": pin.platform,
                "published": pin.published,
                "methods": [method.name for method in sealing.plan.methods if method.image == pin],
                "size_bytes": image.size_bytes,
                "inputs_sha256": _digest_label(image, "sealbench.inputs"),
            }
        )
    return {"schema": IMAGES_SCHEMA, "images": sorted(entries, key=lambda e: str(e["name"]))}


def _digest_label(image: ImageInfo, name: str) -> str | None:
    """A label that claims to be a digest; anybody's image may carry anything under that name."""
    value = image.labels.get(name, "")
    return value if re.fullmatch(r"sha256:[0-9a-f]{64}", value) else None


def _rows_kind(sealing: Sealing, record: UnitOutcome) -> FileKind:
    task = task_module(sealing.protocol.dataset(record.unit.dataset).task)
    return FileKind(Role.ROWS, JSONL, task.ROW_KIND)


def _module_kind(path: str) -> FileKind:
    return MODULE_INDEX if path.endswith(f"/{INDEX}") else MODULE_FILE


def _add_unit(
    writer: BundleWriter, record: UnitOutcome, files: UnitFiles, rows_kind: FileKind
) -> None:
    method, name = record.unit.method, stem(record.unit)
    for part in files.parts():
        writer.add_file(f"rows/{method}/{name}/{part.name}", part, rows_kind)
    if files.scores.exists():
        writer.add_file(f"scores/{method}/{name}.csv", files.scores, SCORES)
    if files.per_query.exists():
        writer.add_file(f"per-query/{method}/{name}.csv", files.per_query, PER_QUERY)
    if files.recording.exists():
        writer.add_file(f"artifacts/{method}/{name}.jsonl", files.recording, RECORDED)
    for stream, path in (("stdout", files.stdout), ("stderr", files.stderr)):
        if path.exists():
            writer.add_file(f"logs/{method}/{name}.{stream}.log", path, LOG)
