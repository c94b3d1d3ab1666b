"""Read a bundle's folder without believing anything in it.

Every file is opened below one directory descriptor, a segment at a time, never through a symbolic
link; only regular files are read, never more bytes than the manifest says. Contents are hashed in
the same read that serves the caller, so what was checked is what was used: there is no second read
for somebody to change a file before.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn, cast

from runner.bundle.admission import Admission, Fault, admit, fault_of
from runner.bundle.manifest import BundleManifest, FileEntry
from runner.bundle.paths import MANIFEST, MAX_METADATA, RECEIPT
from runner.errors import BundleError, Where
from runner.trust import Trust

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1 << 20
MAX_FAULTS = 100
_FIX = "get the bundle again from its author"


class VerifiedFile(io.RawIOBase):
    """A file of a bundle that is hashed while it is read.

    Reading past its end raises ``BundleError`` unless size and SHA-256 are the manifest's; reading
    more bytes than the manifest says raises at once. Until the end was reached nothing is proven.
    """

    def __init__(self, descriptor: int, entry: FileEntry, proven: Callable[[str], None]) -> None:
        super().__init__()
        self._file = io.FileIO(descriptor, "rb")
        self._entry = entry
        self._proven = proven
        self._digest = hashlib.sha256()
        self._size = 0

    def readable(self) -> bool:
        """Always: this is a source of bytes."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer and hash what came; verify at the end."""
        count = self._file.readinto(buffer) or 0
        if count:
            self._size += count
            if self._size > self._entry.size:
                _refuse("bundle.size", "it is larger than the manifest says", self._entry.path)
            self._digest.update(memoryview(buffer).cast("B")[:count])
            return count
        if self._size != self._entry.size:
            _refuse("bundle.size", "it is smaller than the manifest says", self._entry.path)
        if self._digest.hexdigest() != self._entry.sha256:
            _refuse("bundle.digest", "its SHA-256 is not the manifest's", self._entry.path)
        self._proven(self._entry.path)
        return 0

    def close(self) -> None:
        """Close the descriptor; proves nothing."""
        self._file.close()
        super().close()


class BundleView:
    """A bundle whose manifest may be believed; files are verified as they are read.

    ``admission`` has the claims, the signer and the trust decision; ``receipt_bytes`` (None where
    there is no receipt) and ``manifest_bytes`` are the bytes that were judged.
    """

    def __init__(
        self,
        root: int,
        admission: Admission,
        manifest: BundleManifest,
        own: tuple[bytes | None, bytes],
    ) -> None:
        self._root = root
        self.admission = admission
        self.manifest = manifest
        self.receipt_bytes, self.manifest_bytes = own
        self._verified: set[str] = set()

    def open_verified(self, path: str) -> BinaryIO:
        """Open a listed file for one pass; see ``VerifiedFile`` for when it raises."""
        entry = self.manifest.entry(path)
        raw = VerifiedFile(self._descriptor(entry), entry, self._verified.add)
        return cast(BinaryIO, io.BufferedReader(raw, CHUNK))

    def read_verified(self, path: str, *, limit: int = MAX_METADATA) -> bytes:
        """Return a listed file's verified bytes; ``BundleError`` when it is larger than limit."""
        if self.manifest.entry(path).size > limit:
            _refuse("bundle.too-large", f"larger than {limit} bytes", path)
        with self.open_verified(path) as stream:
            return stream.read()

    @property
    def unverified(self) -> tuple[FileEntry, ...]:
        """The files that nobody has read to their verified end yet."""
        return tuple(entry for entry in self.manifest.files if entry.path not in self._verified)

    def check_remaining(self) -> tuple[Fault, ...]:
        """Read every file that is not verified yet; return a fault for each that is not as listed.

        Memory does not grow with the files.
        """
        buffer = bytearray(CHUNK)
        return tuple(islice(self._remaining_faults(buffer), MAX_FAULTS))

    def _remaining_faults(self, buffer: bytearray) -> Iterator[Fault]:
        for entry in self.unverified:
            try:
                with VerifiedFile(self._descriptor(entry), entry, self._verified.add) as stream:
                    while stream.readinto(buffer):
                        pass
            except BundleError as error:
                yield fault_of(error, entry.path)

    def _descriptor(self, entry: FileEntry) -> int:
        descriptor = open_below(self._root, entry.path)
        if os.fstat(descriptor).st_size != entry.size:
            os.close(descriptor)
            _refuse("bundle.size", "its size is not the manifest's", entry.path)
        return descriptor

    def close(self) -> None:
        """Close the folder; the view is of no use afterwards."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def __enter__(self) -> BundleView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What ``examine`` found: ``view`` is None when nothing in the bundle may be believed."""

    view: BundleView | None
    admission: Admission
    faults: tuple[Fault, ...]

    def __enter__(self) -> Opening:
        return self

    def __exit__(self, *_: object) -> None:
        if self.view is not None:
            self.view.close()


def examine(
    bundle: Path, *, protocol_id: str | None, trust: Trust | None, allow_unsigned: bool = False
) -> Opening:
    """Open a bundle's folder, check receipt, manifest and the set of files; name every fault.

    File contents are not read yet: ``BundleView.check_remaining`` or reading them does that.
    ``protocol_id`` None is for copying a bundle on, never for verifying it.
    Raises ``BundleError`` only when the folder itself cannot be opened.
    """
    root = _open_root(bundle)
    try:
        opening = _examine(
            root, protocol_id=protocol_id, trust=trust, allow_unsigned=allow_unsigned
        )
    except BaseException:
        os.close(root)
        raise
    if opening.view is None:
        os.close(root)
    return opening


