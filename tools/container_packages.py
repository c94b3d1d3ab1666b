"""Inside the build of the runner's image: hash-locked wheels -> a folder of packages, offline.

Python and its library are all that it needs, so that any base with Python will do.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

NEEDED = (
    "cryptography", "docker", "jsonschema", "jsonschema_rs", "numpy", "orjson", "psutil", "yaml",
    "referencing", "rfc8785", "rich",
)  # fmt: skip


def locked_hashes(text: str) -> frozenset[str]:
    """Return every SHA-256 (hex) that a requirements file names."""
    return frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", text))


def place_of(member: str) -> str | None:
    """Return where a wheel's member goes below the folder; None for what is left out.

    ``ValueError`` for a name that would leave the folder.
    """
    parts = member.split("/")
    if member.startswith("/") or ".." in parts or "\\" in member:
        raise ValueError(f"{member!r} leaves the folder")
    if parts[0].endswith(".data"):
        # Libraries belong among the packages; scripts, headers and manuals are of no use here.
        return "/".join(parts[2:]) if parts[1] in ("purelib", "platlib") else None
    return member


def unpack(wheel: Path, hashes: frozenset[str], folder: Path) -> None:
    """Unpack one wheel; ``ValueError`` when the lock does not name its bytes."""
    data = wheel.read_bytes()
    if hashlib.sha256(data).hexdigest() not in hashes:
        raise ValueError(f"{wheel.name} is not the wheel that the lock names")
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            place = place_of(member.filename)
            if place is None or member.is_dir():
                continue
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(member))
            target.chmod(0o755 if place.endswith(".so") else 0o644)


def main(arguments: Sequence[str]) -> int:
    """Unpack all wheels of a folder and prove that what the runner imports is there."""
    lock, wheels, folder = map(Path, arguments)
    hashes = locked_hashes(lock.read_text(encoding="utf-8"))
    found = sorted(wheels.glob("*.whl"))
    for wheel in found:
        unpack(wheel, hashes, folder)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    for name in NEEDED:
        importlib.import_module(name)
    sys.stdout.write(f"{len(found)} wheels in {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
