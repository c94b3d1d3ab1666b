"""What stands in manifest.json: which files a bundle has, with size, digest and role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, NoReturn

from runner.bundle import paths
from runner.bundle.documents import parse_canonical
from runner.canonical import canonical_bytes
from runner.errors import BundleError, Where

BUNDLE_VERSION = 1


class Role(StrEnum):
    """What a file is for. A closed vocabulary."""

    RUN_MANIFEST = "run-manifest"
    PLAN = "plan"
    PROTOCOL = "protocol"
    OUTCOMES = "outcomes"
    ROWS = "rows"
    SCORES = "scores"
    LOG = "log"
    RESULTS = "results"
    HOST = "host"
    IMAGES = "images"
    SCHEMA = "schema"
    CRATE = "ro-crate"
    ARTIFACT = "artifact"
    REPRODUCTION = "reproduction"
    CONFIG_FREEZE = "config-freeze"
    PER_QUERY = "per-query"
    CLAIMS = "claims"
    MODULE = "module"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file: ``size`` in bytes, ``sha256`` as plain hex, ``schema`` as ``sealbench/<kind>/v1``.

    ``rows`` is the number of lines of a file of rows or records, of a CSV file those below its
    header, None for any other.
    """

    path: str
    size: int
    sha256: str
    role: Role
    media_type: str
    schema: str | None = None
    rows: int | None = None

    def as_dict(self) -> dict[str, object]:
        """The entry as manifest.json has it: absent fields are left out, never null."""
        document: dict[str, object] = {
            "path": self.path,
            "size": self.size,
            "sha256": self.sha256,
            "role": self.role.value,
            "media_type": self.media_type,
        }
        if self.schema is not None:
            document["schema"] = self.schema
        if self.rows is not None:
            document["rows"] = self.rows
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleManifest:
    """manifest.json. ``benchmark_digest`` is the protocol id; files are sorted by path."""

    benchmark_id: str
    benchmark_version: str
    benchmark_digest: str
    run_id: str
    files: tuple[FileEntry, ...]
    _by_path: dict[str, FileEntry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_path", {entry.path: entry for entry in self.files})

    def get(self, path: str) -> FileEntry | None:
        """Return the entry of a path, or None."""
        return self._by_path.get(path)

    def entry(self, path: str) -> FileEntry:
        """Return the entry of a path; ``BundleError`` for a file that is not listed."""
        found = self._by_path.get(path)
        if found is None:
            _refuse("bundle.not-listed", f"the manifest lists no {path!r}", path)
        return found

    def by_role(self, role: Role) -> tuple[FileEntry, ...]:
        """Return the entries of one role, sorted by path."""
        return tuple(entry for entry in self.files if entry.role is role)

    def directories(self) -> frozenset[str]:
        """Return every directory that a listed file needs."""
        return frozenset(folder for entry in self.files for folder in paths.ancestors(entry.path))

    @property
    def total_bytes(self) -> int:
        """The bytes of all listed files together."""
        return sum(entry.size for entry in self.files)

    def to_bytes(self) -> bytes:
        """Return the file's canonical bytes; ``BundleError`` when a cap or the grammar forbids."""
        _check_files(self.files)
        document = {
            "bundle_version": BUNDLE_VERSION,
            "benchmark": {
                "id": self.benchmark_id,
                "version": self.benchmark_version,
                "digest": self.benchmark_digest,
            },
            "run": {"id": self.run_id},
            "files": [entry.as_dict() for entry in self.files],
        }
        data = canonical_bytes(document)
        parse_canonical(data, kind="bundle-manifest", file=paths.MANIFEST)
        return data


def parse_manifest(data: bytes) -> BundleManifest:
    """Return a manifest from its bytes; ``BundleError`` for anything that is not canonical,
    sorted, free of duplicates and inside the caps.
    """
    document = parse_canonical(data, kind="bundle-manifest", file=paths.MANIFEST)
    files = tuple(_entry(item) for item in document["files"])
    _check_files(files)
    benchmark = document["benchmark"]
    return BundleManifest(
        benchmark_id=benchmark["id"],
        benchmark_version=benchmark["version"],
        benchmark_digest=benchmark["digest"],
        run_id=document["run"]["id"],
        files=files,
    )


def _entry(item: dict[str, Any]) -> FileEntry:
    return FileEntry(**(item | {"role": Role(item["role"])}))


def _check_files(files: Iterable[FileEntry]) -> None:
    """Refuse what no schema can: order, duplicates, a file where a folder must be."""
    folders: set[str] = set()
    names: list[str] = []
    for entry in files:
        paths.check_path(entry.path)
        names.append(entry.path)
        folders.update(paths.ancestors(entry.path))
    if len(names) > paths.MAX_FILES:
        _refuse("bundle.too-many-files", f"more than {paths.MAX_FILES} files")
    for first, second in pairwise(names):
        if first == second:
            _refuse("bundle.duplicate-path", f"{first!r} is listed twice")
        if first > second:
            _refuse("bundle.unsorted", f"{second!r} is listed after {first!r}")
    clash = next((name for name in names if name in folders), None)
    if clash is not None:
        _refuse("bundle.path-clash", f"{clash!r} is listed as a file and used as a folder")


def _refuse(code: str, message: str, file: str = paths.MANIFEST) -> NoReturn:
    raise BundleError(
        code, message, fix="get the bundle again from its author", where=Where(file=file)
    )
