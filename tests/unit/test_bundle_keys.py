"""Keys: forms that other tools read, permissions, and public keys that nobody may trust."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from runner import keys
from runner.errors import KeyError_, SealbenchError, StorageError
from tests.unit.bundle_files import KEY, signing_key

PRIME = 2**255 - 19
# The y coordinates of the points of order 8, as published with many Ed25519 test suites.
ORDER_8 = (
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
)


def little(number: int) -> bytes:
    return number.to_bytes(32, "little")


def with_sign(raw: bytes) -> bytes:
    return raw[:31] + bytes([raw[31] | 0x80])


SMALL_ORDER = [
    form
    for raw in [little(1), little(PRIME - 1), little(0), *map(bytes.fromhex, ORDER_8)]
    for form in (raw, with_sign(raw))
]


@pytest.mark.parametrize("raw", SMALL_ORDER, ids=bytes.hex)
def test_small_order_keys_are_refused(raw: bytes) -> None:
    assert "small order" in (keys.point_problem(raw) or "")
    with pytest.raises(KeyError_) as caught:
        keys.PublicKey(raw)
    assert caught.value.code == "key.weak"


def test_the_library_itself_takes_a_small_order_key_for_any_message() -> None:
    """Why we refuse them: the identity key "verifies" a signature that nobody made."""
    identity = ed25519.Ed25519PublicKey.from_public_bytes(little(1))
    forged = little(1) + bytes(32)
    identity.verify(forged, b"any message")
    identity.verify(forged, b"any other message")


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (little(PRIME), "canonical"),  # y = 0 written another way
        (little(PRIME + 1), "canonical"),
        (with_sign(little(PRIME + 3)), "canonical"),
        (little(2**255 - 1), "canonical"),
        (little(2), "point of the curve"),
        (b"", "32 bytes"),
        (bytes(31), "32 bytes"),
        (bytes(33), "32 bytes"),
    ],
)
def test_other_impossible_keys_are_refused(raw: bytes, problem: str) -> None:
    assert problem in (keys.point_problem(raw) or "")


def test_every_generated_key_is_accepted() -> None:
    for seed in range(64):
        assert keys.point_problem(signing_key(seed).public.raw) is None


def test_keyid_is_the_sha256_of_the_spki_that_openssl_writes(tmp_path: Path) -> None:
    made = keys.generate(tmp_path, "one")
    der = subprocess.run(
        ["openssl", "pkey", "-in", str(made.private_pem), "-pubout", "-outform", "DER"],
        check=True,
        capture_output=True,
    ).stdout
    assert made.public.spki_der == der
    assert made.public.keyid == hashlib.sha256(der).hexdigest()


def test_the_forms_agree_and_only_private_ones_are_private(tmp_path: Path) -> None:
    made = keys.generate(tmp_path / "new" / "folder", comment="me")
    modes = {path.name: path.stat().st_mode & 0o777 for path in made.private_pem.parent.iterdir()}
    assert modes == {
        "default.pem": 0o600,
        "default.ssh": 0o600,
        "default.pub.pem": 0o644,
        "default.ssh.pub": 0o644,
    }
    assert made.private_pem.parent.stat().st_mode & 0o777 == 0o700
    assert keys.load_private(made.private_pem).public == made.public
    assert keys.load_public(made.public_pem) == made.public
    assert keys.load_public(made.ssh_public) == made.public
    assert made.ssh_private is not None
    from_ssh = load_ssh_private_key(made.ssh_private.read_bytes(), None)
    assert isinstance(from_ssh, ed25519.Ed25519PrivateKey)
    assert from_ssh.public_key().public_bytes_raw() == made.public.raw


def test_ssh_keygen_reads_the_openssh_private_form(tmp_path: Path) -> None:
    made = keys.generate(tmp_path, comment="me")
    shown = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(made.ssh_private)], check=True, capture_output=True
    ).stdout
    assert shown.split()[:2] == made.ssh_public.read_bytes().split()[:2]


def test_an_encrypted_key_needs_its_passphrase(tmp_path: Path) -> None:
    made = keys.generate(tmp_path, passphrase=b"open sesame")
    assert b"ENCRYPTED" in made.private_pem.read_bytes()
    assert keys.load_private(made.private_pem, passphrase=b"open sesame").public == made.public
    for passphrase, code in ((None, "key.encrypted"), (b"wrong", "key.passphrase")):
        with pytest.raises(KeyError_) as caught:
            keys.load_private(made.private_pem, passphrase=passphrase)
        assert caught.value.code == code
    # No private form is ever left in the clear beside the encrypted one.
    for path in tmp_path.iterdir():
        if path.name not in ("default.pub.pem", "default.ssh.pub"):
            with pytest.raises((KeyError_, ValueError, TypeError)):
                load_ssh_private_key(path.read_bytes(), None)


def test_an_empty_passphrase_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(KeyError_) as caught:
        keys.generate(tmp_path, passphrase=b"")
    assert caught.value.code == "key.passphrase"


def test_a_passphrase_for_a_key_that_has_none_is_ignored(tmp_path: Path) -> None:
    made = keys.generate(tmp_path)
    assert keys.load_private(made.private_pem, passphrase=b"not needed").public == made.public


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610])
def test_a_key_that_others_can_reach_is_refused_with_the_fix(tmp_path: Path, mode: int) -> None:
    made = keys.generate(tmp_path)
    made.private_pem.chmod(mode)
    with pytest.raises(KeyError_) as caught:
        keys.load_private(made.private_pem)
    assert caught.value.code == "key.too-open"
    assert caught.value.fix == f"chmod 600 {made.private_pem}"


def test_keys_are_not_overwritten_unless_forced(tmp_path: Path) -> None:
    first = keys.generate(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(KeyError_) as caught:
        keys.generate(tmp_path)
    assert caught.value.code == "key.exists"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    second = keys.generate(tmp_path, force=True)
    assert second.public != first.public
    assert keys.load_private(second.private_pem).public == second.public
    assert keys.load_public(second.ssh_public) == second.public


def test_forcing_an_encrypted_key_leaves_no_older_private_form(tmp_path: Path) -> None:
    older = keys.generate(tmp_path)
    made = keys.generate(tmp_path, passphrase=b"secret", force=True)
    assert older.ssh_private is not None
    if made.ssh_private is None:
        assert not older.ssh_private.exists()


def test_even_a_dangling_link_counts_as_taken(tmp_path: Path) -> None:
    (tmp_path / "default.pem").symlink_to(tmp_path / "elsewhere.pem")
    with pytest.raises(KeyError_) as caught:
        keys.generate(tmp_path)
    assert caught.value.code == "key.exists"
    assert not (tmp_path / "elsewhere.pem").exists()


@pytest.mark.parametrize("name", ["", "../up", "a/b", "UPPER", ".hidden", "x" * 41, "new\nline"])
def test_odd_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeyError_) as caught:
        keys.generate(tmp_path, name)
    assert caught.value.code == "key.name"


def test_an_unwritable_place_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        keys.generate(tmp_path / "file" / "keys")


def test_the_default_place_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEALBENCH_KEYS", str(tmp_path))
    assert keys.default_key_path() == tmp_path / "default.pem"
    monkeypatch.delenv("SEALBENCH_KEYS")
    monkeypatch.setenv("HOME", "/home/someone")
    assert keys.keys_directory() == Path("/home/someone/.config/sealbench/keys")


def pkcs8(private: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (pkcs8(ec.generate_private_key(ec.SECP256R1())), "key.algorithm"),
        (b"not a key", "key.malformed"),
        (b"", "key.malformed"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "key.malformed"),
        (b"x" * (keys.MAX_KEY_FILE + 1), "key.malformed"),
    ],
)
def test_other_files_are_no_signing_keys(tmp_path: Path, data: bytes, code: str) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(KeyError_) as caught:
        keys.load_private(path)
    assert caught.value.code == code


def test_missing_and_odd_files(tmp_path: Path) -> None:
    with pytest.raises(KeyError_) as caught:
        keys.load_private(tmp_path / "none.pem")
    assert caught.value.code == "key.missing"
    os.mkfifo(tmp_path / "fifo", 0o600)  # must not hang
    with pytest.raises(KeyError_):
        keys.load_private(tmp_path / "fifo")
    with pytest.raises(KeyError_):
        keys.load_public(tmp_path / "fifo")
    with pytest.raises(KeyError_):
        keys.load_private(tmp_path)
    with pytest.raises(KeyError_) as caught:
        keys.load_public(tmp_path / "none.pub.pem")
    assert caught.value.code == "key.missing"


GOOD_PEM = KEY.public.pem
GOOD_SSH = KEY.public.openssh("someone")


@pytest.mark.parametrize(
    "text", [GOOD_PEM, GOOD_PEM.replace("\n", "\r\n"), f"\n{GOOD_PEM}\n", GOOD_SSH, f"{GOOD_SSH}\n"]
)
def test_public_keys_are_read_from_pem_and_openssh(text: str) -> None:
    assert keys.parse_public(text.encode()) == KEY.public


BODY = GOOD_PEM.splitlines()[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-rsa AAAA",
        "ssh-ed25519",
        f"ssh-ed25519 {GOOD_SSH.split()[1][:-4]}",
        f"{GOOD_SSH}\n{GOOD_SSH}",
        GOOD_PEM.replace(BODY, BODY[:-4]),
        GOOD_PEM.replace(BODY, f"{BODY}AAAA"),
        GOOD_PEM.replace(BODY, BODY[:-1] + "!"),
        GOOD_PEM.replace("-----END PUBLIC KEY-----", ""),
        GOOD_PEM + GOOD_PEM,
        ec.generate_private_key(ec.SECP256R1())
        .public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        .decode(),
    ],
)
def test_anything_else_is_no_public_key(text: str) -> None:
    with pytest.raises(KeyError_) as caught:
        keys.parse_public(text.encode())
    assert caught.value.code == "key.malformed"


def test_a_private_key_given_for_a_public_one_is_named_but_not_shown() -> None:
    private = pkcs8(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([9]) * 32))
    with pytest.raises(KeyError_) as caught:
        keys.parse_public(private)
    assert caught.value.code == "key.private"
    assert_not_shown(caught.value, private)


def assert_not_shown(error: SealbenchError, private: bytes) -> None:
    body = private.decode().splitlines()[1]
    assert body not in f"{error} {error.fix} {error.as_dict()} {error.__cause__!r}"
    assert error.__suppress_context__


def test_no_error_and_no_repr_shows_private_material(tmp_path: Path) -> None:
    seed = bytes([1]) * 32
    assert seed.hex() not in repr(KEY)
    with pytest.raises(TypeError):
        pickle.dumps(KEY)
    made = keys.generate(tmp_path)
    data = made.private_pem.read_bytes()
    made.private_pem.write_bytes(data.replace(b"-----END", b"----END"))
    with pytest.raises(KeyError_) as caught:
        keys.load_private(made.private_pem)
    assert_not_shown(caught.value, data)


def test_a_signature_fits_one_key_and_one_message() -> None:
    signature = KEY.sign(b"message")
    assert KEY.public.verify(signature, b"message")
    assert not KEY.public.verify(signature, b"messagf")
    assert not signing_key(2).public.verify(signature, b"message")
    # S + L verifies too in a careless implementation: one signature, two spellings.
    order = 2**252 + 27742317777372353535851937790883648493
    stretched = int.from_bytes(signature[32:], "little") + order
    assert not KEY.public.verify(signature[:32] + little(stretched), b"message")


def test_signers_are_counted_by_their_bytes() -> None:
    again = keys.PublicKey(KEY.public.raw)
    assert keys.count_distinct([KEY.public, again, signing_key(2).public]) == 2
