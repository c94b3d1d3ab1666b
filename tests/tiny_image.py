"""A two-megabyte image of a static busybox, put together by hand: no builder, no registry.

The archive is a pure function of the busybox binary and the options, so its image id is known
before any engine has seen it.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

#: The words of one line each are easier to read than thirty string literals.
_APPLETS = """
    cat cp dd df echo env head hostname id ip kill ln ls mkdir mkfifo mv nc nproc ping printf rm
    sh sleep stat sync tail test touch tr true truncate yes
"""
HOW_TO_GET_IT = "the engine tests need a static busybox: apt-get install busybox-static"


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyImage:
    """A docker archive, the image id that it will have, and its parts for a registry."""

    image_id: str
    archive: bytes
    config: bytes
    layer: bytes


class NoBusyboxError(Exception):
    """There is no static busybox on this machine."""


def build_tiny_image(
    *,
    entrypoint: tuple[str, ...] = (),
    tag: str | None = None,
    note: str = "",
    architecture: str | None = None,
    tmp_mode: int = 0o1777,
    volumes: tuple[str, ...] = (),
) -> TinyImage:
    """Different ``note`` values give different image ids; ``volumes`` are top folders."""
    layer = _layer(_busybox(), tmp_mode, volumes)
    diff_id = "sha256:" + hashlib.sha256(layer).hexdigest()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    config = json.dumps(
        {
            "architecture": architecture or machine,
            "os": "linux",
            "config": {
                "Env": ["PATH=/bin"],
                "Entrypoint": list(entrypoint) or None,
                "Labels": {"note": note} if note else None,
                **({"Volumes": {path: {} for path in volumes}} if volumes else {}),
            },
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
            "history": [],
        },
        sort_keys=True,
    ).encode()
    digest = hashlib.sha256(config).hexdigest()
    manifest = [{"Config": f"{digest}.json", "RepoTags": [tag] if tag else None, "Layers": ["l"]}]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, "l", layer)
        _add(tar, f"{digest}.json", config)
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return TinyImage(
        image_id=f"sha256:{digest}", archive=archive.getvalue(), config=config, layer=layer
    )


def _busybox() -> bytes:
    path = shutil.which("busybox") or "/bin/busybox"
    try:
        binary = Path(path).read_bytes()
    except OSError as error:
        raise NoBusyboxError(HOW_TO_GET_IT) from error
    if b"/ld-" in binary[:4096]:  # a dynamic binary names its loader near its start
        raise NoBusyboxError(f"{path} is not static; {HOW_TO_GET_IT}")
    return binary


def _layer(busybox: bytes, tmp_mode: int, volumes: tuple[str, ...]) -> bytes:
    modes = dict.fromkeys(("bin", "etc", "in", "out"), 0o755) | {"tmp": tmp_mode}
    modes |= {path.strip("/"): 0o777 for path in volumes}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, mode in modes.items():
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            tar.addfile(folder)
        _add(tar, "bin/busybox", busybox, mode=0o755)
        for name in _APPLETS.split():
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return stream.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))
