"""Ed25519 keys: made, stored, loaded and named. Private material is never printed.

A public key is its 32 bytes; ``keyid`` is the SHA-256 of its SPKI DER in hex, computed here and
never believed from a file. Keys of small order (for which one signature fits many messages),
points off the curve and non-canonical encodings are refused, since OpenSSL itself accepts them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from runner.bundle import durable
from runner.errors import KeyError_, Where

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DEFAULT_NAME = "default"
MAX_KEY_FILE = 64 << 10
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}\Z")
_SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")  # RFC 8410: OID 1.3.101.112, 32 bytes
_SSH_TYPE = b"ssh-ed25519"
_PRIME = 2**255 - 19
_D = -121665 * pow(121666, -1, _PRIME) % _PRIME


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 public key that is safe to verify with; ``raw`` is its 32 bytes (RFC 8032)."""

    raw: bytes

    def __post_init__(self) -> None:
        problem = point_problem(self.raw)
        if problem is not None:
            raise KeyError_("key.weak", f"public key refused: {problem}", fix="use another key")

    @property
    def spki_der(self) -> bytes:
        """The SubjectPublicKeyInfo DER of RFC 8410, 44 bytes."""
        return _SPKI_PREFIX + self.raw

    @property
    def keyid(self) -> str:
        """SHA-256 of the SPKI DER, 64 hex digits."""
        return hashlib.sha256(self.spki_der).hexdigest()

    @property
    def pem(self) -> str:
        """The SPKI as PEM text with a final line feed."""
        body = base64.b64encode(self.spki_der).decode()
        return f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"

    @property
    def ssh_blob(self) -> bytes:
        """The key in SSH wire format (RFC 8709)."""
        return ssh_string(_SSH_TYPE) + ssh_string(self.raw)

    def openssh(self, comment: str = "") -> str:
        """The one-line OpenSSH form, without a line feed."""
        text = f"{_SSH_TYPE.decode()} {base64.b64encode(self.ssh_blob).decode()}"
        return f"{text} {comment}" if comment else text

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Tell whether 64 signature bytes are this key's over the message."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


class SigningKey:
    """A private key that can sign and nothing else; it has no printable form."""

    __slots__ = ("_private", "public")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = PublicKey(private.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"<SigningKey {self.public.keyid[:16]}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a signing key is never pickled")

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of RFC 8032."""
        return self._private.sign(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """Where ``generate`` put the forms of one key; ``ssh_private`` is None when not written."""

    public: PublicKey
    private_pem: Path
    public_pem: Path
    ssh_public: Path
    ssh_private: Path | None


def point_problem(raw: bytes) -> str | None:
    """Return why 32 bytes are no usable Ed25519 public key, or None. Pure arithmetic.

    With a = -1, doubling a point of order 8 gives y = 0, which holds exactly when
    d*y**4 + 2*y**2 - 1 = 0; the orders 1, 2 and 4 are y = 1, y = -1 and y = 0.
    """
    if len(raw) != 32:
        return "it is not 32 bytes"
    y = int.from_bytes(raw, "little") & (2**255 - 1)  # the top bit is the sign of x
    if y >= _PRIME:
        return "its encoding is not canonical"
    y2 = y * y % _PRIME
    if y * (y2 - 1) * (_D * y2 * y2 + 2 * y2 - 1) % _PRIME == 0:
        return "it has small order, so it accepts signatures that nobody made"
    x2 = (y2 - 1) * pow(_D * y2 + 1, -1, _PRIME) % _PRIME
    if pow(x2, (_PRIME - 1) // 2, _PRIME) != 1:
        return "it is not a point of the curve"
    # A sign bit on x = 0 would be non-canonical too, but x = 0 only at y = +-1, refused above.
    return None


def count_distinct(keys: Iterable[PublicKey]) -> int:
    """Return how many signers there are: by public bytes, since one key may bear many ids."""
    return len({key.raw for key in keys})


def ssh_string(data: bytes) -> bytes:
    """Return data in SSH's ``string`` encoding: a 32-bit length, then the bytes (RFC 4251)."""
    return len(data).to_bytes(4, "big") + data


