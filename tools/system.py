"""What may be asked of the system: is it Debian, may we install, and apt-get itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.steps import SetupError, Step, quietly

OS_RELEASE = Path("/etc/os-release")
SYSTEMD_MARK = Path("/run/systemd/system")  # there only when systemd is PID 1 (sd_booted(3))


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Facts that decide what the set-up may do."""

    root: bool
    debian: bool  # Debian, Ubuntu or a relative: has apt-get and a package named docker.io
    systemd: bool
    may_install: bool  # ENGINE_INSTALL is not 0

    @property
    def can_install(self) -> bool:
        """Whether we may and can install system packages."""
        return self.root and self.debian and self.may_install


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where the set-up works: the checkout, its settings, its machine."""

    root: Path
    env: Mapping[str, str]
    system: System

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def logs(self) -> Path:
        """Whole outputs of what the set-up ran, and its stamps."""
        return self.root / ".cache" / "setup"


def look(env: Mapping[str, str]) -> System:
    """Read the facts off this machine."""
    try:
        release = OS_RELEASE.read_text(encoding="utf-8")
    except OSError:
        release = ""
    return System(
        root=os.geteuid() == 0,
        debian=is_debian(release) and shutil.which("apt-get") is not None,
        systemd=SYSTEMD_MARK.is_dir(),
        may_install=env.get("ENGINE_INSTALL", "1") != "0",
    )


def is_debian(os_release: str) -> bool:
    """Whether the text of /etc/os-release is that of Debian, Ubuntu or a relative."""
    families: set[str] = set()
    for line in os_release.splitlines():
        key, _, value = line.partition("=")
        if key.strip() in {"ID", "ID_LIKE"}:
            families.update(value.strip().strip("\"'").lower().split())
    return bool(families & {"debian", "ubuntu"})


def why_not_install(system: System) -> str:
    """Say why we do not install system packages here; empty when we do."""
    if not system.may_install:
        return "ENGINE_INSTALL=0 forbids installing and starting things"
    if not system.debian:
        return "only Debian and Ubuntu are set up automatically"
    return "" if system.root else "installing needs root"


def apt_install(packages: Sequence[str], site: Site, step: Step) -> None:
    """Install Debian packages, saying so; the caller has checked ``can_install``."""
    names = " ".join(packages)
    env = {**site.env, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    step.working("apt-get update")
    quietly(["apt-get", "update"], site.logs / "apt-update.log", env=env, fix="see the lines above")
    step.working(f"apt-get install {names}")
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    quietly(command, site.logs / "apt-install.log", env=env, fix=f"apt-get install {names}")


def ensure_tools(tools: Mapping[str, str], site: Site, step: Step) -> None:
    """Install the packages of the commands that are missing.

    ``tools`` maps a command to its Debian package. ``SetupError`` where that is not possible.
    """
    missing = {tool: package for tool, package in tools.items() if not on_path(tool)}
    if not missing:
        return
    packages = sorted(set(missing.values()))
    if not site.system.can_install:
        raise SetupError(
            f"missing: {', '.join(missing)} ({why_not_install(site.system)})",
            fix=f"install them (on Debian or Ubuntu: apt-get install {' '.join(packages)})",
        )
    apt_install(packages, site, step)


def on_path(tool: str) -> bool:
    """Whether a command is found; /usr/sbin counts although users' PATHs often lack it."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return shutil.which(tool, path=path) is not None
