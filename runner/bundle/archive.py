"""A bundle as one canonical tar, and back, believing nothing on the way.

Never ``extractall``: importing reads the receipt and the manifest, checks the signature, and from
then on knows every byte of every header that must follow. Files are hashed while they are written
into a folder that gets its final name only when all of them were right and the archive ended there.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NoReturn, Protocol

from runner.bundle import durable, ustar
from runner.bundle.admission import Admission, admit
from runner.bundle.manifest import BundleManifest
from runner.bundle.paths import MANIFEST, MAX_METADATA, RECEIPT
from runner.bundle.read import BundleView
from runner.errors import BundleError, StorageError, Where
from runner.files import open_regular
from runner.trust import Trust

CHUNK = 1 << 18  # larger blocks are mapped and unmapped one by one: 1.7 times the CPU time
GZIP_LEVEL = 6
END = "end of archive"
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's code for a gzip frame; its window is 32 KiB at most


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


def export_archive(view: BundleView, target: Path, *, gzip: bool = False) -> Path:
    """Write an open bundle as a tar, verifying every file while it is copied.

    The same bundle gives the same bytes (with ``gzip`` only for one zlib). An existing target is
    refused; a failure leaves nothing. Raises ``BundleError`` or ``StorageError``.
    """
    temporary = target.with_name(f".partial-{target.name}-{secrets.token_hex(4)}")
    try:
        with durable.storage_errors(target):
            descriptor = durable.create_file(temporary)
        # To close a stream writes what is left in it, and fails again on a full disk.
        with durable.storage_errors(target), os.fdopen(descriptor, "wb") as stream:
            sink: _Sink = _Gzipper(stream) if gzip else stream
            for block in _archive_blocks(view):
                sink.write(block)
            if isinstance(sink, _Gzipper):
                sink.finish()
            stream.flush()
            os.fsync(descriptor)
        durable.rename_new(temporary, target)
    finally:
        with suppress(OSError):
            temporary.unlink()
    durable.fsync_directory(target.parent)
    return target


def import_archive(
    source: Path, target: Path, *, trust: Trust | None, allow_unsigned: bool = False
) -> Admission:
    """Unpack an archive (plain or gzip) into the folder ``target``, which must not exist.

    Signature, manifest and every byte are checked; whether the bundle answers the *expected*
    protocol is for ``read.examine`` to say. Raises ``BundleError`` naming the file at which the
    archive stops being right, ``StorageError`` when the disk fails; nothing is left then.
    """
    if os.path.lexists(target):
        raise StorageError(
            "storage.occupied",
            "it is there already",
            fix="choose another folder",
            where=Where(file=str(target)),
        )
    with _open_source(source) as reader, _staging(target) as folder:
        receipt, manifest = _read_documents(reader)
        admission = admit(
            receipt, manifest, trust=trust, protocol_id=None, allow_unsigned=allow_unsigned
        )
        if admission.manifest is None or admission.faults:
            fault = admission.faults[0]
            _refuse(fault.code, fault.message, fault.file)
        _check_room(folder, admission.manifest)
        for name, data in ((RECEIPT, receipt), (MANIFEST, manifest)):
            if data is not None:
                durable.write_new(folder / name, data)
        for entry in admission.manifest.files:
            _expect_header(reader, entry.path, entry.size)
            digest = _copy_file(reader, folder / entry.path, entry.path, entry.size)
            if digest != entry.sha256:
                _refuse("bundle.digest", "its SHA-256 is not the manifest's", entry.path)
        _expect_end(reader)
        durable.fsync_directories(folder)
        durable.rename_new(folder, target)
        durable.fsync_directory(target.parent)
        return admission


def _archive_blocks(view: BundleView) -> Iterator[bytes]:
    """Yield the archive's bytes: receipt, manifest, then the files in the manifest's order."""
    length = 0
    for name, data in ((RECEIPT, view.receipt_bytes), (MANIFEST, view.manifest_bytes)):
        if data is not None:
            block = ustar.header(name, len(data)) + data + bytes(ustar.padding(len(data)))
            length += len(block)
            yield block
    for entry in view.manifest.files:
        yield ustar.header(entry.path, entry.size)
        with view.open_verified(entry.path) as stream:
            while block := stream.read(CHUNK):
                yield block
        yield bytes(ustar.padding(entry.size))
        length += ustar.BLOCK + entry.size + ustar.padding(entry.size)
    yield bytes(ustar.trailer(length))


class _Gzipper:
    """Compress without a time or a name in the header."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._deflate = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)

    def write(self, data: bytes, /) -> None:
        self._stream.write(self._deflate.compress(data))

    def finish(self) -> None:
        self._stream.write(self._deflate.flush())


