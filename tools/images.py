"""Are the method images there? Answered in milliseconds, so that a second run need not build."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.endpoints import Endpoint, has_image
from tools.system import Site

PUBLISHED = Path("images") / "images.lock.json"
LOCAL = Path(".cache") / "images" / "images.local.json"
STAMP = "images.json"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def are_ready(site: Site, names: Sequence[str], endpoint: Endpoint) -> bool:
    """Whether these images were built from the inputs that are here, and the engine holds them."""
    ids = locked_ids(site.root, names, this_platform())
    return (
        set(names) <= _built(site, inputs_fingerprint(site.root))
        and bool(ids)
        and all(has_image(endpoint, image_id) for image_id in ids)
    )


def record(site: Site, names: Sequence[str]) -> None:
    """Remember what was built, for ``are_ready``."""
    inputs = inputs_fingerprint(site.root)
    stamp = {"inputs": inputs, "names": sorted({*names, *_built(site, inputs)})}
    site.logs.mkdir(parents=True, exist_ok=True)
    (site.logs / STAMP).write_text(json.dumps(stamp) + "\n", encoding="ascii")


def _built(site: Site, inputs: str) -> set[str]:
    """Return the images that were built here from these inputs."""
    stamp = _read(site.logs / STAMP)
    names = stamp.get("names")
    if stamp.get("inputs") != inputs or not isinstance(names, list):
        return set()
    return {str(name) for name in names}


def recipes(root: Path) -> tuple[str, ...]:
    """Return the names of all images that can be built here, sorted."""
    return tuple(sorted(path.parent.name for path in (root / "images").glob("*/image.toml")))


def needed(plan: Mapping[str, object], known: Sequence[str]) -> tuple[str, ...]:
    """Return those of our images that a plan uses; other people's are not ours to build."""
    methods = plan.get("methods")
    if not isinstance(methods, list):
        return ()
    used = {_table(method, "image").get("name") for method in methods}
    return tuple(name for name in known if name in used)


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


def locked_ids(root: Path, names: Sequence[str], system: str) -> tuple[str, ...]:
    """Return the ids of images on one platform; the local lock wins. Empty if one has none."""
    published, local = _read(root / PUBLISHED), _read(root / LOCAL)
    ids: list[str] = []
    for name in names:
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
