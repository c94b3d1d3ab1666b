"""The machine of a run, by allow-list.

Only what is named here is read, and only from the kernel's own files: no host name, user, path or
environment. What cannot be read is None, with its reason under ``unmeasured``.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from runner import __version__
from runner.canonical import Json
from runner.engine.api import EngineInfo
from runner.executable import files_digest

SCHEMA = "sealbench/host/v1"
Load = tuple[float, float, float]
T = TypeVar("T")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_DRIVER_VERSION = re.compile(r"\b[0-9]{2,4}(?:\.[0-9]+)+\b")
_GIT_TIMEOUT_S = 5.0
_NOT_REPORTED = "the kernel does not say"
_GPU_MEMORY = "only the driver's own tools know it"


class _Notes:
    """Collects the reasons of what stays None."""

    def __init__(self) -> None:
        self.reasons: dict[str, Json] = {}

    def known(self, field: str, value: T | None, reason: str = _NOT_REPORTED) -> T | None:
        if value is None:
            self.reasons[field] = reason
        return value


def host_document(
    engine: EngineInfo | None,
    *,
    load_start: Load | None,
    load_end: Load | None,
    root: Path = Path("/"),
) -> dict[str, Json]:
    """Return the document of schema ``host``; ``root`` stands in for ``/`` in tests.

    Loads are ``read_load`` before the first unit and after the last. Takes some 20 ms, most of it
    for git.
    """
    notes = _Notes()
    meminfo = _keyed(_text(root / "proc/meminfo"))
    release = _keyed(_text(root / "etc/os-release"), separator="=")
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "cpu": _cpu(root, notes),
        "memory_bytes": notes.known("memory_bytes", _kibibytes(meminfo.get("MemTotal"))),
        "swap_bytes": notes.known("swap_bytes", _kibibytes(meminfo.get("SwapTotal"))),
        "kernel": notes.known("kernel", _kernel(root)),
        "architecture": notes.known("architecture", _clean(platform.machine(), 64)),
        "os": {
            "id": notes.known("os.id", _clean(release.get("ID"), 64)),
            "version": notes.known("os.version", _clean(release.get("VERSION_ID"), 64)),
        },
        "cgroup_version": notes.known("cgroup_version", _cgroup_version(engine, root)),
        "engine": notes.known("engine", _engine(engine), "no engine was asked"),
        "runner": _runner(notes),
        "load": {
            "start": notes.known("load.start", _load(load_start)),
            "end": notes.known("load.end", _load(load_end)),
        },
        "gpu": _gpu(root, notes),
        "unmeasured": notes.reasons,
    }
    return document


def read_load(root: Path = Path("/")) -> Load | None:
    """Load averages over 1, 5 and 15 minutes."""
    fields = _text(root / "proc/loadavg").split()
    try:
        return float(fields[0]), float(fields[1]), float(fields[2])
    except (IndexError, ValueError):
        return None


def swap_bytes(root: Path = Path("/")) -> int | None:
    """The host's swap; 0 means that memory needs no limit of swap."""
    return _kibibytes(_keyed(_text(root / "proc/meminfo")).get("SwapTotal"))


