"""SSHSIG files: ``ssh-keygen`` accepts ours, we accept ``ssh-keygen``'s, nobody accepts others."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from runner import keys
from runner.bundle import sshsig
from runner.errors import BundleError
from runner.keys import load_private
from tests.unit.bundle_files import KEY, signing_key

MESSAGE = b'{"a":"manifest"}'
SIGNATURE = sshsig.sign(MESSAGE, KEY)


def keygen_verifies(folder: Path, signature: bytes, message: bytes, namespace: str) -> bool:
    (folder / "allowed").write_text(sshsig.allowed_signers_line("me@example.org", KEY.public))
    (folder / "sig").write_bytes(signature)
    done = subprocess.run(
        ["ssh-keygen", "-Y", "verify", "-f", "allowed", "-I", "me@example.org", "-n", namespace,
         "-s", "sig"],
        cwd=folder, input=message, check=False, capture_output=True,
    )  # fmt: skip
    return done.returncode == 0


def test_ssh_keygen_verifies_our_signature(tmp_path: Path) -> None:
    assert keygen_verifies(tmp_path, SIGNATURE, MESSAGE, "sealbench")
    assert not keygen_verifies(tmp_path, SIGNATURE, MESSAGE + b" ", "sealbench")
    assert not keygen_verifies(tmp_path, SIGNATURE, MESSAGE, "file")
    assert not keygen_verifies(tmp_path, sshsig.sign(MESSAGE, signing_key(2)), MESSAGE, "sealbench")


def test_we_verify_what_ssh_keygen_signs(tmp_path: Path) -> None:
    made = keys.generate(tmp_path)
    (tmp_path / "manifest.json").write_bytes(MESSAGE)
    for namespace, good in (("sealbench", True), ("file", False)):
        subprocess.run(
            ["ssh-keygen", "-Y", "sign", "-f", str(made.ssh_private), "-n", namespace,
             "manifest.json"],
            cwd=tmp_path, check=True, capture_output=True, input=b"y\n",
        )  # fmt: skip
        theirs = (tmp_path / "manifest.json.sig").read_bytes()
        if good:
            sshsig.verify(theirs, MESSAGE, load_private(made.private_pem).public)
        else:
            with pytest.raises(BundleError):
                sshsig.verify(theirs, MESSAGE, load_private(made.private_pem).public)
        (tmp_path / "manifest.json.sig").unlink()


def test_ours_verifies_here_too() -> None:
    sshsig.verify(SIGNATURE, MESSAGE, KEY.public)


def test_no_bit_can_be_flipped() -> None:
    for position in range(len(SIGNATURE) * 8):
        mutated = bytearray(SIGNATURE)
        mutated[position // 8] ^= 1 << position % 8
        with pytest.raises(BundleError):
            sshsig.verify(bytes(mutated), MESSAGE, KEY.public)


def rebuilt(blob: bytes) -> bytes:
    body = base64.b64encode(blob)
    return b"-----BEGIN SSH SIGNATURE-----\n" + body + b"\n-----END SSH SIGNATURE-----\n"


BLOB = base64.b64decode(b"".join(SIGNATURE.split(b"\n")[1:-2]))


def test_only_the_wrapping_is_free() -> None:
    sshsig.verify(rebuilt(BLOB), MESSAGE, KEY.public)


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        b"\n",
        SIGNATURE[:-1],
        SIGNATURE + b"\n",
        SIGNATURE + SIGNATURE,
        rebuilt(BLOB.replace(b"sha512", b"sha256")),
        rebuilt(BLOB.replace(b"\0\0\0\1", b"\0\0\0\2", 1)),
        rebuilt(BLOB + b"\0"),
        rebuilt(BLOB[:-1]),
        rebuilt(b""),
        sshsig.sign(MESSAGE, signing_key(2)),
        sshsig.sign(MESSAGE + b" ", KEY),
    ],
)
def test_others_are_refused(signature: bytes) -> None:
    with pytest.raises(BundleError) as caught:
        sshsig.verify(signature, MESSAGE, KEY.public)
    assert caught.value.code == "sshsig.signature"
