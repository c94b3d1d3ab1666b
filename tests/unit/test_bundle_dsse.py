"""Envelopes: one spelling, one signature, and other people's tools agree."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import Key, SSlibKey  # type: ignore[attr-defined]  # no __all__

from runner.bundle import dsse
from runner.canonical import canonical_bytes
from runner.errors import BundleError
from runner.keys import PublicKey
from tests.unit.bundle_files import KEY, signing_key

PAYLOAD = b'{"any":"byte"}'  # 14 bytes: its base64 is padded
ENVELOPE = dsse.sign(PAYLOAD, KEY)
FILE = "receipt.dsse.json"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def changed(**fields: Any) -> bytes:
    return canonical_bytes(json.loads(ENVELOPE) | fields)


def signature(**fields: Any) -> dict[str, Any]:
    first: dict[str, Any] = json.loads(ENVELOPE)["signatures"][0]
    return first | fields


def test_pae_counts_bytes_not_characters() -> None:
    assert dsse.pae(b"hello world", "http://example.com/HelloWorld") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert dsse.pae("é".encode(), "t") == b"DSSEv1 1 t 2 \xc3\xa9"
    assert dsse.pae(b"", "") == b"DSSEv1 0  0 "


def test_verify_returns_the_signed_bytes_and_the_signer() -> None:
    other = signing_key(2).public
    verified = dsse.verify(ENVELOPE, [other, KEY.public], file=FILE)
    assert (verified.payload, verified.signer) == (PAYLOAD, KEY.public)


def test_the_envelope_is_canonical_and_deterministic() -> None:
    assert dsse.sign(PAYLOAD, KEY) == ENVELOPE
    assert canonical_bytes(json.loads(ENVELOPE)) == ENVELOPE


SPACED = b'{ "payload"' + ENVELOPE[len(b'{"payload"') :]
SIG = signature()["sig"]
PAYLOAD_TEXT = b64(PAYLOAD)
REFUSED = {
    "empty": (b"", "bundle.not-json"),
    "not JSON": (b"{", "bundle.not-json"),
    "an array": (b"[]", "bundle.not-json"),
    "BOM": (b"\xef\xbb\xbf" + ENVELOPE, "bundle.not-json"),
    "final line feed": (ENVELOPE + b"\n", "bundle.not-canonical"),
    "white space": (SPACED, "bundle.not-canonical"),
    "CRLF": (ENVELOPE + b"\r\n", "bundle.not-canonical"),
    "escape": (ENVELOPE.replace(b"payloadType", b"payload\\u0054ype"), "bundle.not-canonical"),
    "duplicate key": (
        ENVELOPE.replace(b'{"payload":', b'{"payload":"AAAA","payload":', 1),
        "bundle.not-canonical",
    ),
    "NaN": (ENVELOPE[:-1] + b',"x":NaN}', "bundle.not-json"),
    "big integer": (ENVELOPE[:-1] + b',"x":9007199254740993}', "canonical.unsafe-number"),
    "huge integer": (ENVELOPE[:-1] + b',"x":100000000000000000000}', "canonical.unsafe-number"),
    "two values": (ENVELOPE + ENVELOPE, "bundle.not-json"),
    "deep": (b'{"x":' * 1020 + b"1" + b"}" * 1020, "bundle.not-canonical"),
    "deeper": (b"[" * 100_000, "bundle.not-json"),
    "extra field": (changed(note="hi"), "dsse.form"),
    "no signature": (changed(signatures=[]), "dsse.form"),
    "two signatures": (changed(signatures=[signature(), signature()]), "dsse.form"),
    "extra field beside the signature": (changed(signatures=[signature(x="y")]), "dsse.form"),
    "no keyid": (changed(signatures=[{"sig": SIG}]), "dsse.form"),
    "keyid null": (changed(signatures=[signature(keyid=None)]), "dsse.form"),
    "payload no text": (changed(payload=1), "dsse.form"),
    "other payload type": (changed(payloadType="text/plain"), "dsse.payload-type"),
    "unpadded base64": (changed(payload=PAYLOAD_TEXT.rstrip("=")), "dsse.base64"),
    "base64 with a line feed": (changed(payload=PAYLOAD_TEXT + "\n"), "dsse.base64"),
    "base64 with stray bits": (changed(payload=PAYLOAD_TEXT[:-2] + "R="), "dsse.base64"),
    "urlsafe base64": (changed(signatures=[signature(sig="_" + SIG[1:])]), "dsse.base64"),
    "non-ASCII base64": (changed(payload="é" + PAYLOAD_TEXT), "dsse.base64"),
    "other payload": (changed(payload=b64(b'{"any":"other"}')), "dsse.signature"),
    "empty payload": (changed(payload=""), "dsse.signature"),
    "short signature": (changed(signatures=[signature(sig=b64(bytes(63)))]), "dsse.signature"),
    "zero signature": (changed(signatures=[signature(sig=b64(bytes(64)))]), "dsse.signature"),
    "unknown keyid": (changed(signatures=[signature(keyid="00" * 32)]), "dsse.unknown-signer"),
    "keyid in capitals": (
        changed(signatures=[signature(keyid=KEY.public.keyid.upper())]),
        "dsse.unknown-signer",
    ),
    "empty keyid": (changed(signatures=[signature(keyid="")]), "dsse.unknown-signer"),
}


@pytest.mark.parametrize(("envelope", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_anything_but_the_one_spelling_is_refused(envelope: bytes, code: str) -> None:
    with pytest.raises(BundleError) as caught:
        dsse.verify(envelope, [KEY.public], file=FILE)
    assert caught.value.code == code
    assert caught.value.where is not None
    assert caught.value.where.file == FILE


def test_a_forged_keyid_helps_nobody() -> None:
    """Mallory signs and writes the id of a trusted key; or writes her own beside our signature."""
    mallory = signing_key(66)
    hers = json.loads(dsse.sign(PAYLOAD, mallory))
    hers["signatures"][0]["keyid"] = KEY.public.keyid
    with pytest.raises(BundleError) as caught:
        dsse.verify(canonical_bytes(hers), [KEY.public], file=FILE)
    assert caught.value.code == "dsse.signature"
    renamed = changed(signatures=[signature(keyid=mallory.public.keyid)])
    with pytest.raises(BundleError) as caught:
        dsse.verify(renamed, [KEY.public, mallory.public], file=FILE)
    assert caught.value.code == "dsse.signature"


def test_no_keys_no_trust() -> None:
    with pytest.raises(BundleError) as caught:
        dsse.verify(ENVELOPE, [], file=FILE)
    assert caught.value.code == "dsse.unknown-signer"


def test_no_bit_of_an_envelope_can_be_flipped() -> None:
    for position in range(len(ENVELOPE) * 8):
        mutated = bytearray(ENVELOPE)
        mutated[position // 8] ^= 1 << position % 8
        with pytest.raises(BundleError):
            dsse.verify(bytes(mutated), [KEY.public], file=FILE)


def sslib_key(key: PublicKey, keyid: str | None = None) -> SSlibKey:
    return SSlibKey(keyid or key.keyid, "ed25519", "ed25519", {"public": key.raw.hex()})


def test_securesystemslib_verifies_the_envelope() -> None:
    envelope = Envelope.from_dict(json.loads(ENVELOPE))
    accepted = envelope.verify([sslib_key(KEY.public)], 1)
    assert list(accepted) == [KEY.public.keyid]
    assert envelope.payload == PAYLOAD
    tampered = Envelope.from_dict(json.loads(changed(payload=b64(b"{}"))))
    with pytest.raises(VerificationError):
        tampered.verify([sslib_key(KEY.public)], 1)


def test_two_keyids_of_one_key_are_two_signers_elsewhere_but_not_here() -> None:
    """Why signers are counted by public bytes and an envelope has one signature."""
    data = json.loads(changed(signatures=[signature(), signature(keyid="another")]))
    envelope = Envelope.from_dict(data)
    both: list[Key] = [sslib_key(KEY.public), sslib_key(KEY.public, "another")]
    assert len(envelope.verify(both, 2)) == 2
    two = canonical_bytes(json.loads(changed(signatures=[signature(), signature(keyid="another")])))
    with pytest.raises(BundleError):
        dsse.verify(two, [KEY.public], file=FILE)


def test_plain_openssl_verifies_the_envelope(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(KEY.public.pem)
    (tmp_path / "sig").write_bytes(base64.b64decode(SIG))
    for payload, good in ((PAYLOAD, True), (PAYLOAD + b" ", False)):
        (tmp_path / "pae").write_bytes(dsse.pae(payload))
        done = subprocess.run(
            ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", "key.pem",
             "-in", "pae", "-sigfile", "sig"],
            cwd=tmp_path, check=False, capture_output=True,
        )  # fmt: skip
        assert (done.returncode == 0) is good