def _cpu(root: Path, notes: _Notes) -> dict[str, Json]:
    blocks = [_keyed(block) for block in _text(root / "proc/cpuinfo").split("\n\n")]
    cpus = [block for block in blocks if "processor" in block]
    first: Mapping[str, str] = cpus[0] if cpus else {}
    cores = {(c["physical id"], c["core id"]) for c in cpus if {"physical id", "core id"} <= set(c)}
    frequency = root / "sys/devices/system/cpu/cpu0/cpufreq"
    khz = _text(frequency / "cpuinfo_max_freq").strip()
    governor = _clean(_text(frequency / "scaling_governor"), 64)
    hidden = "the kernel does not control the frequency (a virtual machine, often)"
    return {
        "model": notes.known("cpu.model", _clean(first.get("model name"), 256)),
        "vendor": notes.known("cpu.vendor", _clean(first.get("vendor_id"), 256)),
        "logical": notes.known("cpu.logical", len(cpus) or os.cpu_count()),
        "physical": notes.known("cpu.physical", len(cores) or None),
        "governor": notes.known("cpu.governor", governor, hidden),
        "mhz_max": notes.known("cpu.mhz_max", int(khz) // 1000 if khz.isdigit() else None, hidden),
    }


def _kernel(root: Path) -> str | None:
    release = _clean(_text(root / "proc/sys/kernel/osrelease"), 256)
    name = _text(root / "proc/sys/kernel/hostname").strip()
    if release and len(name) > 3 and name.lower() in release.lower():
        # Somebody named their own build after the machine: the version alone is enough.
        match = _VERSION.match(release)
        return match[0] if match else None
    return release


def _cgroup_version(engine: EngineInfo | None, root: Path) -> int | None:
    if engine is not None:
        return engine.cgroup_version
    if (root / "sys/fs/cgroup/cgroup.controllers").exists():
        return 2
    return 1 if (root / "sys/fs/cgroup").is_dir() else None


def _engine(engine: EngineInfo | None) -> dict[str, Json] | None:
    if engine is None:
        return None
    return {
        "name": _clean(engine.name, 64),
        "version": _clean(engine.version, 64),
        "api_version": _clean(engine.api_version, 64),
        "runtime": _clean(engine.runtime, 64),
        "runtime_version": _clean(engine.runtime_version, 128),
        "storage_driver": _clean(engine.storage_driver, 64),
        "cgroup_driver": _clean(engine.cgroup_driver, 64),
        "rootless": engine.rootless,
    }


def _runner(notes: _Notes) -> dict[str, Json]:
    commit, dirty, reason = source_state(Path(__file__).resolve().parent.parent)
    digest, unread = files_digest()
    return {
        "version": __version__,
        "python": platform.python_version(),
        "source_commit": notes.known("runner.source_commit", commit, reason),
        "dirty": notes.known("runner.dirty", dirty, reason),
        "files_digest": notes.known("runner.files_digest", digest, unread),
    }


def source_state(checkout: Path) -> tuple[str | None, bool | None, str]:
    """(commit, are tracked files changed, why unknown) of a git checkout."""
    # Without this, an installation inside somebody else's repository would name that one.
    if not (checkout / ".git").exists():
        return None, None, "not run from a git checkout"
    git = shutil.which("git")
    if git is None:
        return None, None, "git is not installed"
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = [git, "-C", str(checkout), "--no-optional-locks", "status"]
    command += ["--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            env={**environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, None, "git did not answer"
    commit: str | None = None
    dirty = False
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith("# branch.oid "):
            commit = line.removeprefix("# branch.oid ").strip()
        elif not line.startswith("#"):
            dirty = True
    if done.returncode != 0 or commit is None or not _COMMIT.fullmatch(commit):
        return None, None, "git does not know the commit, or does not trust the folder's owner"
    return commit, dirty, ""


def _gpu(root: Path, notes: _Notes) -> list[Json] | None:
    driver = root / "proc/driver/nvidia"
    if not driver.is_dir():
        if (root / "sys/class/kfd").exists():
            return notes.known("gpu", None, "only NVIDIA's driver is asked, and another is there")
        return []
    match = _DRIVER_VERSION.search(_text(driver / "version"))
    found: list[Json] = []
    for folder in sorted((driver / "gpus").glob("*")):
        # The same file holds serial numbers: the model is all that is taken.
        model = _clean(_keyed(_text(folder / "information")).get("Model"), 256)
        found.append(
            {
                "vendor": "NVIDIA",
                "model": notes.known("gpu.model", model),
                "driver": notes.known("gpu.driver", match[0] if match else None),
                "memory_bytes": notes.known("gpu.memory_bytes", None, _GPU_MEMORY),
            }
        )
    return found


def _load(load: Load | None) -> list[Json] | None:
    return None if load is None else list(load)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _keyed(text: str, separator: str = ":") -> dict[str, str]:
    """The first value of each ``key<separator>value`` line, without blanks and quotes."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, present, value = line.partition(separator)
        if present:
            found.setdefault(key.strip(), value.strip().strip("\"'"))
    return found


def _kibibytes(value: str | None) -> int | None:
    number = (value or "").removesuffix("kB").strip()
    return int(number) * 1024 if number.isdigit() else None


def _clean(value: str | None, length: int) -> str | None:
    """Printable, without blanks at the ends, capped; None when nothing is left."""
    text = "".join(char for char in value or "" if char.isprintable()).strip()[:length].strip()
    return text or None
