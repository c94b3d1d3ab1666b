"""What is missing on this machine, and how to mend it: one finding for every question.

Nothing here changes anything or raises: a check that fails or hangs becomes a finding itself.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import SealbenchError
from runner.imagelock import LOCAL_LOCK, PUBLISHED_LOCK, load_locks
from runner.progress_text import printable, size_text

if TYPE_CHECKING:
    from runner.engine.api import Engine, EngineInfo

CHECK_TIMEOUT_S = 10.0
MIN_PYTHON = (3, 11)
LOW_DISK_BYTES = 5 << 30  # the image set with a build's work folder, and some room for outputs
NO_DISK_BYTES = 1 << 30
#: Commands that only checks by hand and tests use -> what for.
OPTIONAL_TOOLS = {
    "openssl": "checking a signature without us",
    "jq": "checking a bundle without us",
    "ssh-keygen": "checking the SSH signature of a bundle",
}


class Status(StrEnum):
    """``warn`` does not stand in a run's way, ``missing`` does."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer to one question; ``fix`` is empty when nothing needs mending."""

    name: str
    status: Status
    detail: str
    fix: str = ""


def _open_engine() -> Engine:
    from runner.engine.docker import DockerEngine

    return DockerEngine()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is looked at; the defaults are this machine and this checkout."""

    checkout: Path = field(default_factory=lambda: Path(__file__).resolve().parent.parent)
    published_lock: Path = PUBLISHED_LOCK
    local_lock: Path = LOCAL_LOCK
    data_root: Path | None = None
    open_engine: Callable[[], Engine] = _open_engine
    find_tool: Callable[[str], str | None] = shutil.which
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    python: tuple[int, int] = (sys.version_info.major, sys.version_info.minor)
    timeout_s: float = CHECK_TIMEOUT_S


def diagnose(machine: Machine | None = None) -> tuple[Finding, ...]:
    """Return all findings, in the order in which a newcomer would mend them. Never raises."""
    machine = Machine() if machine is None else machine
    checks: dict[str, Callable[[], list[Finding]]] = {
        "python": lambda: [_python(machine)],
        "engine": lambda: _engine(machine),
        "key": lambda: [_key()],
        "disk": lambda: [_disk(machine.checkout, machine)],
        "data root": lambda: [_data_root(machine.data_root)],
    }
    findings = [found for name, check in checks.items() for found in _bounded(name, machine, check)]
    findings += [_tool(name, purpose, machine) for name, purpose in OPTIONAL_TOOLS.items()]
    return tuple(findings)


def is_ready(findings: tuple[Finding, ...]) -> bool:
    """Whether nothing stands in a run's way."""
    return all(finding.status is not Status.MISSING for finding in findings)


def as_text(findings: tuple[Finding, ...]) -> str:
    """Return a table for people; each fix stands under its finding."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.status:<7}  {finding.name:<{width}}  {printable(finding.detail)}")
        if finding.fix:
            lines.append(f"{'':<7}  {'':<{width}}  fix: {printable(finding.fix)}")
    return "\n".join(lines) + "\n"


def as_document(findings: tuple[Finding, ...]) -> dict[str, object]:
    """Return the form that ``--json`` prints."""
    return {
        "ready": is_ready(findings),
        "findings": [{**asdict(finding), "status": str(finding.status)} for finding in findings],
    }


def _bounded(name: str, machine: Machine, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Run a check in its own thread, for an engine or a network disk may never answer."""
    found: list[Finding] = []
    thread = threading.Thread(target=lambda: found.extend(_guarded(name, check)), daemon=True)
    thread.start()
    thread.join(machine.timeout_s)
    if thread.is_alive():
        text = f"no answer within {machine.timeout_s:g} s"
        return [_missing(name, text, "see what keeps it busy, then ask again")]
    return found


