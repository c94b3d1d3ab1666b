"""Hash-locked wheels -> files of a layer. pip fetches them; their bytes alone make the layer.

A wheel is a zip with fixed rules for where its members go. Unpacking it here rather than by pip
leaves out what depends on pip's version or on the day: INSTALLER, REQUESTED, RECORD, direct_url,
scripts with a path in their first line, bytecode with times in it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from runner.canonical import file_sha256
from runner.errors import ImageError
from runner.imagebuild.recipe import WheelsPart
from runner.imagebuild.tree import Tree
from runner.imagebuild.work import work_folder

SITE = "usr/local/lib/python3.11/dist-packages"
PYTHON_TAG, PYTHON_VERSION = "cp311", "3.11"
#: The C library of the base image; wheels for anything up to it run there.
GLIBC_MINOR = 36
MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
DOWNLOAD_TIMEOUT_S = 1_800
DROPPED_METADATA = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "RECORD.jws")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One line of a lock: a version and the digests (hex) that its wheel may have."""

    name: str
    version: str
    hashes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One wheel file in the cache."""

    name: str
    version: str
    sha256: str
    path: Path


def parse_lock(path: Path) -> tuple[Requirement, ...]:
    """Read a requirements file in which every line has a version and hashes."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    found = []
    for raw in text.splitlines():
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        if not line:
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)((?:\s+--hash=sha256:[0-9a-f]{64})+)", line)
        if match is None:
            raise ImageError(
                "image.bad-lock",
                f"{path.name} has a line that is no 'name==version --hash=sha256:...': {line}",
                fix="write the lock anew: sealbench images lock --resolve",
            )
        hashes = frozenset(re.findall(r"sha256:([0-9a-f]{64})", match.group(3)))
        found.append(
            Requirement(name=canonical(match.group(1)), version=match.group(2), hashes=hashes)
        )
    return tuple(sorted(found, key=lambda requirement: requirement.name))


