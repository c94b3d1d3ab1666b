"""Whose signature counts, for what and when: the verifier's own trust file and one pure decision.

A trust file is never taken from a bundle. Keys are told apart by their public bytes, never by an id
that somebody wrote down, so one key under two names is one signer.

A signature proves who and unchanged, not when: the time in a receipt is the signer's own claim.
``not_before`` and ``not_after`` therefore bound what an honest signer may claim, while a revoked
key counts for nothing, since its thief would simply claim an earlier time. A revocation with
``compromised_at`` spares only what somebody else can prove to be older (``proven_time``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

from runner.bundle import durable
from runner.bundle.documents import parse_strict, parse_utc
from runner.errors import KeyError_, Where
from runner.files import read_regular
from runner.keys import PublicKey, count_distinct, parse_public

SCHEMA = "sealbench/trust/v1"
MAX_TRUST_BYTES = 4 << 20
ALL_BENCHMARKS = ("*",)


class KeyRole(StrEnum):
    """What a key may sign: runs, countersignatures, leaderboards."""

    RUNNER = "runner"
    REVIEWER = "reviewer"
    LEADERBOARD = "leaderboard"


class KeyStatus(StrEnum):
    """Whether a key still counts."""

    ACTIVE = "active"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedKey:
    """One key of a trust file. Times are RFC 3339 in UTC, None for no bound."""

    public: PublicKey
    principal: str
    roles: tuple[KeyRole, ...] = (KeyRole.RUNNER,)
    benchmarks: tuple[str, ...] = ALL_BENCHMARKS
    not_before: str | None = None
    not_after: str | None = None
    status: KeyStatus = KeyStatus.ACTIVE
    compromised_at: str | None = None

    def as_dict(self) -> dict[str, object]:
        """The entry as the trust file has it."""
        return {
            "public_key": self.public.pem,
            "principal": self.principal,
            "roles": [role.value for role in self.roles],
            "benchmarks": list(self.benchmarks),
            "not_before": self.not_before,
            "not_after": self.not_after,
            "status": self.status.value,
            "compromised_at": self.compromised_at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The keys that a verifier knows; no public key is there twice."""

    keys: tuple[TrustedKey, ...] = ()

    @property
    def public_keys(self) -> tuple[PublicKey, ...]:
        """Every known key, revoked ones too: their signatures can be checked and then refused."""
        return tuple(key.public for key in self.keys)

    def find(self, public_key: bytes) -> TrustedKey | None:
        """Return the entry of a public key's 32 bytes, or None."""
        return next((key for key in self.keys if key.public.raw == public_key), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustDecision:
    """Whether a signature counts; ``code`` is stable, ``message`` is for people."""

    trusted: bool
    code: str
    message: str
    principal: str | None


def explicit(keys: Iterable[PublicKey], *, role: KeyRole = KeyRole.RUNNER) -> Trust:
    """Return the trust of a caller who names the keys on the command line instead of in a file."""
    unique = {key.raw: key for key in keys}
    return Trust(
        keys=tuple(
            TrustedKey(public=key, principal=f"key:{key.keyid[:16]}", roles=(role,))
            for key in unique.values()
        )
    )


def evaluate(  # noqa: PLR0913 -- a pure decision names every fact that it rests on
    trust: Trust,
    public_key: bytes,
    *,
    role: KeyRole,
    benchmark: str,
    claimed_time: str,
    proven_time: str | None = None,
) -> TrustDecision:
    """Decide whether a signature by ``public_key`` counts. Pure.

    ``claimed_time`` is what the signed document says; ``proven_time`` is a time that someone other
    than the signer vouches for (RFC 3161), if any.
    """
    key = trust.find(public_key)
    if key is None:
        return _no("trust.unknown", "no key of the trust file", None)
    claimed = parse_utc(claimed_time)
    if claimed is None:
        return _no("trust.time", f"{claimed_time!r} is no time in UTC", key)
    revoked = key.status is KeyStatus.REVOKED and not _older_than_theft(key, proven_time)
    elsewhere = key.benchmarks != ALL_BENCHMARKS and benchmark not in key.benchmarks
    not_before, not_after = _time(key.not_before), _time(key.not_after)
    early = not_before is not None and claimed < not_before
    late = not_after is not None and claimed > not_after
    for refused, code, message in (
        (revoked, "trust.revoked", "the key is revoked"),
        (role not in key.roles, "trust.role", f"the key may not sign as {role.value}"),
        (elsewhere, "trust.benchmark", f"the key is not trusted for {benchmark}"),
        (early, "trust.too-early", f"signed before {key.not_before}"),
        (late, "trust.too-late", f"signed after {key.not_after}"),
    ):
        if refused:
            return _no(code, message, key)
    return TrustDecision(
        trusted=True,
        code="trust.ok",
        message=f"signed by {key.principal}",
        principal=key.principal,
    )


def load(path: Path, *, not_inside: Path | None = None) -> Trust:
    """Read a trust file; ``KeyError_`` when it is missing, malformed or inside ``not_inside``.

    ``not_inside`` is the bundle about to be verified (or the folder that holds it).
    """
    if not_inside is not None and path.resolve().is_relative_to(not_inside.resolve()):
        _bad(
            "trust.inside-bundle",
            "the trust file lies inside the bundle that it should judge",
            "keep a trust file of your own",
            path,
        )
    try:
        data = read_regular(path, MAX_TRUST_BYTES + 1)
    except OSError as error:
        _bad("trust.missing", f"cannot read it: {error.strerror}", "check the path", path)
    if len(data) > MAX_TRUST_BYTES:
        _bad("trust.too-large", "far too large for a trust file", "name the trust file", path)
    return parse(data, source=str(path))


def parse(data: bytes, *, source: str = "trust file") -> Trust:
    """Return the trust of a trust file's bytes; ``KeyError_`` for anything unclear."""
    document = parse_strict(data, kind="trust", file=source)
    keys = tuple(_key(item, f"{source} key {index}") for index, item in enumerate(document["keys"]))
    _check(keys, source)
    return Trust(keys=keys)


def save(trust: Trust, path: Path) -> None:
    """Write a trust file at once, durably, replacing an older one."""
    _check(trust.keys, str(path))
    document = {"schema": SCHEMA, "keys": [key.as_dict() for key in trust.keys]}
    data = (json.dumps(document, indent=2) + "\n").encode()
    parse(data, source=str(path))  # never write what could not be read
    durable.make_directory(path.parent)
    durable.put_file(path, data, replace=True)


def add(path: Path, key: TrustedKey) -> Trust:
    """Add a key to a trust file, made if it is not there; a key that is there is refused."""
    trust = load(path) if path.exists() else Trust()
    changed = Trust(keys=(*trust.keys, key))
    save(changed, path)
    return changed


def revoke(path: Path, keyid: str, *, compromised_at: str | None = None) -> Trust:
    """Revoke the one key whose id starts with ``keyid`` (8 hex digits or more)."""
    trust = load(path)
    found = [key for key in trust.keys if len(keyid) >= 8 and key.public.keyid.startswith(keyid)]
    if len(found) != 1:
        problem = "no key has" if not found else "several keys have"
        _bad("trust.keyid", f"{problem} the id {keyid[:64]!r}", "give more of its digits", path)
    gone = replace(found[0], status=KeyStatus.REVOKED, compromised_at=compromised_at)
    changed = Trust(keys=tuple(gone if key is found[0] else key for key in trust.keys))
    save(changed, path)
    return changed


def _key(item: dict[str, Any], where: str) -> TrustedKey:
    return TrustedKey(
        public=parse_public(item["public_key"].encode(), source=where),
        principal=item["principal"],
        roles=tuple(KeyRole(role) for role in item["roles"]),
        benchmarks=tuple(item["benchmarks"]),
        not_before=item["not_before"],
        not_after=item["not_after"],
        status=KeyStatus(item["status"]),
        compromised_at=item["compromised_at"],
    )


def _check(keys: tuple[TrustedKey, ...], source: str) -> None:
    """Refuse what no schema sees: one key twice, impossible times, a stolen key still active."""
    if count_distinct(key.public for key in keys) != len(keys):
        _bad("trust.duplicate-key", "a public key is there twice", "merge its entries", source)
    for key in keys:
        name = f"key {key.public.keyid[:16]}"
        times = (key.not_before, key.not_after, key.compromised_at)
        if any(time is not None and parse_utc(time) is None for time in times):
            _bad("trust.time", f"{name} has an impossible time", "use 2026-01-31T12:00:00Z", source)
        if "*" in key.benchmarks and key.benchmarks != ALL_BENCHMARKS:
            _bad("trust.benchmarks", f"{name} names * and others", "use * alone", source)
        if key.compromised_at is not None and key.status is KeyStatus.ACTIVE:
            _bad(
                "trust.contradiction",
                f"{name} is compromised and yet active",
                'set "status": "revoked"',
                source,
            )


def _older_than_theft(key: TrustedKey, proven_time: str | None) -> bool:
    proven, stolen = _time(proven_time), _time(key.compromised_at)
    return proven is not None and stolen is not None and proven < stolen


def _time(text: str | None) -> datetime | None:
    return None if text is None else parse_utc(text)


def _no(code: str, message: str, key: TrustedKey | None) -> TrustDecision:
    principal = None if key is None else key.principal
    return TrustDecision(trusted=False, code=code, message=message, principal=principal)


def _bad(code: str, message: str, fix: str, where: Path | str) -> NoReturn:
    raise KeyError_(code, message, fix=fix, where=Where(file=str(where)))
