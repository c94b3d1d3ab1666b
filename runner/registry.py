"""A plain directory of verified bundles: one folder a protocol, in it one folder a bundle.

``<registry>/<protocol id>/<digest of manifest.json>/`` holds ``bundle.tar``, copies of
``manifest.json``, ``plan.json`` and ``results.json``, and ``entry.json`` with who signed it and who
had reproduced it. A bundle enters only after verification with the labels. Whoever reads an entry
hashes the copies again: the folder's name is the digest of the manifest, which has the digests of
the other two, so an edited figure is noticed without a key. Entries of different protocols are
never compared.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from runner.bundle.archive import export_archive
from runner.bundle.durable import make_directory, put_file
from runner.bundle.manifest import parse_manifest
from runner.bundle.read import open_bundle
from runner.bundle.reviews import Property
from runner.canonical import canonical_bytes
from runner.clock import SystemClock
from runner.errors import BundleError, StorageError, UsageError, Where
from runner.metrics.direction import lower_is_better
from runner.protocol.load import Protocol
from runner.results import competition_ranks
from runner.schemas import validate
from runner.trust import Trust
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle

ENTRY, TAR = "entry.json", "bundle.tar"
COPIES = ("manifest.json", "plan.json", "results.json")
ENTRY_SCHEMA = "sealbench/registry-entry/v1"
_HEX = re.compile(r"[0-9a-f]{64}\Z")
_FIX = "remove the entry's folder and add the bundle again"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """A bundle's folder, and what it is verified against."""

    bundle: Path
    protocol: Protocol
    data_root: Path
    trust: Trust | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One bundle of a registry. ``results`` and ``plan`` are documents of the bundle."""

    folder: Path
    protocol_id: str
    bundle_sha256: str
    benchmark: str
    name: str
    signer: str | None
    reproduced_by: tuple[str, ...]
    added: str
    plan: Mapping[str, Any]
    results: Mapping[str, Any]

    @property
    def methods(self) -> tuple[str, ...]:
        """Display names of its methods."""
        return tuple(method["name"] for method in self.plan["methods"])

    def as_dict(self) -> dict[str, Any]:
        """The form that ``--json`` prints."""
        return {
            "protocol_id": self.protocol_id,
            "bundle_sha256": self.bundle_sha256,
            "benchmark": self.benchmark,
            "name": self.name,
            "signer": self.signer,
            "reproduced_by": list(self.reproduced_by),
            "added": self.added,
            "methods": list(self.methods),
        }


class Registry:
    """The directory; made when the first bundle is added."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, request: AddRequest) -> Entry:
        """Verify a bundle with its labels and keep it. Raises ``BundleError`` for one that does not
        verify in every figure, ``StorageError`` for one that is there already."""
        report = verify_bundle(
            VerifyRequest(
                bundle=request.bundle,
                protocol_id=request.protocol.protocol_id,
                protocol=request.protocol,
                trust=request.trust,
                data_root=request.data_root,
            )
        )
        sha256 = _admitted(report, request.bundle)
        folder = self._folder / request.protocol.protocol_id.rpartition(":")[2] / sha256
        if folder.exists():
            raise StorageError(
                "storage.occupied",
                "the registry has this bundle already",
                fix="nothing need be done",
                where=Where(file=str(folder)),
            )
        self._keep(request, report, folder)
        return read_entry(folder)

    def entries(self, protocol_id: str | None = None) -> list[Entry]:
        """Return all entries, or those of one protocol (by a prefix of its id), sorted."""
        wanted = (protocol_id or "").removeprefix("sha256:")
        found = []
        for protocol in sorted(self._folders(self._folder)):
            if protocol.name.startswith(wanted):
                found += [read_entry(bundle) for bundle in sorted(self._folders(protocol))]
        return found

    def find(self, prefix: str) -> Entry:
        """Return the entry of a bundle by the first digits of its digest; ``UsageError`` for a
        prefix of none or several."""
        wanted = prefix.removeprefix("sha256:")
        found = [entry for entry in self.entries() if entry.bundle_sha256.startswith(wanted)]
        if len(found) == 1 and wanted:
            return found[0]
        raise UsageError(
            "registry.unknown-bundle",
            f"{len(found)} bundles of the registry begin with {prefix!r}",
            fix="take the digest from `sealbench registry list`; a bundle that was never added, or "
            "figures of another format, cannot be compared",
        )

    def _folders(self, folder: Path) -> Iterable[Path]:
        if not folder.is_dir():
            return []
        return [path for path in folder.iterdir() if path.is_dir() and _HEX.match(path.name)]

    def _keep(self, request: AddRequest, report: VerifyReport, folder: Path) -> None:
        claims, decision = report.admission.claims, report.admission.decision
        entry = {
            "schema": ENTRY_SCHEMA,
            "protocol_id": request.protocol.protocol_id,
            "benchmark": f"{request.protocol.benchmark_id} {request.protocol.version}",
            "signer": decision.principal if decision else None,
            "reproduced_by": _reproducers(report),
            "finished": claims.finished if claims else None,
            "added": SystemClock().utc_stamp(),
        }
        make_directory(folder)
        try:
            with open_bundle(
                request.bundle, protocol_id=request.protocol.protocol_id, trust=request.trust
            ) as view:
                export_archive(view, folder / TAR)
            for name in COPIES:
                put_file(folder / name, (request.bundle / name).read_bytes())
            put_file(folder / ENTRY, canonical_bytes(entry))  # last: without it there is no entry
            read_entry(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def read_entry(folder: Path) -> Entry:
    """Read an entry and hash its copies; ``BundleError`` for anything that was changed."""
    try:
        raw = {name: (folder / name).read_bytes() for name in (ENTRY, *COPIES)}
        entry = json.loads(raw[ENTRY])
    except (OSError, ValueError) as error:
        _refuse("registry.incomplete", f"cannot be read: {type(error).__name__}", folder)
    if not isinstance(entry, dict) or entry.get("schema") != ENTRY_SCHEMA:
        _refuse("registry.legacy", "is of another version and is not compared", folder)
    validate("registry-entry", entry, where_file=str(folder / ENTRY), error_class=BundleError)
    if hashlib.sha256(raw["manifest.json"]).hexdigest() != folder.name:
        _refuse("registry.changed", "manifest.json is not the one that was added", folder)
    manifest = parse_manifest(raw["manifest.json"])
    for name in COPIES[1:]:
        if hashlib.sha256(raw[name]).hexdigest() != manifest.entry(name).sha256:
            _refuse("registry.changed", f"{name} is not the one that was added", folder)
    results, plan = json.loads(raw["results.json"]), json.loads(raw["plan.json"])
    protocol = f"sha256:{folder.parent.name}"
    if results["protocol_id"] != protocol or entry["protocol_id"] != protocol:
        _refuse("registry.changed", "lies below another protocol", folder)
    return Entry(
        folder=folder,
        protocol_id=protocol,
        bundle_sha256=folder.name,
        benchmark=entry["benchmark"],
        name=plan["name"],
        signer=entry["signer"],
        reproduced_by=tuple(entry["reproduced_by"]),
        added=entry["added"],
        plan=plan,
        results=results,
    )


def compare_entries(entries: Sequence[Entry], *, split: str) -> list[dict[str, Any]]:
    """Return the aggregate rows of several bundles on one split, ranked together.

    Raises ``UsageError`` for bundles of different protocols: a name alone makes nothing comparable.
    """
    protocols = {entry.protocol_id for entry in entries}
    if len(protocols) > 1:
        raise UsageError(
            "registry.cross-protocol",
            f"bundles of {len(protocols)} protocols: {', '.join(sorted(protocols))}",
            fix="compare runs of one protocol; another id is another benchmark, whatever its name",
        )
    tables: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        for row in entry.results["aggregate"]:
            if row["split"] == split:
                marked = {**row, "bundle": entry.bundle_sha256, "signer": entry.signer}
                tables.setdefault((row["task"], row["metric"]), []).append(marked)
    ranked = []
    for (_, metric), rows in tables.items():
        scores = {str(at): row["mean_score"] for at, row in enumerate(rows)}
        ranks = competition_ranks(scores, lowest_first=lower_is_better(metric))
        found = [{**row, "rank": ranks[str(at)]} for at, row in enumerate(rows)]
        ranked += sorted(found, key=_order)
    return ranked


def _order(row: Mapping[str, Any]) -> tuple[bool, int, str, str]:
    return row["rank"] is None, row["rank"] or 0, row["method"], row["bundle"]


def _reproducers(report: VerifyReport) -> list[str]:
    """Who, independently, had executed the run again with the same result."""
    return sorted(
        {
            review.principal
            for review in report.reviews
            if review.independent and Property.RUN_REPRODUCED in review.properties
        }
    )


def _admitted(report: VerifyReport, bundle: Path) -> str:
    """Return the digest of a bundle that may enter."""
    if report.faults or not report.recomputed.holds:
        why = str(report.faults[0]) if report.faults else report.recomputed.detail
        _refuse("registry.unverified", f"does not verify, so it does not enter: {why}", bundle)
    if report.admission.manifest_sha256 is None or report.admission.signer is None:
        _refuse("registry.unsigned", "nobody signed it, so it does not enter", bundle)
    return report.admission.manifest_sha256


def _refuse(code: str, message: str, folder: Path) -> NoReturn:
    raise BundleError(code, message, fix=_FIX, where=Where(file=str(folder)))
