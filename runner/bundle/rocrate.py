"""ro-crate-metadata.json: the bundle described for archives that know RO-Crate.

Plain JSON-LD after RO-Crate 1.1 and Process Run Crate 0.5. It lists what the manifest lists and
says nothing that a verifier relies on. No person is named: nobody's identity goes into a bundle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runner.bundle.manifest import FileEntry, Role
from runner.bundle.paths import CRATE, MANIFEST, RECEIPT
from runner.bundle.statement import RunClaims
from runner.model import Plan

RO_CRATE = "https://w3id.org/ro/crate/1.1"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
CONTEXT = [f"{RO_CRATE}/context", "https://w3id.org/ro/terms/workflow-run/context"]
_INPUTS = frozenset({Role.RUN_MANIFEST, Role.PLAN, Role.PROTOCOL})


@dataclass(frozen=True, slots=True, kw_only=True)
class CrateInfo:
    """What only the caller knows: a title, a description, and the licence's URL if there is one."""

    name: str
    description: str
    licence: str | None = None


def run_info(plan: Plan, title: str, version: str) -> CrateInfo:
    """Return what a crate says of a run: ``title`` and ``version`` are the benchmark's."""
    return CrateInfo(
        name=f"{plan.name}: {title}",
        description=f"Rows, scores and evidence of {len(plan.methods)} methods under "
        f"{plan.benchmark_id} {version}.",
    )


def crate(
    entries: Iterable[FileEntry], claims: RunClaims, info: CrateInfo, *, signed: bool
) -> dict[str, object]:
    """Return the JSON-LD document of a bundle with these files. Pure."""
    files = sorted(entries, key=lambda entry: entry.path)
    own = [MANIFEST, RECEIPT] if signed else [MANIFEST]
    described = [_own_file(name) for name in own] + [_file(entry) for entry in files]
    root: dict[str, object] = {
        "@id": "./",
        "@type": "Dataset",
        "conformsTo": _ref(PROFILE),
        "name": info.name,
        "description": info.description,
        "datePublished": claims.finished[:10],
        "identifier": claims.run_id,
        "hasPart": [_ref(str(item["@id"])) for item in described],
        "mentions": _ref("#run"),
    }
    if info.licence is not None:
        root["license"] = _ref(info.licence)
    return {"@context": CONTEXT, "@graph": [_descriptor(), root, *_process(files, claims, info),
                                            *described]}  # fmt: skip


def _descriptor() -> dict[str, object]:
    return {
        "@id": CRATE,
        "@type": "CreativeWork",
        "conformsTo": _ref(RO_CRATE),
        "about": _ref("./"),
    }


def _process(
    files: list[FileEntry], claims: RunClaims, info: CrateInfo
) -> Iterable[dict[str, object]]:
    """Yield the profile, the run as an action, and the software: runner and methods."""
    yield {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    yield {
        "@id": "#run",
        "@type": "CreateAction",
        "name": f"Run of {claims.benchmark_id}",
        "description": info.description,
        "startTime": claims.started,
        "endTime": claims.finished,
        "instrument": _ref("#sealbench"),
        "object": [_ref(entry.path) for entry in files if entry.role in _INPUTS],
        "result": [_ref(entry.path) for entry in files if entry.role not in _INPUTS],
    }
    yield {
        "@id": "#sealbench",
        "@type": "SoftwareApplication",
        "name": "Sealbench",
        "softwareVersion": claims.runner_version,
        "softwareRequirements": [_ref(f"#method-{method.name}") for method in claims.methods],
    }
    for method in claims.methods:
        yield {
            "@id": f"#method-{method.name}",
            "@type": "SoftwareApplication",
            "name": method.name,
            "identifier": method.method_id,
            "softwareVersion": method.image or "not executed here: results were imported",
        }
    if info.licence is not None:
        yield {"@id": info.licence, "@type": "CreativeWork", "name": info.licence}


def _file(entry: FileEntry) -> dict[str, object]:
    return {
        "@id": entry.path,
        "@type": "File",
        "name": entry.path,
        "additionalType": entry.role.value,
        "encodingFormat": entry.media_type,
        "contentSize": str(entry.size),
        "sha256": entry.sha256,
    }


def _own_file(name: str) -> dict[str, object]:
    # Their digests cannot stand here: this file is among those that they seal.
    return {"@id": name, "@type": "File", "name": name, "encodingFormat": "application/json"}


def _ref(identifier: str) -> dict[str, object]:
    return {"@id": identifier}
