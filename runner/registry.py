"""A plain directory of verified bundles: one folder a protocol, in it one folder a bundle.

``<registry>/<protocol id>/<digest of manifest.json>/`` holds ``bundle.tar``, copies of
``manifest.json``, ``plan.json``, ``results.json`` and ``receipt.dsse.json``, the countersignatures
in ``reviews/``, and ``entry.json`` with the time of adding. A bundle enters only after verification
with the labels; ``registry_entry`` says what is checked whenever an entry is read. Entries of
different protocols are never compared.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from runner.bundle.archive import export_archive
from runner.bundle.durable import (
    fsync_directories,
    fsync_directory,
    make_directory,
    put_file,
    rename_new,
)
from runner.bundle.paths import ARCHIVE, MAX_METADATA, RECEIPT
from runner.bundle.read import open_bundle
from runner.bundle.reviews import FOLDER as REVIEWS
from runner.bundle.reviews import signatures_folder
from runner.canonical import canonical_bytes
from runner.clock import SystemClock
from runner.errors import BundleError, StorageError, UsageError, Where
from runner.files import read_regular
from runner.metrics.direction import lower_is_better
from runner.protocol.load import Protocol
from runner.registry_entry import COPIES, ENTRY, ENTRY_SCHEMA, Entry, read_entry
from runner.results import competition_ranks
from runner.schema_faults import suggest
from runner.trust import Trust
from runner.verify.bundle import VerifyReport, VerifyRequest, verify_bundle

__all__ = ["AddRequest", "AlreadyKept", "Entry", "Registry", "compare_entries", "read_entry"]

_HEX = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """A bundle's folder, and what it is verified against. ``signatures`` is the folder of
    countersignatures where it is not beside the bundle."""

    bundle: Path
    protocol: Protocol
    data_root: Path
    trust: Trust | None
    signatures: Path | None = None


class AlreadyKept(StorageError):
    """The registry has the bundle already; ``entry`` is what it has, and holds together."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(
            "storage.occupied",
            "the registry has this bundle already",
            fix="nothing need be done",
            where=Where(file=str(entry.folder)),
        )
        self.entry = entry


class Registry:
    """The directory; made when the first bundle is added. ``trust`` is whose signatures are checked
    when entries are read; None: nobody's, and they say so."""

    def __init__(self, folder: Path, trust: Trust | None = None) -> None:
        self._folder = folder
        self._trust = trust

    def add(self, request: AddRequest) -> Entry:
        """Verify a bundle with its labels and keep it. Raises ``BundleError`` for one that does not
        verify in every figure, ``AlreadyKept`` for one that is there and intact."""
        report = verify_bundle(
            VerifyRequest(
                bundle=request.bundle,
                protocol_id=request.protocol.protocol_id,
                protocol=request.protocol,
                trust=request.trust,
                data_root=request.data_root,
                signatures=request.signatures,
            )
        )
        sha256 = _admitted(report, request.bundle)
        folder = self._folder / request.protocol.protocol_id.rpartition(":")[2] / sha256
        if folder.exists():
            raise AlreadyKept(read_entry(folder, request.trust))
        self._keep(request, report, folder)
        return read_entry(folder, request.trust)

    def entries(self, protocol_id: str | None = None) -> list[Entry]:
        """Return all entries, or those of one protocol (by a prefix of its id), sorted.

        Raises ``BundleError`` for one that does not hold together, as ``read_entry`` does.
        """
        wanted = (protocol_id or "").removeprefix("sha256:")
        found = []
        for protocol in sorted(self._folders(self._folder)):
            if protocol.name.startswith(wanted):
                found += [
                    read_entry(bundle, self._trust) for bundle in sorted(self._folders(protocol))
                ]
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
        entry = {
            "schema": ENTRY_SCHEMA,
            "protocol_id": request.protocol.protocol_id,
            "added": SystemClock().utc_stamp(),
        }
        make_directory(folder.parent)
        ours = folder.with_name(f".partial-{secrets.token_hex(8)}")  # no entry, if all ends here
        try:
            make_directory(ours)
            with open_bundle(
                request.bundle, protocol_id=request.protocol.protocol_id, trust=request.trust
            ) as view:
                export_archive(view, ours / ARCHIVE)
            for name in (*COPIES, RECEIPT):
                put_file(ours / name, (request.bundle / name).read_bytes())
            _keep_reviews(request, report, ours / REVIEWS)
            put_file(ours / ENTRY, canonical_bytes(entry))
            fsync_directories(ours)
            rename_new(ours, folder)
            ours = folder
            fsync_directory(folder.parent)
            read_entry(folder, request.trust)
        except BaseException:
            shutil.rmtree(ours, ignore_errors=True)
            raise


def compare_entries(entries: Sequence[Entry], *, split: str) -> list[dict[str, Any]]:
    """Return the aggregate rows of several bundles on one split, ranked together.

    Raises ``UsageError`` for bundles of different protocols, a name alone makes nothing comparable,
    and for a split that none of them has.
    """
    protocols = {entry.protocol_id for entry in entries}
    if len(protocols) > 1:
        raise UsageError(
            "registry.cross-protocol",
            f"bundles of {len(protocols)} protocols: {', '.join(sorted(protocols))}",
            fix="compare runs of one protocol; another id is another benchmark, whatever its name",
        )
    splits = sorted({row["split"] for entry in entries for row in entry.results["aggregate"]})
    if split not in splits:
        raise UsageError(
            "registry.unknown-split",
            f"none of these bundles has figures on split {split!r}{suggest(split, splits)}",
            fix=f"use one of: {', '.join(splits)}",
        )
    tables: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        for row in entry.results["aggregate"]:
            if row["split"] == split:
                marked = {
                    **row,
                    "executed": row["method"] not in entry.imported,
                    "bundle": entry.bundle_sha256,
                    "signer": entry.signer.name,
                    "signature": entry.signer.standing,
                }
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


def _keep_reviews(request: AddRequest, report: VerifyReport, target: Path) -> None:
    """Copy the countersignatures: those that count here, and those whose keys others may know."""
    names = [review.file for review in report.reviews] + [fault.file for fault in report.ignored]
    source = (request.signatures or signatures_folder(request.bundle)) / REVIEWS
    if names:
        make_directory(target)
    for name in names:
        put_file(target / name, read_regular(source / name, MAX_METADATA))


def _admitted(report: VerifyReport, bundle: Path) -> str:
    """Return the digest of a bundle that may enter."""
    if report.faults or not report.recomputed.holds:
        why = str(report.faults[0]) if report.faults else report.recomputed.detail
        _refuse("registry.unverified", f"does not verify, so it does not enter: {why}", bundle)
    if report.admission.manifest_sha256 is None or report.admission.signer is None:
        _refuse("registry.unsigned", "nobody signed it, so it does not enter", bundle)
    return report.admission.manifest_sha256


def _refuse(code: str, message: str, folder: Path) -> NoReturn:
    fix = "add a signed bundle that `sealbench verify --data-root` finds no fault with"
    raise BundleError(code, message, fix=fix, where=Where(file=str(folder)))
