"""Debian packages -> files of a layer, without running any of their scripts.

A package is unpacked by its bytes alone (an ``ar`` of two tars), so the layer is a function of the
packages' digests and of the rules in ``image.toml``: not of the tool that fetched them, its
version, or the machine. ``/usr`` is merged as on every Debian since bookworm.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from runner.errors import ImageError
from runner.imagebuild.tree import SHARED_FOLDER_MODE, Tree

MERGED = ("bin", "lib", "lib64", "sbin")
#: Mount points must be there, because a read-only root gives nobody the chance to make them.
FOLDERS = ("cache", "dev", "in", "out", "proc", "run", "sys", "root", "var/lib/dpkg/status.d")
OWN = "filesystem"  # the "package" of what no package brings


def deb_members(path: Path) -> dict[str, bytes]:
    """Return the members of a .deb by name; ``ImageError`` if it is none."""
    data = path.read_bytes()
    if not data.startswith(b"!<arch>\n"):
        raise _broken(path)
    members: dict[str, bytes] = {}
    at = 8
    while at + 60 <= len(data):
        header = data[at : at + 60]
        try:
            size = int(header[48:58])
            name = header[:16].decode("ascii").strip().rstrip("/")
        except ValueError as error:
            raise _broken(path) from error
        members[name] = data[at + 60 : at + 60 + size]
        at += 60 + size + (size & 1)
    return members


def control_of(path: Path) -> str:
    """Return the control paragraph of a .deb."""
    with _inner_tar(path, "control.tar") as archive:
        for member in archive:
            if member.name in {"control", "./control"}:
                content = archive.extractfile(member)
                if content is not None:
                    return content.read().decode()
    raise _broken(path)


def field(control: str, name: str) -> str:
    """Return one field of a control paragraph, or an empty string."""
    for line in control.splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return ""


def add_filesystem(tree: Tree) -> None:
    """Add what every root has: merged /usr, mount points, a /tmp, and ``python3``."""
    for name in MERGED:
        tree.add_folder(f"usr/{name}", package=OWN)
        tree.add_link(name, f"usr/{name}", package=OWN)
    for name in FOLDERS:
        tree.add_folder(name, package=OWN)
    for name in ("tmp", "var/tmp"):
        tree.add_folder(name, package=OWN, mode=SHARED_FOLDER_MODE)


def add_package(tree: Tree, path: Path, exclude: Sequence[str], keep: Sequence[str]) -> None:
    """Unpack one .deb into the tree; ``keep`` patterns win over ``exclude`` patterns."""
    control = control_of(path)
    package = field(control, "Package")
    with _inner_tar(path, "data.tar") as archive:
        for member in archive:
            name = _merged(member.name)
            if member.isdir() or not _wanted(name, exclude, keep):
                continue
            if member.issym():
                tree.add_link(name, member.linkname, package=package)
            elif (content := archive.extractfile(member)) is not None:
                executable = bool(member.mode & 0o111)
                tree.add_file(name, content, executable=executable, package=package)
    # Where image scanners look for the packages of an image that has no package manager.
    status = io.BytesIO(control.rstrip("\n").encode() + b"\nStatus: install ok installed\n")
    tree.add_file(f"var/lib/dpkg/status.d/{package}", status, executable=False, package=package)


def _inner_tar(path: Path, prefix: str) -> tarfile.TarFile:
    for name, data in deb_members(path).items():
        if name.startswith(prefix):
            try:
                return tarfile.open(fileobj=io.BytesIO(data), mode="r:*")
            except tarfile.TarError as error:
                raise _broken(path) from error
    raise _broken(path)


def _merged(name: str) -> str:
    clean = name.removeprefix("./")
    return f"usr/{clean}" if clean.split("/", 1)[0] in MERGED else clean


def _wanted(name: str, exclude: Sequence[str], keep: Sequence[str]) -> bool:
    if any(fnmatchcase(name, pattern) for pattern in keep):
        return True
    return not any(fnmatchcase(name, pattern) for pattern in exclude)


def _broken(path: Path) -> ImageError:
    return ImageError(
        "image.broken-package",
        f"{path.name} is no readable Debian package",
        fix=f"delete {path} and build again",
    )
