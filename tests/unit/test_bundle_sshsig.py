"""SSHSIG files: ``ssh-keygen`` accepts ours, refuses others, and would write the same itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

from runner import keys
from runner.bundle import sshsig
from runner.keys import load_private
from tests.unit.bundle_files import KEY, allowed_signers, signing_key

MESSAGE = b'{"a":"manifest"}'
SIGNATURE = sshsig.sign(MESSAGE, KEY)


def keygen_verifies(folder: Path, signature: bytes, message: bytes, namespace: str) -> bool:
    (folder / "allowed").write_text(allowed_signers("me@example.org"))
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


def test_ssh_keygen_signs_the_same_with_the_generated_key(tmp_path: Path) -> None:
    """Ed25519 is deterministic: only where the lines are wrapped may differ."""
    made = keys.generate(tmp_path)
    (tmp_path / "manifest.json").write_bytes(MESSAGE)
    subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-f", str(made.ssh_private), "-n", "sealbench",
         "manifest.json"],
        cwd=tmp_path, check=True, capture_output=True, input=b"y\n",
    )  # fmt: skip
    theirs = (tmp_path / "manifest.json.sig").read_bytes()
    ours = sshsig.sign(MESSAGE, load_private(made.private_pem))
    assert b"".join(theirs.split()) == b"".join(ours.split())
