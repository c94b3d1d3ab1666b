"""DSSE: one Ed25519 signature over a payload of bytes that nobody has parsed yet.

An envelope is canonical JSON with exactly one signature. ``verify`` returns the bytes that were
verified, so no caller parses anything else. ``keyid`` only chooses which key to try: it is no part
of what is signed, and a wrong one is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from runner.bundle.documents import canonical_object
from runner.canonical import canonical_bytes
from runner.errors import BundleError, Where
from runner.keys import PublicKey, SigningKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A payload and the key whose signature over it holds."""

    payload: bytes
    signer: PublicKey


def pae(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """Return DSSE's pre-authentication encoding: lengths are bytes, in decimal."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload: bytes, key: SigningKey) -> bytes:
    """Return the canonical envelope of a payload, without a final line feed."""
    signature = base64.b64encode(key.sign(pae(payload))).decode()
    return canonical_bytes(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"keyid": key.public.keyid, "sig": signature}],
        }
    )


def unverified_payload(envelope: bytes, *, file: str) -> bytes:
    """Return the payload of a well-formed envelope, whoever signed it."""
    return _opened(envelope, file)[0]


def named_keyid(envelope: bytes, *, file: str) -> str:
    """Return the key id that a well-formed envelope names; nothing proves that it is that key."""
    return _opened(envelope, file)[2]


def _opened(envelope: bytes, file: str) -> tuple[bytes, bytes, str]:
    """Return (payload, signature, keyid) of a well-formed envelope."""
    document = canonical_object(envelope, file=file)
    match document:
        case {
            "payload": str(payload_text),
            "payloadType": str(kind),
            "signatures": [{"keyid": str(keyid), "sig": str(sig_text), **extra}],
            **more,
        } if not extra and not more:
            pass
        case _:
            _refuse("dsse.form", "not an envelope with exactly one signature", file)
    if kind != PAYLOAD_TYPE:
        _refuse("dsse.payload-type", f"payload type {kind[:80]!r} is not {PAYLOAD_TYPE}", file)
    return _exact_base64(payload_text, file), _exact_base64(sig_text, file), keyid


def verify(envelope: bytes, keys: Iterable[PublicKey], *, file: str) -> Verified:
    """Return the payload that one of the keys signed; ``BundleError`` about ``file`` otherwise."""
    payload, signature, keyid = _opened(envelope, file)
    signer = next((key for key in keys if key.keyid == keyid), None)
    if signer is None:
        _refuse("dsse.unknown-signer", f"signed by no key that is trusted: {keyid[:64]!r}", file)
    if len(signature) != 64 or not signer.verify(signature, pae(payload)):
        _refuse("dsse.signature", f"the signature is not by key {signer.keyid[:16]}", file)
    return Verified(payload=payload, signer=signer)


def _exact_base64(text: str, file: str) -> bytes:
    """Decode standard base64 that has exactly one spelling: no white space, no stray bits."""
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        data = b""
    if base64.b64encode(data).decode() != text:
        _refuse("dsse.base64", "a field is not exact base64", file)
    return data


def _refuse(code: str, message: str, file: str) -> NoReturn:
    raise BundleError(
        code,
        message,
        fix="get the bundle again, and the signer's public key from the signer",
        where=Where(file=file),
    )
