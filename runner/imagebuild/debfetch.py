"""Fetch the Debian packages of an image with mmdebstrap, checked by Debian's signatures.

mmdebstrap resolves, downloads and verifies; ``debs.py`` unpacks. Its ``extract`` variant runs no
maintainer script, so no chroot is entered and no privilege is needed. Only the suite itself is
asked, not its updates or security archives: those move every week, a point release rarely.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.canonical import file_sha256
from runner.errors import ImageError
from runner.imagebuild.debs import control_of, field
from runner.imagebuild.work import work_folder

FETCH_TIMEOUT_S = 900
#: Keeps the suite's own line of mmdebstrap's default sources and drops the archives that move.
ONLY_THE_SUITE = (
    "sed -i -e '/-updates /d' -e '/-security /d' -e '/-backports /d' \"$1\"/etc/apt/sources.list"
)
APT_FOLDERS = (Path("/etc/apt/sources.list.d"), Path("/etc/apt"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deb:
    """One package file in the cache."""

    name: str
    version: str
    sha256: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A suite of Debian's archive. Without ``mirror`` its address is that of the environment's
    ``MIRROR``, else the host's own (from its apt sources), else mmdebstrap's default.
    """

    suite: str
    architecture: str
    mirror: str | None = None


def cached_debs(locked: Mapping[str, Mapping[str, str]], cache: Path) -> tuple[Deb, ...] | None:
    """Return the locked packages from the cache, or None if any is not there."""
    found = []
    for name, entry in sorted(locked.items()):
        path = cache / f"{entry['sha256']}.deb"
        if not path.is_file():
            return None
        found.append(Deb(name=name, version=entry["version"], sha256=entry["sha256"], path=path))
    return tuple(found)


def verify(debs: Iterable[Deb]) -> None:
    """Raise ``ImageError`` if a cached package is not the one that its name says."""
    for deb in debs:
        if file_sha256(deb.path)[0] != deb.sha256:
            raise ImageError(
                "image.cache-damaged",
                f"the cached package {deb.name} {deb.version} has changed",
                fix=f"delete {deb.path} and build again",
            )


def fetch_debs(packages: Sequence[str], archive: Archive, cache: Path) -> tuple[Deb, ...]:
    """Fetch packages to the cache and return them sorted by name.

    ``ImageError`` when mmdebstrap is missing or fails, or when the archive has no such package.
    """
    if shutil.which("mmdebstrap") is None:
        raise ImageError(
            "image.no-mmdebstrap",
            "mmdebstrap is not installed; the base image is made with it",
            fix="as root: apt-get install --no-install-recommends mmdebstrap"
            " debian-archive-keyring",
        )
    cache.mkdir(parents=True, exist_ok=True)
    with work_folder() as work:
        archives = work / "debs"
        archives.mkdir()
        _run_mmdebstrap(packages, archive, archives, work)
        debs = [_keep(path, cache) for path in archives.rglob("*.deb")]
    wanted = {deb.name: deb for deb in debs if deb.name in set(packages)}
    missing = sorted(set(packages) - set(wanted))
    if missing:
        raise ImageError(
            "image.package-missing",
            f"{archive.suite} brought no package {', '.join(missing)}",
            fix="correct the packages in the image's image.toml",
        )
    return tuple(wanted[name] for name in sorted(wanted))


def _run_mmdebstrap(packages: Sequence[str], archive: Archive, target: Path, work: Path) -> None:
    suite = archive.suite
    mirror = archive.mirror or os.environ.get("MIRROR") or host_mirror(suite)
    command = [
        "mmdebstrap",
        "--variant=extract",
        "--format=null",
        # Nothing is ever run in the tree, so neither root nor user namespaces are needed.
        f"--mode={'root' if os.geteuid() == 0 else 'chrootless'}",
        f"--architectures={archive.architecture}",
        f"--include={','.join(packages)}",
        f"--extract-hook=copy-out /var/cache/apt/archives {target}",
    ]
    command += [] if mirror else [f"--setup-hook={ONLY_THE_SUITE}"]
    command += [suite, "-"]
    command += [f"deb {mirror} {suite} main"] if mirror else []
    environment = {**os.environ, "TMPDIR": str(work), "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _failed(f"no end after {FETCH_TIMEOUT_S} s") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:"))]
        raise _failed("; ".join(said[-3:]) or f"exit code {done.returncode}")


def _failed(why: str) -> ImageError:
    return ImageError(
        "image.fetch-failed",
        f"mmdebstrap could not fetch the base image's packages: {why}",
        fix="check the network and the archive's address (MIRROR=...), and that"
        " debian-archive-keyring is installed",
    )


def _keep(path: Path, cache: Path) -> Deb:
    control = control_of(path)
    digest = file_sha256(path)[0]
    kept = cache / f"{digest}.deb"
    partial = cache / f".{digest}.{os.getpid()}"
    shutil.copyfile(path, partial)
    partial.replace(kept)
    return Deb(
        name=field(control, "Package"),
        version=field(control, "Version"),
        sha256=digest,
        path=kept,
    )


def host_mirror(suite: str, folders: Sequence[Path] = APT_FOLDERS) -> str | None:
    """Return the address from which the host itself takes this Debian suite, if it does."""
    for folder in folders:
        for path in sorted(folder.glob("*.sources")):
            for paragraph in re.split(r"\n\s*\n", _text(path)):
                if field(paragraph, "Enabled").lower() == "no":
                    continue
                suites = field(paragraph, "Suites").split()
                components = field(paragraph, "Components").split()
                for uri in field(paragraph, "URIs").split():
                    if _is_debian(uri, suites, components, suite):
                        return uri
        for path in sorted(folder.glob("*.list")):
            for line in _text(path).splitlines():
                match = re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)", line)
                if match and _is_debian(
                    match.group(1), [match.group(2)], match.group(3).split(), suite
                ):
                    return match.group(1)
    return None


def _is_debian(uri: str, suites: Sequence[str], components: Sequence[str], wanted: str) -> bool:
    """Vendors publish under Debian's suite names too; only the archive itself ends in /debian."""
    return (
        wanted in suites
        and "main" in components
        and re.fullmatch(r"(https?|file|copy):.*/debian/?", uri) is not None
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
