"""The runner's own image: wheels are fetched here by hash, and installed offline in the build."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from tools.container_packages import locked_hashes
from tools.images import PUBLISHED, this_platform
from tools.steps import SetupError

WHEELS = Path(".cache") / "container" / "wheels"
TAG = "sealbench:local"
BASE_IMAGE = "base"


def download_command(python: str, root: Path) -> list[str]:
    """Return the command that fetches the runner's wheels into the build's context."""
    lock = root / "requirements" / "run.lock"
    return [
        python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--require-hashes", "--no-deps", "--only-binary=:all:",
        "-r", str(lock), "-d", str(root / WHEELS),
    ]  # fmt: skip


def build_command(base: str, root: Path, *, tag: str | None) -> list[str]:
    """Return the command that builds the image on a base, which is named by digest."""
    if shutil.which("docker") is None:
        raise SetupError(
            "the docker command is not found, which builds from a Dockerfile",
            fix="install it (on Debian 12: apt-get install docker.io; later: docker-cli)",
        )
    if "sha256:" not in base:
        raise SetupError(
            f"BASE={base} is not pinned",
            fix="name it by digest: repository@sha256:... or sha256:<image id>",
        )
    name = ["--tag", tag] if tag else []
    return [
        "docker", "build", "--network", "none", "--build-arg", f"BASE={base}", *name, str(root),
    ]  # fmt: skip


def own_base(root: Path) -> str:
    """Return the image id of our own base for this machine."""
    document = json.loads((root / PUBLISHED).read_bytes())
    entry = document["images"][BASE_IMAGE].get(this_platform())
    if entry is None:
        raise SetupError(
            f"our base image is not locked for {this_platform()}",
            fix="name another base by digest: BASE=repository@sha256:...",
        )
    return str(entry["image_id"])


def clean_wheels(root: Path) -> None:
    """Forget wheels of another lock: the build unpacks all that it finds."""
    lock = root / "requirements" / "run.lock"
    hashes = locked_hashes(lock.read_text(encoding="utf-8"))
    for path in (root / WHEELS).glob("*.whl"):
        if hashlib.sha256(path.read_bytes()).hexdigest() not in hashes:
            path.unlink()