def _guarded(name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Run a check; whatever it raises is its finding."""
    try:
        return check()
    except SealbenchError as error:
        return [_missing(name, error.message, error.fix)]
    except Exception as error:
        return [_missing(name, f"the check failed: {error!r}", "please report this")]


def _ok(name: str, detail: str) -> Finding:
    return Finding(name=name, status=Status.OK, detail=detail)


def _warn(name: str, detail: str, fix: str) -> Finding:
    return Finding(name=name, status=Status.WARN, detail=detail, fix=fix)


def _missing(name: str, detail: str, fix: str) -> Finding:
    return Finding(name=name, status=Status.MISSING, detail=detail, fix=fix)


def _python(machine: Machine) -> Finding:
    version = ".".join(map(str, machine.python))
    if machine.python < MIN_PYTHON:
        return _missing("python", f"Python {version} is too old", "install Python 3.11 or newer")
    return _ok("python", f"Python {version}")


def _engine(machine: Machine) -> list[Finding]:
    """Everything that only an engine can answer; one finding when there is none."""
    engine = machine.open_engine()
    try:
        info = engine.info()
        name = info.name.capitalize()
        rootless = ", rootless" if info.rootless else ""
        detail = (
            f"{name} {info.version}, {info.storage_driver}, "
            f"cgroup v{info.cgroup_version} by {info.cgroup_driver}{rootless}"
        )
        findings = [_ok("engine", detail), _limits(info), _measuring(info)]
        findings += _guarded("images", lambda: _images(engine, info, machine))
        if info.data_root is not None and Path(info.data_root).is_dir():
            findings.append(_disk(Path(info.data_root), machine, name="engine disk"))
        return findings
    finally:
        engine.close()


def _limits(info: EngineInfo) -> Finding:
    if not info.unenforceable:
        return _ok("limits", "memory, swap, CPUs and processes can be enforced")
    names = ", ".join(info.unenforceable)
    return _warn(
        "limits",
        f"this engine cannot enforce: {names}",
        f"run on a host that can, or waive them in the manifest (waive: [{names}]); "
        "results then say so",
    )


def _measuring(info: EngineInfo) -> Finding:
    from runner.engine.cgroups import NullCgroups, open_cgroups

    cgroups = open_cgroups(info)
    if not isinstance(cgroups, NullCgroups):
        return _ok("measuring", "peak memory and CPU time are read from our own control groups")
    return _warn(
        "measuring",
        f"peak memory and CPU time will be null: {cgroups.reason}",
        "run as root beside the engine for exact figures",
    )


def _images(engine: Engine, info: EngineInfo, machine: Machine) -> list[Finding]:
    locks = load_locks(machine.published_lock, machine.local_lock)
    platform = f"{info.os}/{info.architecture}"
    findings: list[Finding] = []
    for name in sorted({*locks.published.methods, *locks.local.methods}):
        local = locks.local.images.get(name, {}).get(platform)
        published = locks.published.images.get(name, {}).get(platform)
        entry = local or published
        if entry is None:
            fix = f"build it on this machine: sealbench images build {name}"
            findings.append(_missing(f"image {name}", f"not locked for {platform}", fix))
        elif engine.inspect_image(entry.image_id) is None:
            text = f"{entry.image_id[:19]} is not in the engine"
            findings.append(_missing(f"image {name}", text, f"sealbench images build {name}"))
        elif entry is local and (published is None or published.image_id != local.image_id):
            text = f"{entry.image_id[:19]}, built here, is not the published one"
            fix = "results will say so; `sealbench images list` tells what differs"
            findings.append(_warn(f"image {name}", text, fix))
        else:
            findings.append(_ok(f"image {name}", entry.image_id[:19]))
    lacking = [finding for finding in findings if finding.status is Status.MISSING]
    if not lacking:
        return findings
    known = {**locks.published.methods, **locks.local.methods}
    runnable = {f"image {name}" for name, methods in known.items() if methods}
    if runnable <= {one.name for one in lacking}:  # nothing could run at all
        return [*findings, _builder(machine)]
    optional = [_optional(one) if one in lacking else one for one in findings]
    builder = _builder(machine)
    return [*optional, replace(builder, status=Status.WARN) if builder.fix else builder]


def _optional(lacking: Finding) -> Finding:
    """An image that no run here has needed so far: `make run` builds it for one that does."""
    return _warn(lacking.name, "not built (built when a manifest needs it)", lacking.fix)


def _builder(machine: Machine) -> Finding:
    """Asked only when something may have to be built."""
    if machine.find_tool("mmdebstrap"):
        return _ok("mmdebstrap", "found; it makes the base image")
    return _missing(
        "mmdebstrap", "not found; it makes the base image", "apt-get install mmdebstrap"
    )


def _key() -> Finding:
    from runner.keys import default_key_path

    path = default_key_path()
    if not path.exists():
        return _missing("key", f"no signing key at {path}", "sealbench keys generate")
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        return _missing("key", f"{path} can be read by others ({mode:04o})", f"chmod 600 {path}")
    if not os.access(path, os.R_OK):
        return _missing("key", f"{path} cannot be read by this user", "use a key of your own")
    return _ok("key", str(path))


def _disk(folder: Path, machine: Machine, *, name: str = "disk") -> Finding:
    free = machine.free_bytes(folder)
    text = f"{size_text(free)} free at {folder}"
    fix = "free some space; `sealbench clean` removes what our own runs left"
    if free < NO_DISK_BYTES:
        return _missing(name, text, fix)
    return _warn(name, text, fix) if free < LOW_DISK_BYTES else _ok(name, text)


def _data_root(data_root: Path | None) -> Finding:
    if data_root is None:
        return _ok("data root", "not named; the quickstart brings its own data")
    if not data_root.is_dir():
        fix = "name the folder that holds <dataset name>/ folders: --data-root"
        return _missing("data root", f"{data_root} is no folder", fix)
    names = sorted(path.name for path in data_root.iterdir() if (path / "corpus.jsonl").is_file())
    if not names:
        fix = "put each dataset into a folder of its name, with corpus.jsonl in it"
        return _warn("data root", f"{data_root} holds no dataset", fix)
    return _ok("data root", f"{data_root}: {', '.join(names)}")


def _tool(name: str, purpose: str, machine: Machine) -> Finding:
    if machine.find_tool(name):
        return _ok(name, f"found; for {purpose}")
    return _warn(name, f"not found; only for {purpose}", f"install {name}")