def keys_directory() -> Path:
    """Return ``$SEALBENCH_KEYS`` or ``~/.config/sealbench/keys``."""
    chosen = os.environ.get("SEALBENCH_KEYS")
    return Path(chosen) if chosen else Path.home() / ".config" / "sealbench" / "keys"


def default_key_path() -> Path:
    """Return where the key lies that signs when none is named."""
    return keys_directory() / f"{DEFAULT_NAME}.pem"


def default_public_path() -> Path:
    """Return where the public half of that key lies."""
    return keys_directory() / f"{DEFAULT_NAME}.pub.pem"


def generate(
    directory: Path | None = None,
    name: str = DEFAULT_NAME,
    *,
    passphrase: bytes | None = None,
    comment: str = "sealbench",
    force: bool = False,
) -> KeyFiles:
    """Make a key and write its forms: ``<name>.pem`` (PKCS8, 0600), ``.pub.pem``, ``.ssh.pub`` and
    ``.ssh`` (OpenSSH, 0600).

    Nothing is overwritten unless ``force``. With a passphrase both private forms are encrypted;
    the OpenSSH one is left out where the library for its cipher is missing, rather than written in
    the clear. Raises ``KeyError_`` or ``StorageError``.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if _NAME.match(name) is None:
        _bad("key.name", f"{name[:80]!r} is no key name", "use a-z, 0-9, dot, dash, underscore")
    if passphrase == b"":
        _bad("key.passphrase", "the passphrase is empty", "give a passphrase or none at all")
    folder = keys_directory() if directory is None else directory
    if not folder.exists():
        durable.make_directory(folder, 0o700)
    files = _key_paths(folder, name)
    taken = [path for path in files.values() if os.path.lexists(path)]
    if taken and not force:
        _bad("key.exists", "a key of this name exists", "choose another name or --force", taken[0])
    private = Ed25519PrivateKey.generate()
    public = SigningKey(private).public
    ssh_private = _ssh_private(private, passphrase)
    # The private form first: the others can be made again from it, it from none of them.
    durable.put_file(files["pem"], _pkcs8(private, passphrase), 0o600, replace=force)
    durable.put_file(files["pub.pem"], public.pem.encode(), replace=force)
    durable.put_file(files["ssh.pub"], f"{public.openssh(comment)}\n".encode(), replace=force)
    if ssh_private is not None:
        durable.put_file(files["ssh"], ssh_private, 0o600, replace=force)
    elif force:
        files["ssh"].unlink(missing_ok=True)  # else the old key's form would stay beside the new
    return KeyFiles(
        public=public,
        private_pem=files["pem"],
        public_pem=files["pub.pem"],
        ssh_public=files["ssh.pub"],
        ssh_private=None if ssh_private is None else files["ssh"],
    )


def load_private(path: Path, *, passphrase: bytes | None = None) -> SigningKey:
    """Load a PKCS8 PEM key that only its owner can read; ``KeyError_`` otherwise."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = read_secret_file(path)
    encrypted = data.lstrip().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    if encrypted and passphrase is None:
        _bad("key.encrypted", "the key is encrypted", "give its passphrase", path)
    try:
        # `from None` throughout: a parser's own message could quote what it was parsing.
        private = load_pem_private_key(data, passphrase if encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if encrypted:
            _bad("key.passphrase", "wrong passphrase or damaged key", "try again", path)
        _bad("key.malformed", "not a PKCS8 PEM private key", "see `sealbench keys`", path)
    if not isinstance(private, Ed25519PrivateKey):
        _bad("key.algorithm", "not an Ed25519 key", "make one: `sealbench keys generate`", path)
    return SigningKey(private)


def own_keys(key: SigningKey | None) -> tuple[PublicKey, ...]:
    """Return the public keys that are one's own: that of ``key``, else the default one if any."""
    if key is not None:
        return (key.public,)
    path = default_public_path()
    return (load_public(path),) if path.exists() else ()


def load_public(path: Path) -> PublicKey:
    """Load a public key from a PEM file or a one-line OpenSSH ``.pub`` file."""
    try:
        data = _read_small(path)
    except OSError as error:
        _bad("key.missing", f"cannot read the public key: {_why(error)}", "check the path", path)
    return parse_public(data, source=str(path))


def parse_public(data: bytes, *, source: str = "public key") -> PublicKey:
    """Return the key of PEM text or of an OpenSSH line; ``KeyError_`` for anything else."""
    lines = [line.strip() for line in data.strip().splitlines()]
    try:
        if lines[:1] == [b"-----BEGIN PUBLIC KEY-----"]:
            if lines[-1] != b"-----END PUBLIC KEY-----":
                raise ValueError("no end line")
            der = _b64(b"".join(lines[1:-1]))
            if len(der) != 44 or not der.startswith(_SPKI_PREFIX):
                raise ValueError("not Ed25519")
            return PublicKey(der[12:])
        if len(lines) == 1 and lines[0].startswith(_SSH_TYPE + b" "):
            blob = _b64(lines[0].split()[1])
            head = ssh_string(_SSH_TYPE) + (32).to_bytes(4, "big")
            if len(blob) != len(head) + 32 or not blob.startswith(head):
                raise ValueError("not Ed25519")
            return PublicKey(blob[len(head) :])
        raise ValueError("neither a PEM public key nor an OpenSSH line")
    except (ValueError, IndexError) as error:
        if b"PRIVATE KEY" in data:
            _bad("key.private", "this is a private key", "give the public one (.pub.pem)", source)
        _bad("key.malformed", f"no Ed25519 public key: {error}", "give a .pub.pem file", source)


def read_secret_file(path: Path) -> bytes:
    """Return a small file that only its owner may read, checked on the opened file itself."""
    try:
        return _read_small(path, secret=True)
    except FileNotFoundError:
        _bad("key.missing", "no such key", "make one: `sealbench keys generate`", path)
    except OSError as error:
        _bad("key.unreadable", f"cannot read the key: {_why(error)}", "check the path", path)


def _read_small(path: Path, *, secret: bool = False) -> bytes:
    # O_NONBLOCK: opening a fifo must not wait for somebody to write to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            _bad("key.malformed", "not a regular file", "name the key's file", path)
        if secret and status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            _bad("key.too-open", f"others can read it (mode {mode:04o})", f"chmod 600 {path}", path)
        data = stream.read(MAX_KEY_FILE + 1)
    if len(data) > MAX_KEY_FILE:
        _bad("key.malformed", "far too large for a key", "name the key's file", path)
    return data


def _pkcs8(private: Ed25519PrivateKey, passphrase: bytes | None) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    cipher = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, cipher)


def _ssh_private(private: Ed25519PrivateKey, passphrase: bytes | None) -> bytes | None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    cipher = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    try:
        return private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, cipher)
    except UnsupportedAlgorithm:  # bcrypt, which only this form's key derivation needs
        return None


def _key_paths(folder: Path, name: str) -> dict[str, Path]:
    return {form: folder / f"{name}.{form}" for form in ("pem", "pub.pem", "ssh", "ssh.pub")}


def _b64(text: bytes) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("broken base64") from error
    if base64.b64encode(data) != text:
        raise ValueError("base64 that is not canonical")
    return data


def _why(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else "unknown error"


def _bad(code: str, message: str, fix: str, path: Path | str | None = None) -> NoReturn:
    where = None if path is None else Where(file=str(path))
    raise KeyError_(code, message, fix=fix, where=where) from None
