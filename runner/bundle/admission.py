"""From two files' bytes to a manifest that may be believed: signature first, then everything else.

Nothing is parsed before its signature or digest holds: the receipt's envelope, then its payload,
then the key's standing in the trust file, then the manifest's digest, then the manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from runner import __version__, schemas
from runner.bundle import dsse, paths
from runner.bundle.manifest import BundleManifest, FileEntry, Role, parse_manifest
from runner.bundle.paths import MANIFEST, RECEIPT
from runner.bundle.statement import RunClaims, parse_statement
from runner.errors import BundleError
from runner.keys import PublicKey
from runner.trust import KeyRole, Trust, TrustDecision, evaluate

#: Codes of what a good bundle of another version shows, and no other fault.
OTHER_VERSION = frozenset({"bundle.schema-differs", "bundle.schema-unknown"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with a bundle: which file, a stable code, what, and in which line."""

    file: str
    code: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message} [{self.code}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What could be established. ``manifest`` is None when nothing may be read any further.

    ``claims``, ``signer`` and ``decision`` are None for a bundle without a receipt.
    """

    faults: tuple[Fault, ...]
    manifest: BundleManifest | None = None
    manifest_sha256: str | None = None
    claims: RunClaims | None = None
    signer: PublicKey | None = None
    decision: TrustDecision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A receipt whose signature holds: its subject, claims, signer and the signer's standing."""

    subject: str
    claims: RunClaims
    signer: PublicKey
    decision: TrustDecision


def fault_of(error: BundleError, file: str) -> Fault:
    """Return the fault that an error stands for; ``file`` where the error names none."""
    where = error.where
    place = where.file if where is not None and where.file else file
    path = f" at {where.json_path}" if where is not None and where.json_path else ""
    line = None if where is None else where.line
    return Fault(file=place, code=error.code, message=error.message + path, line=line)


def admit(
    receipt: bytes | None,
    manifest: bytes,
    *,
    trust: Trust | None,
    protocol_id: str | None,
    allow_unsigned: bool = False,
) -> Admission:
    """Judge a receipt and a manifest by a trust file; never raises for a bad bundle.

    ``protocol_id`` is the protocol that the caller expects; None only for those who do not verify.
    A receipt is always checked: ``allow_unsigned`` admits a bundle that has none.
    """
    sha256 = hashlib.sha256(manifest).hexdigest()
    if receipt is None and not allow_unsigned:
        fault = Fault(file=RECEIPT, code="bundle.unsigned", message="no receipt: it is not sealed")
        return Admission(faults=(fault,))
    sealed: Sealed | None = None
    faults: list[Fault] = []
    try:
        if receipt is not None:
            sealed = open_receipt(receipt, trust)
            faults.extend(_seal_faults(sealed, sha256))
        if faults:
            return _admission(faults, None, sha256, sealed)
        listed = parse_manifest(manifest)
    except BundleError as error:
        return _admission([fault_of(error, RECEIPT)], None, sha256, sealed)
    if sealed is not None:
        faults.extend(_contradictions(listed, sealed.claims))
    faults.extend(_protocol_faults(listed, protocol_id, signed=sealed is not None))
    faults.extend(_content_faults(listed))
    faults.extend(_other_schemas(listed, None if sealed is None else sealed.claims))
    return _admission(faults, listed, sha256, sealed)


def open_receipt(receipt: bytes, trust: Trust | None) -> Sealed:
    """Verify a receipt's signature, then parse it; ``BundleError`` unless a known key signed it."""
    keys = () if trust is None else trust.public_keys
    verified = dsse.verify(receipt, keys, file=RECEIPT)
    subject, claims = parse_statement(verified.payload)
    decision = evaluate(
        trust or Trust(),
        verified.signer.raw,
        role=KeyRole.RUNNER,
        benchmark=claims.benchmark_id,
        claimed_time=claims.finished,
    )
    return Sealed(subject=subject, claims=claims, signer=verified.signer, decision=decision)


def _admission(
    faults: list[Fault], manifest: BundleManifest | None, sha256: str, sealed: Sealed | None
) -> Admission:
    return Admission(
        faults=tuple(faults),
        manifest=manifest,
        manifest_sha256=sha256,
        claims=None if sealed is None else sealed.claims,
        signer=None if sealed is None else sealed.signer,
        decision=None if sealed is None else sealed.decision,
    )


def _seal_faults(sealed: Sealed, manifest_sha256: str) -> Iterator[Fault]:
    if not sealed.decision.trusted:
        yield Fault(file=RECEIPT, code=sealed.decision.code, message=sealed.decision.message)
    if sealed.subject != manifest_sha256:
        yield Fault(
            file=MANIFEST,
            code="bundle.digest",
            message="its SHA-256 is not the one that the receipt signs",
        )


def _contradictions(manifest: BundleManifest, claims: RunClaims) -> Iterator[Fault]:
    """Both are signed, yet a signer may bind one thing and list another."""
    copies = {
        entry.path.removeprefix(f"{paths.SCHEMA_FOLDER}/").removesuffix(paths.SCHEMA_SUFFIX): (
            f"sha256:{entry.sha256}"
        )
        for entry in manifest.by_role(Role.SCHEMA)
    }
    for what, listed, claimed in (
        ("benchmark id", manifest.benchmark_id, claims.benchmark_id),
        ("benchmark version", manifest.benchmark_version, claims.benchmark_version),
        ("protocol id", manifest.benchmark_digest, claims.protocol_id),
        ("run id", manifest.run_id, claims.run_id),
        ("schema digests", copies, dict(claims.schemas)),
    ):
        if listed != claimed:
            yield Fault(
                file=RECEIPT,
                code="receipt.contradiction",
                message=f"its {what} is not that of {MANIFEST}",
            )


def _protocol_faults(
    manifest: BundleManifest, protocol_id: str | None, *, signed: bool
) -> Iterator[Fault]:
    if protocol_id is not None and manifest.benchmark_digest != protocol_id:
        yield Fault(
            file=RECEIPT if signed else MANIFEST,
            code="bundle.other-protocol",
            message=f"made under protocol {manifest.benchmark_digest}, expected {protocol_id}",
        )


def _content_faults(manifest: BundleManifest) -> Iterator[Fault]:
    """Yield what every bundle must list, and schemas that nobody here knows."""
    for path in paths.REQUIRED:
        if manifest.get(path) is None:
            yield Fault(file=path, code="bundle.required", message="every bundle has this file")
    known = set(schemas.kinds())
    for entry in manifest.files:
        kind = None if entry.schema is None else entry.schema.split("/")[1]
        if kind is not None and kind not in known:
            yield Fault(
                file=entry.path, code="bundle.schema-unknown", message=f"unknown schema {kind!r}"
            )
        if not _is_copy(entry):
            continue
        if entry.role is not Role.SCHEMA or _kind_of(entry) not in known:
            yield Fault(
                file=entry.path,
                code="bundle.schema-unknown",
                message="no schema of this verifier",
            )


def _other_schemas(manifest: BundleManifest, claims: RunClaims | None) -> Iterator[Fault]:
    """Yield one fault for all schema copies that are not our own: they may accept what ours
    refuses. See docs/adr/0074."""
    known = set(schemas.kinds())
    other = [
        entry
        for entry in manifest.files
        if _is_copy(entry)
        and (kind := _kind_of(entry)) in known
        and schemas.schema_sha256(kind) != entry.sha256
    ]
    if other:
        kinds = ", ".join(map(_kind_of, other))
        yield Fault(
            file=other[0].path,
            code="bundle.schema-differs",
            message=f"its schemas ({kinds}) are not those of this verifier, sealbench "
            f"{__version__}, which therefore cannot judge it: before 1.0 that takes the version "
            f"that made it, {_maker(claims)}; how to get that: docs/verification.md, Versions",
        )


def _maker(claims: RunClaims | None) -> str:
    """The version that made a bundle, in the words of whoever signed it."""
    if claims is None:
        return "which host.json names"
    if claims.source_commit is None:
        return f"by its receipt sealbench {claims.runner_version} of a commit that it does not name"
    changed = ", with changes that no commit has" if claims.source_dirty else ""
    commit = f"{claims.source_commit}{changed}"
    return f"by its receipt sealbench {claims.runner_version} of commit {commit}"


def _is_copy(entry: FileEntry) -> bool:
    return entry.role is Role.SCHEMA or entry.path.startswith(f"{paths.SCHEMA_FOLDER}/")


def _kind_of(entry: FileEntry) -> str:
    """The kind that a schema copy is of by its path; "" for a path of none."""
    name = entry.path.removeprefix(f"{paths.SCHEMA_FOLDER}/")
    kind = name.removesuffix(paths.SCHEMA_SUFFIX)
    return "" if name in (entry.path, kind) else kind