def canonical(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def fetch_wheels(
    part: WheelsPart,
    *,
    platform: str,
    cache: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Wheel, ...]:
    """Return the wheel of every locked requirement for a platform, downloading what is missing.

    Every wheel's bytes are hashed each time: a damaged cache is no way into an image.
    """
    if part.platforms and platform not in part.platforms:
        raise ImageError(
            "image.platform",
            f"the wheels of layer {part.layer} exist for {', '.join(part.platforms)} only,"
            f" not for {platform}",
            fix="build on such a machine, or leave the image's methods out",
        )
    lock = part.requirements
    requirements = parse_lock(lock)
    found = {r.name: _cached(r, platform, cache) for r in requirements}
    absent = sum(wheel is None for wheel in found.values())
    if absent:
        progress(f"{absent} wheels")
        arguments = ["--require-hashes", "--no-deps", "-r", str(lock)]
        _download(arguments, platform, cache, part.index)
        found = {r.name: _cached(r, platform, cache) for r in requirements}
    missing = sorted(name for name, wheel in found.items() if wheel is None)
    if missing:
        raise ImageError(
            "image.wheel-missing",
            f"no wheel with a locked hash was found for {', '.join(missing)} on {platform}",
            fix="write the lock anew: sealbench images lock --resolve",
        )
    return tuple(wheel for wheel in found.values() if wheel is not None)


def resolve_wheels(
    requirements: Path, *, platform: str, cache: Path, index: str | None = None
) -> tuple[Wheel, ...]:
    """Download what a ``requirements.in`` and its dependencies resolve to; no hashes are asked."""
    names = _download(["-r", str(requirements)], platform, cache, index)
    return tuple(_wheel(cache / name) for name in sorted(names))


def _cached(requirement: Requirement, platform: str, cache: Path) -> Wheel | None:
    prefix = re.sub(r"[-_.]+", "_", requirement.name)
    for path in sorted(cache.glob("*.whl")):
        name, version = _name_of(path)
        if (
            re.sub(r"[-_.]+", "_", name).lower() == prefix
            and version == requirement.version
            and _fits(path, platform)
            and file_sha256(path)[0] in requirement.hashes
        ):
            return _wheel(path)
    return None


def _wheel(path: Path) -> Wheel:
    name, version = _name_of(path)
    return Wheel(name=canonical(name), version=version, sha256=file_sha256(path)[0], path=path)


def _name_of(path: Path) -> tuple[str, str]:
    name, version, *_ = path.name.split("-")
    return name, version


def _fits(path: Path, platform: str) -> bool:
    tag = path.stem.rsplit("-", 1)[-1]
    return tag == "any" or tag.endswith(MACHINES[platform])


def _download(arguments: Sequence[str], platform: str, cache: Path, index: str | None) -> list[str]:
    """Download with pip's usual settings, and once more with ``index`` where those do not do.

    Not with both at once: an index that cannot be reached costs a minute for every package.
    """
    try:
        return _pip_download(arguments, platform, cache)
    except ImageError:
        if index is None:
            raise
    return _pip_download(["--extra-index-url", index, *arguments], platform, cache)


def _pip_download(arguments: Sequence[str], platform: str, cache: Path) -> list[str]:
    """Run ``pip download`` for the image's Python and platform; return the files' names."""
    machine = MACHINES[platform]
    cache.mkdir(parents=True, exist_ok=True)
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC_MINOR, 4, -1)]
    tags.insert(tags.index(f"manylinux_2_17_{machine}") + 1, f"manylinux2014_{machine}")
    with work_folder() as work:
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--only-binary=:all:", "--implementation", "cp"),
            *("--python-version", PYTHON_VERSION),
            *(option for abi in (PYTHON_TAG, "abi3", "none") for option in ("--abi", abi)),
            *(option for tag in tags for option in ("--platform", tag)),
            *("--dest", str(work), *arguments),
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "rror" in line]
            raise ImageError(
                "image.download-failed",
                f"pip could not download the wheels: {'; '.join(said[-3:]) or done.stderr[-300:]}",
                fix="check the network and pip's index settings; without a network, put the"
                f" wheels into {cache}",
            )
        names = []
        for path in sorted(work.glob("*.whl")):
            partial = cache / f".{path.name}.{os.getpid()}"
            partial.write_bytes(path.read_bytes())
            partial.replace(cache / path.name)
            names.append(path.name)
        return names


def add_wheel(tree: Tree, wheel: Wheel, exclude: Sequence[str], keep: Sequence[str] = ()) -> None:
    """Unpack one wheel where the image's Python looks for packages."""
    try:
        with zipfile.ZipFile(wheel.path) as archive:
            for member in archive.infolist():
                place = _place(member.filename)
                if member.is_dir() or place is None:
                    continue
                if _matches(place, exclude) and not _matches(place, keep):
                    continue
                with archive.open(member) as content:
                    tree.add_file(place, content, executable=False, package=wheel.name)
    except zipfile.BadZipFile as error:
        raise ImageError(
            "image.broken-wheel",
            f"{wheel.path.name} is no readable wheel",
            fix=f"delete {wheel.path} and build again",
        ) from error


def _place(member: str) -> str | None:
    """Return where a wheel's member belongs in the image, or None if it is left out."""
    if member.startswith("/"):
        return member  # which the tree refuses
    head, _, rest = member.partition("/")
    if head.endswith(".data"):
        scheme, _, inner = rest.partition("/")
        folders = {"purelib": SITE, "platlib": SITE, "data": "usr/local"}
        return f"{folders[scheme]}/{inner}" if scheme in folders else None
    if head.endswith(".dist-info") and rest in DROPPED_METADATA:
        return None
    return f"{SITE}/{member}"


def _matches(place: str, patterns: Sequence[str]) -> bool:
    inner = place.removeprefix(f"{SITE}/")
    return any(fnmatchcase(inner, pattern) for pattern in patterns)
