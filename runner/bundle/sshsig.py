"""SSHSIG of manifest.json, so that ``ssh-keygen -Y verify`` alone can check who sealed a bundle.

A convenience beside the receipt: same key, namespace ``sealbench``, format of OpenSSH's
PROTOCOL.sshsig with SHA-512. It binds the manifest's bytes, not the receipt's claims.
"""

from __future__ import annotations

import base64
import hashlib
import textwrap

from runner.keys import PublicKey, SigningKey, ssh_string

NAMESPACE = b"sealbench"
FILE = "manifest.json.sig"
_MAGIC = b"SSHSIG"
_HASH = b"sha512"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"


def sign(message: bytes, key: SigningKey) -> bytes:
    """Return the armoured signature file of a message."""
    return _armour(key.public, key.sign(_signed_data(message)))


def _signed_data(message: bytes) -> bytes:
    digest = hashlib.sha512(message).digest()
    return _MAGIC + b"".join(map(ssh_string, (NAMESPACE, b"", _HASH, digest)))


def _blob(key: PublicKey, signature: bytes) -> bytes:
    inner = ssh_string(b"ssh-ed25519") + ssh_string(signature)
    fields = (key.ssh_blob, NAMESPACE, b"", _HASH, inner)
    return _MAGIC + (1).to_bytes(4, "big") + b"".join(map(ssh_string, fields))


def _armour(key: PublicKey, signature: bytes) -> bytes:
    body = textwrap.wrap(base64.b64encode(_blob(key, signature)).decode(), 76)
    return "\n".join([_BEGIN, *body, _END, ""]).encode()
