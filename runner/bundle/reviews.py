"""Countersignatures beside a bundle: who else looked, and what they saw hold.

Each is an envelope of its own, ``bundle.sigs/reviews/<first 16 of the keyid>.dsse.json``: an
in-toto Simple Verification Result v0.1 whose one subject is this bundle's manifest.json. Adding one
changes no sealed byte. It counts only when a trusted reviewer signed it, and makes a run
"reproduced" only when that reviewer is somebody else than the runner.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import NoReturn

from runner import __version__
from runner.bundle import dsse, durable
from runner.bundle.admission import Fault, fault_of
from runner.bundle.documents import parse_canonical, parse_utc
from runner.bundle.paths import MANIFEST, MAX_METADATA, SIGNATURES
from runner.bundle.read import open_below
from runner.bundle.statement import STATEMENT_TYPE
from runner.canonical import canonical_bytes
from runner.errors import BundleError, Where
from runner.keys import PublicKey, SigningKey, count_distinct
from runner.trust import KeyRole, Trust, evaluate

PREDICATE_TYPE = "https://in-toto.io/attestation/svr/v0.1"
VERIFIER_ID = f"https://sealbench.invalid/verifier/{__version__}"
FOLDER = "reviews"
SUFFIX = ".dsse.json"
MAX_REVIEWS = 1_000


class Property(StrEnum):
    """What a reviewer can vouch for; each includes the ones before it."""

    BUNDLE_VALID = "BUNDLE_VALID"
    SCORES_RECOMPUTED = "SCORES_RECOMPUTED"
    RUN_REPRODUCED = "RUN_REPRODUCED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A countersignature that counts. ``independent``: neither the runner's key nor principal."""

    file: str
    signer: PublicKey
    principal: str
    properties: tuple[Property, ...]
    verifier_id: str
    time_created: str
    independent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What reviews must be about: a manifest, its benchmark, and who ran it (None: unsigned)."""

    manifest_sha256: str
    benchmark_id: str
    runner: PublicKey | None
    runner_principal: str | None


def signatures_folder(bundle: Path) -> Path:
    """Return the folder beside a bundle that holds what was signed about it later."""
    return bundle.parent / SIGNATURES


def write_review(
    signatures: Path,
    manifest_sha256: str,
    properties: Iterable[Property],
    *,
    time_created: str,
    key: SigningKey,
) -> Path:
    """Countersign a manifest (hex digest); a newer review replaces an older one by the same key.

    ``signatures`` is the ``bundle.sigs`` folder. Returns the file. Raises ``BundleError`` for a
    time or properties that the format forbids, ``StorageError`` when it cannot be written.
    """
    payload = canonical_bytes(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": MANIFEST, "digest": {"sha256": manifest_sha256}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "verifier": {"id": VERIFIER_ID},
                "timeCreated": time_created,
                "properties": sorted({str(item) for item in properties}),
            },
        }
    )
    name = _file_name(key.public)
    _parse(payload, name)
    folder = signatures / FOLDER
    durable.make_directory(folder)
    durable.put_file(folder / name, dsse.sign(payload, key), replace=True)
    durable.fsync_directory(signatures)
    return folder / name


def read_reviews(
    signatures: Path, subject: Subject, trust: Trust
) -> tuple[tuple[Review, ...], tuple[Fault, ...]]:
    """Return the reviews that count and a fault for each file that does not. Never raises.

    No folder means no reviews.
    """
    try:
        root = os.open(
            signatures / FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        )
    except FileNotFoundError:
        return (), ()
    except OSError as error:
        message = f"cannot open the folder: {os.strerror(error.errno or 0).lower()}"
        return (), (Fault(file=FOLDER, code="review.folder", message=message),)
    reviews: list[Review] = []
    faults: list[Fault] = []
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in islice(entries, MAX_REVIEWS + 1))
        if len(names) > MAX_REVIEWS:
            message = f"more than {MAX_REVIEWS} files: none was read"
            return (), (Fault(file=FOLDER, code="review.too-many", message=message),)
        for name in names:
            try:
                reviews.append(_read(root, name, subject, trust))
            except BundleError as error:
                faults.append(fault_of(error, _shown(name)))
    finally:
        os.close(root)
    return tuple(reviews), tuple(faults)


def reproduced_by(reviews: Iterable[Review]) -> int:
    """Return how many different independent keys vouch that the run was reproduced."""
    return count_distinct(
        review.signer
        for review in reviews
        if review.independent and Property.RUN_REPRODUCED in review.properties
    )


def _read(root: int, name: str, subject: Subject, trust: Trust) -> Review:
    file = _shown(name)
    if "/" in name or not name.endswith(SUFFIX) or file != name:
        _refuse("review.name", "only countersignatures belong here", file)
    with os.fdopen(open_below(root, name), "rb") as stream:
        if os.fstat(stream.fileno()).st_size > MAX_METADATA:
            _refuse("bundle.too-large", f"larger than {MAX_METADATA} bytes", file)
        envelope = stream.read(MAX_METADATA + 1)
    verified = dsse.verify(envelope, trust.public_keys, file=file)
    if name != _file_name(verified.signer):
        _refuse("review.name", f"signed by {verified.signer.keyid[:16]}, not named after it", file)
    digest, time_created, verifier_id, properties = _parse(verified.payload, file)
    decision = evaluate(
        trust,
        verified.signer.raw,
        role=KeyRole.REVIEWER,
        benchmark=subject.benchmark_id,
        claimed_time=time_created,
    )
    if not decision.trusted or decision.principal is None:
        _refuse(decision.code, decision.message, file)
    if digest != subject.manifest_sha256:
        _refuse("review.subject", "it is about another bundle's manifest", file)
    same_key = subject.runner is not None and subject.runner.raw == verified.signer.raw
    return Review(
        file=file,
        signer=verified.signer,
        principal=decision.principal,
        properties=properties,
        verifier_id=verifier_id,
        time_created=time_created,
        independent=not same_key and decision.principal != subject.runner_principal,
    )


def _parse(payload: bytes, file: str) -> tuple[str, str, str, tuple[Property, ...]]:
    """Return (manifest digest, time, verifier, properties) of a payload that may be believed."""
    document = parse_canonical(payload, kind="review", file=file)
    predicate = document["predicate"]
    names: list[str] = predicate["properties"]
    if names != sorted(set(names)):
        _refuse("review.properties", "its properties are unsorted or repeated", file)
    if parse_utc(predicate["timeCreated"]) is None:
        _refuse("review.time", "its time is no time in UTC", file)
    return (
        document["subject"][0]["digest"]["sha256"],
        predicate["timeCreated"],
        predicate["verifier"]["id"],
        tuple(Property(item) for item in names),
    )


def _file_name(key: PublicKey) -> str:
    return f"{key.keyid[:16]}{SUFFIX}"


def _shown(name: str) -> str:
    return name if name.isascii() and name.isprintable() else ascii(name)[:300]


def _refuse(code: str, message: str, file: str) -> NoReturn:
    raise BundleError(
        code, message, fix="remove the file: it counts for nothing", where=Where(file=file)
    )
