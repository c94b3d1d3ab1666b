"""Little packages, wheels and recipes from which tests build images without a network."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path


def tar_bytes(files: Mapping[str, bytes | str], *, mode: int = 0o644, mtime: int = 0) -> bytes:
    """A tar.xz; a string is a symbolic link's target, a name that ends in ``/`` a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name.rstrip("/"))
            member.mode, member.mtime, member.uid = mode, mtime, 1234
            if name.endswith("/"):
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            elif isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def deb_bytes(
    name: str,
    files: Mapping[str, bytes | str],
    *,
    version: str = "1.0",
    mode: int = 0o644,
    mtime: int = 0,
) -> bytes:
    """A Debian package of these files."""
    control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n".encode()
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": tar_bytes({"./control": control}),
        "data.tar.xz": tar_bytes(files, mode=mode, mtime=mtime),
    }
    out = b"!<arch>\n"
    for member, data in members.items():
        header = f"{member:<16}{mtime:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n"
        out += header.encode() + data + b"\n" * (len(data) & 1)
    return out


def write_deb(
    folder: Path, name: str, files: Mapping[str, bytes | str], *, version: str = "1.0"
) -> tuple[str, Path]:
    """Write a package as the cache keeps it: (hex digest, path)."""
    data = deb_bytes(name, files, version=version)
    digest = hashlib.sha256(data).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{digest}.deb"
    path.write_bytes(data)
    return digest, path


def write_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, bytes], *, tag: str = "py3-none-any"
) -> Path:
    """Write a wheel with the usual metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    everything = {
        **files,
        f"{info}/METADATA": f"Name: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\n",
        f"{info}/RECORD": b"whatever,,\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in everything.items():
            archive.writestr(member, data)
    return path


BASE_RECIPE = """
description = "root"

[debian]
layer = "base"
suite = "bookworm"
packages = ["hello", "libc6"]
exclude = ["usr/share/doc/*"]
keep = ["usr/share/doc/*/copyright"]
"""

TOOL_RECIPE = """
description = "tool"
base = "base"

[wheels]
layer = "tool-packages"
requirements = "requirements.lock"

[[sources]]
layer = "tool-files"
from = "files"
to = "opt/tool"

[methods.one]
command = ["one"]
tasks = ["retrieval"]
config = { depth = 3 }
"""


def write_images(root: Path) -> Path:
    """Write an ``images`` folder with a root image ``base`` and an image ``tool`` on it."""
    images = root / "images"
    (images / "base").mkdir(parents=True)
    (images / "base" / "image.toml").write_text(BASE_RECIPE)
    (images / "tool" / "files").mkdir(parents=True)
    (images / "tool" / "image.toml").write_text(TOOL_RECIPE)
    (images / "tool" / "files" / "a.txt").write_text("a\n")
    return images
