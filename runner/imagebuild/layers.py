"""A tree -> a layer: one uncompressed tar whose bytes depend on the tree alone, and its contents.

The layer is not compressed: compressed bytes depend on the compressor, and the engine unpacks a
local archive at once anyway.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.canonical import file_sha256
from runner.imagebuild.tree import Node, Tree

#: 2025-01-01T00:00:00Z: the time of every file and of every image. Any fixed time would do.
SOURCE_DATE_EPOCH = 1_735_689_600
CREATED = "2025-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What one package brought to a layer: its version (None for our own files) and content."""

    version: str | None
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A finished layer. ``diff_id`` is the digest of the tar, which is also its blob's digest."""

    name: str
    diff_id: str
    size: int
    path: Path
    packages: Mapping[str, Package]


def write_layer(tree: Tree, name: str, versions: Mapping[str, str | None], path: Path) -> Layer:
    """Write the tree's tar to ``path``. ``versions`` holds the version of each package."""
    contents: dict[str, hashlib._Hash] = {}
    # GNU format: no header depends on the version of Python, as pax defaults have.
    with tarfile.open(path, mode="w:", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive:
        for node in tree.nodes():
            _add(archive, tree, node, contents.setdefault(node.package, hashlib.sha256()))
    digest, size = file_sha256(path)
    return Layer(
        name=name,
        diff_id=f"sha256:{digest}",
        size=size,
        path=path,
        packages={
            package: Package(version=versions.get(package), sha256=content.hexdigest())
            for package, content in sorted(contents.items())
        },
    )


def _add(archive: tarfile.TarFile, tree: Tree, node: Node, digest: hashlib._Hash) -> None:
    member = tarfile.TarInfo(node.path)
    member.mode, member.mtime = node.mode, SOURCE_DATE_EPOCH
    line = f"{node.kind} {node.mode:o} {node.path} {node.target}"
    if node.kind == "file":
        place = tree.root / node.path
        with place.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
            member.size = stream.tell()
            stream.seek(0)
            archive.addfile(member, stream)
        line += content
    else:
        member.type = tarfile.DIRTYPE if node.kind == "folder" else tarfile.SYMTYPE
        member.linkname = node.target
        archive.addfile(member)
    digest.update(line.encode() + b"\n")


def unpack_layer(layer: Path, folder: Path) -> None:
    """Unpack one of our own layers, to run what is in it while the next one is made."""
    folder.mkdir()
    with tarfile.open(layer, mode="r:") as archive:
        for member in archive:
            place = folder / member.name
            if member.isdir():
                place.mkdir(parents=True, exist_ok=True)
            elif member.issym():
                place.symlink_to(member.linkname)
            elif (content := archive.extractfile(member)) is not None:
                place.write_bytes(content.read())
                place.chmod(member.mode)
