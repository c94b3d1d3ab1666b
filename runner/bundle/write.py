"""Write a bundle so that either all of it is there or none of it.

Files grow in ``.partial-<id>/``, each fsynced when it closes. Sealing writes the manifest, then the
receipt, fsyncs the folders, renames the staging folder to ``bundle/`` (refusing any existing
target) and fsyncs the parent. A crash at any moment leaves no ``bundle/`` or a whole one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from runner import schemas
from runner.bundle import dsse, durable, paths, sshsig
from runner.bundle.manifest import BundleManifest, FileEntry, Role
from runner.bundle.parts import CSV, JSONL, FileKind, Part
from runner.bundle.rocrate import CrateInfo, crate
from runner.bundle.statement import RunClaims, build_statement
from runner.canonical import canonical_bytes
from runner.errors import BundleError, StorageError, Where
from runner.keys import SigningKey

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_JSON = "application/json"

#: What the files with a fixed path are.
STANDARD = {
    "run.yaml": FileKind(Role.RUN_MANIFEST, "application/yaml", "run"),
    "plan.json": FileKind(Role.PLAN, _JSON, "plan"),
    "protocol.json": FileKind(Role.PROTOCOL, _JSON, "protocol"),
    "outcomes.jsonl": FileKind(Role.OUTCOMES, JSONL, "outcome"),
    "results.json": FileKind(Role.RESULTS, _JSON, "results"),
    "host.json": FileKind(Role.HOST, _JSON, "host"),
    "images.json": FileKind(Role.IMAGES, _JSON, "images"),
    "reproduction.json": FileKind(Role.REPRODUCTION, _JSON, "reproduction"),  # where it is one
    "claims.json": FileKind(Role.CLAIMS, _JSON, "claims"),
    "config-freeze.dsse.json": FileKind(Role.CONFIG_FREEZE, _JSON, "config-freeze"),  # where it is
}
SCORES = FileKind(Role.SCORES, CSV)
PER_QUERY = FileKind(Role.PER_QUERY, CSV)
LOG = FileKind(Role.LOG, "application/octet-stream")
_CRATE = FileKind(Role.CRATE, "application/ld+json")
_SCHEMA = FileKind(Role.SCHEMA, "application/schema+json")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedBundle:
    """A finished bundle: its folder, the hex digest of its manifest, and what was claimed."""

    path: Path
    manifest_sha256: str
    claims: RunClaims
    signed: bool


class BundleWriter:
    """Stages one bundle below ``parent`` and seals it as ``parent/bundle``.

    Raises ``StorageError`` at once when ``check_free`` does, when the folder cannot be written or
    when another process stages the same ``bundle_id``. A staging folder that a dead process left is
    emptied.
    """

    def __init__(self, parent: Path, bundle_id: str) -> None:
        if _ID.match(bundle_id) is None:
            raise BundleError(
                "bundle.id", f"{bundle_id[:80]!r} is no id", fix="use a-z, 0-9, dot and dash"
            )
        self.target = parent / paths.FOLDER
        self.staging = parent / f".partial-{bundle_id}"
        self._entries: dict[str, FileEntry] = {}
        self._open: dict[str, Part] = {}
        durable.make_directory(parent)
        check_free(parent)
        self._lock = _claim_staging(self.staging)

    def add_bytes(self, path: str, data: bytes, kind: FileKind | None = None) -> FileEntry:
        """Add a whole file; ``kind`` may be left out for the files of ``STANDARD``."""
        with self.open_part(path, kind) as part:
            part.write(data)
        return self._entries[path]

    def add_file(self, path: str, source: Path, kind: FileKind | None = None) -> FileEntry:
        """Add a copy of a regular file, hashed while it is copied; links are not followed."""
        with (
            os.fdopen(_open_source(source), "rb", buffering=0) as stream,
            self.open_part(path, kind) as part,
        ):
            while block := stream.read(1 << 20):
                part.write(block)
        return self._entries[path]

    def open_part(self, path: str, kind: FileKind | None = None) -> Part:
        """Open a new file to append to."""
        paths.check_path(path)
        if path in self._entries or path in self._open:
            _refuse("bundle.duplicate-path", "the file is in the bundle already", path)
        described = kind if kind is not None else STANDARD.get(path)
        if described is None:
            _refuse("bundle.kind", "no kind was given and the name is not a standard one", path)
        target = self.staging / path
        durable.make_directory(target.parent)
        part = Part(target, path, described, self._register)
        self._open[path] = part
        return part

    def discard(self, path: str) -> None:
        """Remove a file again, registered or not."""
        part = self._open.pop(path, None)
        if part is not None:
            part.drop()
        self._entries.pop(path, None)
        with durable.storage_errors(path):
            (self.staging / path).unlink(missing_ok=True)

    @property
    def entries(self) -> tuple[FileEntry, ...]:
        """The finished files so far, sorted by path."""
        return tuple(self._entries[path] for path in sorted(self._entries))

    def seal(self, claims: RunClaims, *, key: SigningKey | None, info: CrateInfo) -> SealedBundle:
        """Finish the bundle under its final name; ``key=None`` leaves it unsigned and says so.

        Adds the schema copies and ro-crate-metadata.json. ``claims.schemas`` is filled in here,
        from the copies. Raises ``BundleError`` when something is missing, left over or
        contradictory, ``StorageError`` when the disk fails; nothing stands under the final name
        then and sealing may be tried again.
        """
        self._check_complete()
        claims = replace(claims, schemas=self._add_schemas())
        self._add_crate(claims, info, signed=key is not None)
        manifest = BundleManifest(
            benchmark_id=claims.benchmark_id,
            benchmark_version=claims.benchmark_version,
            benchmark_digest=claims.protocol_id,
            run_id=claims.run_id,
            files=self.entries,
        ).to_bytes()
        sha256 = hashlib.sha256(manifest).hexdigest()
        statement = build_statement(sha256, claims)
        own = [(paths.MANIFEST, manifest)]
        if key is not None:
            own.append((paths.RECEIPT, dsse.sign(statement, key)))
        self._check_closed()
        for name, data in own:
            durable.write_new(self.staging / name, data)
        durable.fsync_directories(self.staging)
        durable.rename_new(self.staging, self.target)
        durable.fsync_directory(self.target.parent)
        self.close()
        if key is not None:
            write_ssh_signature(self.target.parent / paths.SIGNATURES, manifest, key)
        return SealedBundle(
            path=self.target, manifest_sha256=sha256, claims=claims, signed=key is not None
        )

    def close(self) -> None:
        """Let go of the staging folder without removing it; open files are not registered."""
        for part in self._open.values():
            part.drop()
        self._open.clear()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _register(self, entry: FileEntry) -> None:
        self._open.pop(entry.path, None)
        self._entries[entry.path] = entry

    def _add_schemas(self) -> dict[str, str]:
        """Copy the schema of every kind that the bundle uses; return their digests by kind."""
        named = {entry.schema.split("/")[1] for entry in self._entries.values() if entry.schema}
        digests = {}
        for kind in sorted(named | {"bundle-manifest", "receipt"}):
            path = f"{paths.SCHEMA_FOLDER}/{kind}{paths.SCHEMA_SUFFIX}"
            self.discard(path)
            try:
                entry = self.add_bytes(path, schemas.schema_bytes(kind), _SCHEMA)
            except LookupError:
                _refuse("bundle.schema-unknown", f"the package has no schema {kind!r}", path)
            digests[kind] = f"sha256:{entry.sha256}"
        return digests

    def _add_crate(self, claims: RunClaims, info: CrateInfo, *, signed: bool) -> None:
        self.discard(paths.CRATE)
        document = crate(self.entries, claims, info, signed=signed)
        self.add_bytes(paths.CRATE, canonical_bytes(document), _CRATE)

    def _check_complete(self) -> None:
        if self._open:
            _refuse("bundle.open-part", "it is still being written", min(self._open))
        for path in paths.REQUIRED:
            if path != paths.CRATE and path not in self._entries:
                _refuse("bundle.required", "every bundle has this file", path)

    def _check_closed(self) -> None:
        """Refuse to seal a folder that holds anything else than what was registered."""
        expected = {entry.path: entry.size for entry in self._entries.values()}
        for name in (paths.MANIFEST, paths.RECEIPT):  # of a sealing that failed
            with durable.storage_errors(self.staging / name):
                (self.staging / name).unlink(missing_ok=True)
        found = {
            str(path.relative_to(self.staging)): path.lstat()
            for path in self.staging.rglob("*")
            if not path.is_dir() or path.is_symlink()
        }
        for name in sorted(expected.keys() | found.keys()):
            status = found.get(name)
            if status is None or not stat.S_ISREG(status.st_mode):
                _refuse("bundle.changed", "it vanished or was replaced while staged", name)
            if name not in expected:
                _refuse("bundle.unlisted", "somebody else put it into the staging folder", name)
            if status.st_size != expected[name]:
                _refuse("bundle.changed", "its size changed while staged", name)
        for folder, folders, files in os.walk(self.staging, topdown=False):
            if not folders and not files:
                with suppress(OSError):  # discarded files leave empty folders, which no tar has
                    Path(folder).rmdir()


def check_free(parent: Path) -> None:
    """Raise ``StorageError`` when a bundle, its archive or its signatures are there already.

    For callers who want to know before a long run; the writer asks too.
    """
    for name in (paths.FOLDER, paths.ARCHIVE, paths.SIGNATURES):
        if os.path.lexists(parent / name):
            _occupied(parent / name)


def write_ssh_signature(signatures: Path, manifest: bytes, key: SigningKey) -> Path:
    """Write ``manifest.json.sig`` for ``ssh-keygen -Y verify`` into the folder beside a bundle."""
    durable.make_directory(signatures)
    target = signatures / sshsig.FILE
    durable.put_file(target, sshsig.sign(manifest, key), replace=True)
    durable.fsync_directory(signatures.parent)
    return target


def _claim_staging(staging: Path) -> int:
    """Lock a staging folder for this process and empty what a dead one left in it."""
    with durable.storage_errors(staging):
        with suppress(FileExistsError):
            staging.mkdir()
            staging.chmod(durable.DIRECTORY_MODE)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(staging, flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise StorageError(
                "storage.busy",
                "another process is writing this bundle",
                fix="wait for it to end",
                where=Where(file=str(staging)),
            ) from error
        for child in staging.iterdir():
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()
    return descriptor


def _open_source(source: Path) -> int:
    """Open a regular file to copy from; ``StorageError`` for a link, a fifo or nothing."""
    try:
        # O_NONBLOCK: opening a fifo must not wait for somebody to write to it.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(source, flags)
    except OSError as error:
        problem = f"cannot read: {os.strerror(error.errno or 0).lower()}"
    else:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        problem = "not a regular file"
    raise StorageError(
        "storage.source",
        problem,
        fix="check that the file itself is there and readable",
        where=Where(file=str(source)),
    )


def _occupied(path: Path) -> NoReturn:
    raise StorageError(
        "storage.occupied",
        "it is there already, and bundles are never overwritten",
        fix="choose another output folder, or remove this one yourself",
        where=Where(file=str(path)),
    )


def _refuse(code: str, message: str, path: str) -> NoReturn:
    raise BundleError(
        code, message, fix="nothing was sealed: mend this and try again", where=Where(file=path)
    )