class _Reader:
    """Reads an archive forward by exact amounts and counts them."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.position = 0

    def exactly(self, count: int, file: str) -> bytes:
        """Return the next ``count`` bytes; an archive that ends before is refused."""
        parts, missing = [], count
        while missing:
            block = self._some(missing)
            if not block:
                _refuse("archive.truncated", "the archive ends inside it", file)
            parts.append(block)
            missing -= len(block)
        self.position += count
        return b"".join(parts)

    def check_end(self) -> None:
        """Refuse anything that follows."""
        if self._some(1):
            _refuse("archive.trailing", "bytes follow behind its end", END)

    def _some(self, count: int) -> bytes:
        return self._stream.read(min(count, CHUNK))


class _GzipReader(_Reader):
    """The same for one gzip member. Never inflates more than was asked for: no bomb goes off."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)
        self._inflate = zlib.decompressobj(_GZIP_WINDOW)

    def _some(self, count: int) -> bytes:
        while not self._inflate.eof:
            data = self._inflate.unconsumed_tail or self._stream.read(CHUNK)
            try:
                block = self._inflate.decompress(data, min(count, CHUNK))
            except zlib.error as error:
                _refuse("archive.gzip", f"the gzip stream is broken: {error}", MANIFEST)
            if block:
                return block
            if not data:
                return b""
        return b""

    def check_end(self) -> None:
        """Refuse an incomplete member (its checksum comes last) and anything that follows it."""
        super().check_end()
        if not self._inflate.eof:
            _refuse("archive.truncated", "the gzip stream ends too early", END)
        if self._inflate.unused_data or self._stream.read(1):
            _refuse("archive.trailing", "bytes follow behind the gzip stream", END)


@contextmanager
def _open_source(source: Path) -> Iterator[_Reader]:
    try:
        stream = open_regular(source)
    except OSError as error:
        raise BundleError(
            "archive.missing",
            f"cannot open the archive: {(error.strerror or '').lower()}",
            fix="check the path",
            where=Where(file=str(source)),
        ) from error
    with stream:
        zipped = stream.peek(2)[:2] == _GZIP_MAGIC
        yield _GzipReader(stream) if zipped else _Reader(stream)


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """Yield a fresh folder beside the target; remove it unless it was renamed away."""
    folder = target.with_name(f".partial-{target.name}-{secrets.token_hex(4)}")
    durable.make_directory(target.parent)
    with durable.storage_errors(folder):
        folder.mkdir()
        folder.chmod(durable.DIRECTORY_MODE)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read_documents(reader: _Reader) -> tuple[bytes | None, bytes]:
    """Return (receipt, manifest); an unsealed archive has no receipt and starts at the manifest."""
    name, receipt = RECEIPT, None
    block = reader.exactly(ustar.BLOCK, name)
    size = ustar.claimed_size(block)
    if size is not None and block == ustar.header(MANIFEST, size):
        name = MANIFEST
    elif size is not None and block == ustar.header(RECEIPT, size):
        receipt = _document(reader, RECEIPT, size)
        name = MANIFEST
        block = reader.exactly(ustar.BLOCK, name)
        size = ustar.claimed_size(block)
    if size is None or block != ustar.header(name, size):
        _refuse("archive.header", "the archive does not start with the canonical header", name)
    return receipt, _document(reader, MANIFEST, size)


def _document(reader: _Reader, name: str, size: int) -> bytes:
    if size > MAX_METADATA:
        _refuse("bundle.too-large", f"larger than {MAX_METADATA} bytes", name)
    data = reader.exactly(size, name)
    _expect_zeros(reader, ustar.padding(size), name)
    return data


def _expect_header(reader: _Reader, path: str, size: int) -> None:
    if reader.exactly(ustar.BLOCK, path) != ustar.header(path, size):
        _refuse(
            "archive.header",
            "the archive has not its canonical header here: it lacks the file, has it elsewhere, "
            "with another size, owner, time or kind, or has another one in its place",
            path,
        )


def _copy_file(reader: _Reader, target: Path, path: str, size: int) -> str:
    """Copy a file's bytes out of the archive; return the hex SHA-256 of what was written."""
    digest, missing = hashlib.sha256(), size
    durable.make_directory(target.parent)
    with durable.storage_errors(target):
        descriptor = durable.create_file(target)
        try:
            while missing:
                block = reader.exactly(min(missing, CHUNK), path)
                digest.update(block)
                durable.write_all(descriptor, block)
                missing -= len(block)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    _expect_zeros(reader, ustar.padding(size), path)
    return digest.hexdigest()


def _expect_zeros(reader: _Reader, count: int, file: str) -> None:
    if reader.exactly(count, file).strip(b"\0"):
        _refuse("archive.padding", "bytes are hidden in the padding behind it", file)


def _expect_end(reader: _Reader) -> None:
    """The archive ends with the canonical zeros and nothing else: no second archive behind it."""
    count = ustar.trailer(reader.position)
    if reader.exactly(count, END).strip(b"\0"):
        _refuse("archive.unlisted", "more follows than the manifest lists", END)
    reader.check_end()


def _check_room(folder: Path, manifest: BundleManifest) -> None:
    """Refuse before filling a disk: the sizes are known, and signed where there is a receipt."""
    with durable.storage_errors(folder):
        free = shutil.disk_usage(folder).free
    if manifest.total_bytes > free:
        raise StorageError(
            "storage.full",
            f"the bundle needs {manifest.total_bytes} bytes and {free} are free",
            fix="free some space or choose another folder",
            where=Where(file=str(folder.parent)),
        )


def _refuse(code: str, message: str, file: str) -> NoReturn:
    raise BundleError(
        code, message, fix="get the archive again from its author", where=Where(file=file)
    )
