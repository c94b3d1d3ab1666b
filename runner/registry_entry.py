"""One folder of a registry -> what it may be believed to hold, from what was signed and not told.

The folder's name is the digest of manifest.json, which has the digests of plan.json and
results.json; the receipt signs that digest and says for which protocol and run; bundle.tar begins
with both and is as long as the manifest says. Who signed and who countersigned is read from these
envelopes each time. Their signatures are checked by those keys that the reader trusts; an envelope
names no more than a key's id, so that without the key nobody can tell, and that is what is said.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from runner.bundle import dsse, ustar
from runner.bundle.admission import open_receipt
from runner.bundle.manifest import BundleManifest, parse_manifest
from runner.bundle.paths import ARCHIVE, MANIFEST, MAX_METADATA, RECEIPT
from runner.bundle.reviews import Property, Subject, read_reviews
from runner.bundle.statement import RunClaims, parse_statement
from runner.errors import BundleError, Where
from runner.files import open_regular, read_regular
from runner.keys import PublicKey
from runner.schemas import validate
from runner.trust import Trust

ENTRY = "entry.json"
COPIES = (MANIFEST, "plan.json", "results.json")
ENTRY_SCHEMA = "sealbench/registry-entry/v1"
UNCHECKED = "signature not checked here"
CHECKED = "signature checked"
_FIX = "remove the entry's folder and add the bundle again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Who signed a bundle. ``name`` is the trust file's, or the key's id as the receipt has it;
    ``standing`` says what that is worth: ``CHECKED``, ``UNCHECKED`` or why the key is not trusted.
    """

    name: str
    keyid: str
    standing: str
    key: PublicKey | None = None  # where it is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One bundle of a registry. ``results`` and ``plan`` are documents of the bundle.

    ``reproduced_by`` are independent people whose countersignature was checked here; ``unchecked``
    counts the countersignatures by keys that are not known here.
    """

    folder: Path
    protocol_id: str
    bundle_sha256: str
    benchmark: str
    name: str
    signer: Signer
    reproduced_by: tuple[str, ...]
    unchecked: int
    added: str
    plan: Mapping[str, Any]
    results: Mapping[str, Any]

    @property
    def methods(self) -> tuple[str, ...]:
        """Display names of its methods."""
        return tuple(method["name"] for method in self.plan["methods"])

    @property
    def imported(self) -> frozenset[str]:
        """Names of the methods that nobody executed for this bundle."""
        return frozenset(m["name"] for m in self.plan["methods"] if m["image"] is None)

    def as_dict(self) -> dict[str, Any]:
        """The form that ``--json`` prints."""
        return {
            "protocol_id": self.protocol_id,
            "bundle_sha256": self.bundle_sha256,
            "benchmark": self.benchmark,
            "name": self.name,
            "signer": self.signer.name,
            "keyid": self.signer.keyid,
            "signature": self.signer.standing,
            "reproduced_by": list(self.reproduced_by),
            "countersignatures_not_checked": self.unchecked,
            "added": self.added,
            "methods": list(self.methods),
        }


def read_entry(folder: Path, trust: Trust | None = None) -> Entry:
    """Read an entry and hold its parts against each other.

    Raises ``BundleError``, which names the folder, for one that does not hold together or whose
    signature is not by the key that it names. ``trust`` None: no signature is checked.
    """
    raw = {name: _read(folder, name) for name in (ENTRY, *COPIES, RECEIPT)}
    entry = _entry(raw[ENTRY], folder)
    if hashlib.sha256(raw[MANIFEST]).hexdigest() != folder.name:
        _refuse("registry.changed", "manifest.json is not the one that was added", folder)
    try:
        manifest = parse_manifest(raw[MANIFEST])
        for name in COPIES[1:]:
            if hashlib.sha256(raw[name]).hexdigest() != manifest.entry(name).sha256:
                _refuse("registry.changed", f"{name} is not the one that was added", folder)
        claims, signer = _signer(raw[RECEIPT], folder, trust)
    except BundleError as error:
        if error.code.startswith("registry."):
            raise
        _refuse("registry.broken", f"{error.message} [{error.code}]", folder)
    results, plan = json.loads(raw["results.json"]), json.loads(raw["plan.json"])
    protocol = f"sha256:{folder.parent.name}"
    for found in (results, plan, entry):
        if found["protocol_id"] != protocol:
            _refuse("registry.changed", "lies below another protocol", folder)
    _check_story(manifest, claims, plan, results, folder)
    _check_archive(folder, manifest, {RECEIPT: raw[RECEIPT], MANIFEST: raw[MANIFEST]})
    reproduced_by, unchecked = _reviews(folder, manifest, signer, trust)
    return Entry(
        folder=folder,
        protocol_id=protocol,
        bundle_sha256=folder.name,
        benchmark=f"{manifest.benchmark_id} {manifest.benchmark_version}",
        name=plan["name"],
        signer=signer,
        reproduced_by=reproduced_by,
        unchecked=unchecked,
        added=entry["added"],
        plan=plan,
        results=results,
    )


def _read(folder: Path, name: str) -> bytes:
    try:
        data = read_regular(folder / name, MAX_METADATA + 1)
    except OSError as error:
        _refuse("registry.incomplete", f"{name} cannot be read: {error.strerror}", folder)
    if len(data) > MAX_METADATA:
        _refuse("registry.incomplete", f"{name} is larger than {MAX_METADATA} bytes", folder)
    return data


def _entry(raw: bytes, folder: Path) -> dict[str, Any]:
    try:
        entry = json.loads(raw)
    except ValueError:
        _refuse("registry.incomplete", f"{ENTRY} is not JSON", folder)
    if not isinstance(entry, dict) or entry.get("schema") != ENTRY_SCHEMA:
        _refuse("registry.legacy", "is of another version and is not compared", folder)
    validate("registry-entry", entry, where_file=str(folder / ENTRY), error_class=BundleError)
    return entry


def _signer(receipt: bytes, folder: Path, trust: Trust | None) -> tuple[RunClaims, Signer]:
    """Return what the receipt claims and who signed it; ``BundleError`` for a signature that is not
    by the known key that it names."""
    keyid = dsse.named_keyid(receipt, file=RECEIPT)
    known = {} if trust is None else {key.keyid: key for key in trust.public_keys}
    if keyid in known:
        sealed = open_receipt(receipt, trust)
        subject, claims, decision = sealed.subject, sealed.claims, sealed.decision
        signer = Signer(
            name=decision.principal or f"key:{keyid[:16]}",
            keyid=keyid,
            standing=CHECKED if decision.trusted else f"NOT TRUSTED: {decision.message}",
            key=sealed.signer,
        )
    else:
        subject, claims = parse_statement(dsse.unverified_payload(receipt, file=RECEIPT))
        signer = Signer(name=f"key:{keyid[:16]}", keyid=keyid, standing=UNCHECKED)
    if subject != folder.name:
        _refuse("registry.changed", "its receipt is about another bundle", folder)
    return claims, signer


def _check_story(
    manifest: BundleManifest,
    claims: RunClaims,
    plan: Mapping[str, Any],
    results: Mapping[str, Any],
    folder: Path,
) -> None:
    """Are they all about one run under one protocol?"""
    runs = {manifest.run_id, claims.run_id, plan["run_id"], results["run_id"]}
    protocols = {manifest.benchmark_digest, claims.protocol_id, plan["protocol_id"]}
    versions = {
        (manifest.benchmark_id, manifest.benchmark_version),
        (claims.benchmark_id, claims.benchmark_version),
    }
    if max(map(len, (runs, protocols, versions))) > 1:
        _refuse("registry.changed", "its documents are about several runs", folder)


def _check_archive(folder: Path, manifest: BundleManifest, heads: Mapping[str, bytes]) -> None:
    """Does the archive begin with this receipt and manifest, and is it as long as they say?

    Its files are not hashed: that takes as long as they are large, and is what ``verify`` is for.
    """
    start = b"".join(
        ustar.header(name, len(data)) + data + bytes(ustar.padding(len(data)))
        for name, data in heads.items()
    )
    size = len(start) + sum(
        ustar.BLOCK + entry.size + ustar.padding(entry.size) for entry in manifest.files
    )
    try:
        with open_regular(folder / ARCHIVE) as stream:
            found = stream.read(len(start))
            length = stream.seek(0, 2)
    except OSError as error:
        _refuse("registry.incomplete", f"{ARCHIVE} cannot be read: {error.strerror}", folder)
    if found != start or length != size + ustar.trailer(size):
        _refuse("registry.changed", f"{ARCHIVE} is not the archive of this bundle", folder)


def _reviews(
    folder: Path, manifest: BundleManifest, signer: Signer, trust: Trust | None
) -> tuple[tuple[str, ...], int]:
    """Return who, independently, had the same result, and how many more nobody here can judge."""
    subject = Subject(
        manifest_sha256=folder.name,
        benchmark_id=manifest.benchmark_id,
        runner=signer.key,
        runner_principal=signer.name,
    )
    reviews, faults = read_reviews(folder, subject, trust or Trust())
    for fault in faults:
        if fault.code != "dsse.unknown-signer" and not fault.code.startswith("trust."):
            message = f"countersignature {fault.file}: {fault.message} [{fault.code}]"
            _refuse("registry.broken", message, folder)
    # With a signer whose key is not known, nobody can tell that a reviewer is somebody else.
    people = {
        review.principal
        for review in reviews
        if signer.key is not None
        and review.independent
        and Property.RUN_REPRODUCED in review.properties
    }
    return tuple(sorted(people)), sum(f.code == "dsse.unknown-signer" for f in faults)


def _refuse(code: str, message: str, folder: Path) -> NoReturn:
    raise BundleError(
        code, f"entry {folder.name[:12]}: {message}", fix=_FIX, where=Where(file=str(folder))
    )
