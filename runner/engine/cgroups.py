"""Control groups of our own above each container, so that its account outlives it.

``open_cgroups`` picks the kind that this host and engine allow. Where none is possible, the run
goes on without the measurements, and every one of them says why it is missing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.engine.api import EngineInfo
from runner.engine.cgroup_files import V1_CONTROLLERS, CgroupMounts, find_mounts, remove_tree
from runner.engine.cgroup_v1 import V1Group
from runner.engine.cgroup_v2 import V2Group
from runner.engine.lease import Owner, own_lease, owner_state, parse_lease
from runner.engine.usage import Cgroups, Live, UnitGroup, Usage

TOP = "sealbench"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_FIELDS = tuple(
    name for name in Usage.__dataclass_fields__ if name != "unmeasured"
)  # every measurement that a Usage can hold


class NullGroup:
    """No group: everything is unmeasured, for one reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    @property
    def parent(self) -> str | None:
        return None

    def adopt(self, pid: int) -> None:
        """Nothing to read."""

    def live(self) -> Live:
        return Live(memory_bytes=None, cpu_ns=None)

    def usage(self) -> Usage:
        return Usage(unmeasured=dict.fromkeys(_FIELDS, self._reason))

    def close(self) -> None:
        """Nothing to remove."""


class NullCgroups:
    """Implements ``usage.Cgroups`` where none can be had; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def open_unit(self, name: str, *, memory_bytes: int) -> UnitGroup:
        del name, memory_bytes
        return NullGroup(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCgroups:
    """Implements ``usage.Cgroups`` on the kernel's own trees."""

    version: int
    systemd: bool
    mounts: CgroupMounts
    root: Path = Path("/")

    def open_unit(self, name: str, *, memory_bytes: int) -> UnitGroup:
        """A group that cannot be made is a null group with the reason, never an error."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"not a name for a control group: {name!r}")
        parent, path = _names(f"{own_lease(self.root)}-{name}", self.systemd)
        try:
            group = self._open(path, memory_bytes)
        except OSError as error:
            return NullGroup(f"no control group of our own: {error.strerror or error}")
        return _SliceGroup(group, parent) if self.systemd else group

    def _open(self, path: str, memory_bytes: int) -> UnitGroup:
        if self.version == 1:
            return V1Group(path, self.mounts, memory_bytes=memory_bytes, root=self.root)
        mount = self.mounts.v2
        if mount is None:
            raise FileNotFoundError("cgroup version 2 is not mounted")
        _enable_controllers(mount, path)
        return V2Group(path, mount, local_events=self.mounts.v2_local_events, root=self.root)


class _SliceGroup:
    """A group that systemd knows as a slice: it must be told when the slice is no more."""

    def __init__(self, group: UnitGroup, name: str) -> None:
        self._group, self._name = group, name

    @property
    def parent(self) -> str | None:
        return self._name

    def adopt(self, pid: int) -> None:
        self._group.adopt(pid)

    def live(self) -> Live:
        return self._group.live()

    def usage(self) -> Usage:
        return self._group.usage()

    def close(self) -> None:
        stop_slice(self._name)
        self._group.close()


def open_cgroups(engine: EngineInfo, root: Path = Path("/")) -> Cgroups:
    """Return what this host and engine allow: real groups, or null ones with the reason."""
    mounts = find_mounts(root)
    reason = _obstacle(engine, mounts)
    if reason is not None:
        return NullCgroups(reason)
    return SystemCgroups(
        version=engine.cgroup_version,
        systemd=engine.cgroup_driver == "systemd",
        mounts=mounts,
        root=root,
    )


def orphaned_groups(root: Path = Path("/")) -> tuple[Path, ...]:
    """Folders of groups whose owner is dead, in every tree, sorted."""
    found = []
    for folder, lease_text in _our_folders(find_mounts(root)):
        lease = parse_lease(lease_text)
        if lease is not None and owner_state(lease, root) is Owner.DEAD:
            found.append(folder)
    return tuple(sorted(found))


def remove_group(folder: Path) -> bool:
    """Remove an orphaned group; False when a process still lives in it."""
    if folder.name.endswith(".slice"):
        stop_slice(folder.name)
    return remove_tree(folder)


def stop_slice(name: str) -> None:
    """Ask systemd to forget a slice; without systemd there is nobody to ask."""
    systemctl = shutil.which("systemctl")
    if systemctl is None or not Path("/run/systemd/system").is_dir():
        return
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [systemctl, "stop", "--quiet", name],
            check=False,
            timeout=10,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def _obstacle(engine: EngineInfo, mounts: CgroupMounts) -> str | None:
    """Why there can be no groups of our own; None when there can."""
    if engine.cgroup_driver == "none":
        return "the engine runs without control groups"
    if engine.rootless:
        return "a rootless engine keeps its control groups to itself"
    if engine.cgroup_version == 1:
        missing = [name for name in V1_CONTROLLERS if name not in mounts.v1]
        if missing:
            seen = "only in part" if mounts.partial.intersection(missing) else "not"
            return f"control groups ({', '.join(missing)}) are {seen} visible from here"
        roots = list(mounts.v1.values())
    elif mounts.v2 is None:
        return "cgroup version 2 is not mounted here, or only in part"
    else:
        roots = [mounts.v2]
    if not all(os.access(folder, os.W_OK) for folder in roots):
        return "control groups are not writable: the runner is not root"
    return None


def _names(leaf: str, systemd: bool) -> tuple[str, str]:
    """(what the engine is told, the path below the mount). In a slice's name ``-`` nests."""
    if not systemd:
        return f"/{TOP}/{leaf}", f"/{TOP}/{leaf}"
    name = f"{TOP}-{leaf.replace('-', '_')}.slice"
    return name, f"/{TOP}.slice/{name}"


def _our_folders(mounts: CgroupMounts) -> Iterator[tuple[Path, str]]:
    for mount in mounts.every:
        for folder in _folders_in(mount / TOP):
            yield folder, "-".join(folder.name.split("-")[:4])
        for folder in _folders_in(mount / f"{TOP}.slice"):
            leaf = folder.name.removeprefix(f"{TOP}-").removesuffix(".slice")
            yield folder, "-".join(leaf.split("_")[:4])


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [item for item in folder.iterdir() if item.is_dir() and not item.is_symlink()]
    except OSError:
        return []


def _enable_controllers(mount: Path, path: str) -> None:
    """Hand the controllers down to our group; a child has only what its parent passes on."""
    folder = mount
    for part in ["", *Path(path.lstrip("/")).parts]:
        folder = folder / part
        folder.mkdir(exist_ok=True)
        for controller in ("memory", "cpu", "pids"):
            # One by one: a missing one must not take the others with it; readings tell.
            with contextlib.suppress(OSError):
                descriptor = os.open(folder / "cgroup.subtree_control", os.O_WRONLY)
                try:
                    os.write(descriptor, f"+{controller}".encode())
                finally:
                    os.close(descriptor)