def open_bundle(
    bundle: Path, *, protocol_id: str | None, trust: Trust | None, allow_unsigned: bool = False
) -> BundleView:
    """Like ``examine``, for callers who want a good bundle or a ``BundleError``."""
    opening = examine(bundle, protocol_id=protocol_id, trust=trust, allow_unsigned=allow_unsigned)
    if opening.view is not None and not opening.faults:
        return opening.view
    with opening:
        first, more = opening.faults[0], len(opening.faults) - 1
        text = f"{first.message} (and {more} more)" if more else first.message
        raise BundleError(first.code, text, fix=_FIX, where=Where(file=first.file))


def open_below(root: int, path: str) -> int:
    """Open a regular file below a directory descriptor, following no symbolic link anywhere.

    Returns a descriptor; raises ``BundleError`` about ``path``. The path is not trusted to be
    sane: the caller has checked its grammar.
    """
    *folders, name = path.split("/")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
    here = os.dup(root)
    try:
        for folder in folders:
            below = os.open(folder, flags | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        # O_NONBLOCK: opening a fifo must not wait for somebody to write to it.
        descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=here)
    except OSError as error:
        _unopenable(error, path)
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        _refuse("bundle.not-regular", "it is no regular file", path)
    return descriptor


def _open_root(bundle: Path) -> int:
    try:
        return os.open(bundle, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BundleError(
            "bundle.missing",
            f"cannot open the bundle's folder: {os.strerror(error.errno or 0).lower()}",
            fix="give the folder that holds manifest.json",
            where=Where(file=str(bundle)),
        ) from error


def _examine(
    root: int, *, protocol_id: str | None, trust: Trust | None, allow_unsigned: bool
) -> Opening:
    try:
        receipt = _metadata(root, RECEIPT)
        manifest = _metadata(root, MANIFEST)
    except BundleError as error:
        return _nothing(fault_of(error, MANIFEST))
    if manifest is None:
        return _nothing(Fault(file=MANIFEST, code="bundle.missing-file", message="it is missing"))
    admission = admit(
        receipt, manifest, trust=trust, protocol_id=protocol_id, allow_unsigned=allow_unsigned
    )
    if admission.manifest is None:
        return Opening(view=None, admission=admission, faults=admission.faults)
    own = {MANIFEST} if receipt is None else {MANIFEST, RECEIPT}
    walked = islice(closed_set_faults(root, admission.manifest, own), MAX_FAULTS)
    return Opening(
        view=BundleView(root, admission, admission.manifest, (receipt, manifest)),
        admission=admission,
        faults=(*admission.faults, *walked),
    )


def _nothing(fault: Fault) -> Opening:
    return Opening(view=None, admission=Admission(faults=(fault,)), faults=(fault,))


def _metadata(root: int, name: str) -> bytes | None:
    """Return a small file's bytes, None when there is none; ``BundleError`` for anything odd."""
    try:
        descriptor = open_below(root, name)
    except BundleError as error:
        if error.code == "bundle.missing-file":
            return None
        raise
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read(MAX_METADATA + 1)
    if len(data) > MAX_METADATA:
        _refuse("bundle.too-large", f"larger than {MAX_METADATA} bytes", name)
    return data


def closed_set_faults(root: int, manifest: BundleManifest, own: set[str]) -> Iterator[Fault]:
    """Yield every name in the folder that the manifest does not list, and every listed one that
    is missing or no regular file. Folders that no listed file needs are not entered.
    """
    needed = manifest.directories()
    seen: set[str] = set()
    pending = [""]
    while pending:
        prefix = pending.pop()
        try:
            for name, mode in _names(root, prefix):
                path = f"{prefix}{name}"
                if stat.S_ISDIR(mode) and path in needed:
                    pending.append(f"{path}/")
                elif path not in own and manifest.get(path) is None:
                    what = "a folder" if stat.S_ISDIR(mode) else "a file"
                    yield _fault(path, "bundle.unlisted", f"{what} that the manifest does not list")
                elif stat.S_ISREG(mode):
                    seen.add(path)
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            yield _fault(prefix, "bundle.unreadable", f"cannot list the folder: {reason}")
    for entry in manifest.files:
        if entry.path not in seen:
            yield _missing(root, entry.path)


def _names(root: int, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield (name, mode) of one folder, itself opened without following links."""
    here = os.dup(root)
    try:
        for folder in prefix.split("/")[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(folder, flags, dir_fd=here)
            os.close(here)
            here = below
        with os.scandir(here) as entries:
            for entry in entries:
                yield entry.name, entry.stat(follow_symlinks=False).st_mode
    finally:
        os.close(here)


def _missing(root: int, path: str) -> Fault:
    try:
        os.close(open_below(root, path))
    except BundleError as error:
        return fault_of(error, path)
    return _fault(path, "bundle.unstable", "it appeared while the bundle was read")


def _unopenable(error: OSError, path: str) -> NoReturn:
    if error.errno == errno.ENOENT:
        _refuse("bundle.missing-file", "the file is missing", path)
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR):
        _refuse("bundle.not-regular", "it is no regular file below regular folders", path)
    _refuse("bundle.unreadable", f"cannot read it: {os.strerror(error.errno or 0).lower()}", path)


def _fault(path: str, code: str, message: str) -> Fault:
    # Names in a hostile folder may hold anything: show them so that a terminal survives.
    shown = path if path.isprintable() and path.isascii() else ascii(path)
    return Fault(file=shown[:300], code=code, message=message)


def _refuse(code: str, message: str, path: str) -> NoReturn:
    raise BundleError(code, message, fix=_FIX, where=Where(file=path))
