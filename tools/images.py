"""Are the method images there? Answered in milliseconds, so that a second run need not build."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator
from pathlib import Path

from tools.endpoints import Endpoint, has_image

PUBLISHED = Path("images") / "images.lock.json"
LOCAL = Path(".cache") / "images" / "images.local.json"
STAMP = "images.stamp"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def are_ready(root: Path, logs: Path, endpoint: Endpoint) -> bool:
    """Whether the last build was from the same inputs and the engine holds what came of it."""
    try:
        stamp = (logs / STAMP).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return False
    ids = locked_ids(root, this_platform())
    return (
        stamp == inputs_fingerprint(root)
        and bool(ids)
        and all(has_image(endpoint, image_id) for image_id in ids)
    )


def record(root: Path, logs: Path) -> None:
    """Remember what was built, for ``are_ready``."""
    logs.mkdir(parents=True, exist_ok=True)
    (logs / STAMP).write_text(inputs_fingerprint(root) + "\n", encoding="ascii")


def inputs_fingerprint(root: Path) -> str:
    """Hash every file that a build reads from the checkout, and the lock that it may have left."""
    digest = hashlib.sha256()
    for path in _inputs(root):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _inputs(root: Path) -> Iterator[Path]:
    for path in sorted((root / "images").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path
    if (root / LOCAL).is_file():
        yield root / LOCAL


def locked_ids(root: Path, system: str) -> tuple[str, ...]:
    """Return the ids of all images that have methods, on one platform; the local lock wins.

    Empty when there is no lock, or an image has no entry for the platform.
    """
    published, local = _read(root / PUBLISHED), _read(root / LOCAL)
    ids: list[str] = []
    for name in sorted({*_table(published, "methods"), *_table(local, "methods")}):
        entry = _entry(local, name, system) or _entry(published, name, system)
        image_id = entry.get("image_id")
        if not isinstance(image_id, str):
            return ()
        ids.append(image_id)
    return tuple(ids)


def this_platform() -> str:
    """Return this machine as image locks write it: ``linux/amd64``."""
    machine = platform.machine()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def _read(path: Path) -> dict[str, object]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}  # the build command reads it strictly and tells what is wrong
    return document if isinstance(document, dict) else {}


def _table(document: object, key: str) -> dict[str, object]:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


def _entry(lock: dict[str, object], name: str, system: str) -> dict[str, object]:
    return _table(_table(_table(lock, "images"), name), system)
