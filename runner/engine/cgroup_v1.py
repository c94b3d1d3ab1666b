"""A unit's control group on cgroup version 1, where every controller has a tree of its own.

Version 1 counts out-of-memory kills at the group of the victim only, and the engine removes that
group with the container. So the limit is set on our own group as well, a little lower, so that the
kernel fails there first; an eventfd on its ``memory.oom_control`` keeps the count, from before the
first process until we close it. Refused forks and throttling are counted at the container's group
only: they are read while it lives, and the last reading stands (see ``refused_forks``).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from runner.engine.cgroup_files import (
    V1_CONTROLLERS,
    CgroupMounts,
    CounterFile,
    close_all,
    highest,
    membership,
    refused_forks,
    remove_tree,
)
from runner.engine.usage import Live, Usage

#: Charges of up to 8 pages can run out of memory (larger ones fail instead); with this much less
#: at the parent, its limit is always met before the container's own.
PARENT_SLACK_BYTES = 64 << 10
NEVER_SEEN = "the container ended before its own group could be read"
NOT_CHARGED = "nothing was charged to the group: the engine put the container elsewhere"


class V1Group:
    """Implements ``usage.UnitGroup``. ``path`` is the group's name below every mount."""

    def __init__(
        self, path: str, mounts: CgroupMounts, *, memory_bytes: int, root: Path = Path("/")
    ) -> None:
        self._path, self._mounts, self._root = path, mounts, root
        folders = {name: mounts.v1[name] / path.lstrip("/") for name in V1_CONTROLLERS}
        self._notes: dict[str, str] = {}
        self._event: int | None = None
        self._event_count = 0
        self._own: dict[str, CounterFile] = {}
        self._pids_limit: int | None = None
        self._own_oom: int | None = None
        self._own_pids: int | None = None
        self._own_throttled: int | None = None
        self._own_throttled_ns: int | None = None
        self._rss: int | None = None
        self._swap: int | None = None
        for folder in dict.fromkeys(folders.values()):
            folder.mkdir(parents=True, exist_ok=True)
        memory = folders["memory"]
        self._limit(memory, memory_bytes)
        self._listen(memory)
        self._usage = CounterFile(memory / "memory.usage_in_bytes")
        self._peak = CounterFile(memory / "memory.max_usage_in_bytes")
        self._stat = CounterFile(memory / "memory.stat")
        self._cpu = CounterFile(folders["cpuacct"] / "cpuacct.usage")
        self._pids_peak = CounterFile(folders["pids"] / "pids.peak")

    @property
    def parent(self) -> str | None:
        return self._path

    def adopt(self, pid: int) -> None:
        paths = membership(pid, self._root)
        if not paths:
            return
        if not paths.get("memory", "").startswith(f"{self._path}/"):
            self._notes["parent"] = NOT_CHARGED
            return
        for controller, name in (
            ("memory", "memory.oom_control"),
            ("pids", "pids.events"),
            ("pids", "pids.max"),
            ("cpu", "cpu.stat"),
        ):
            if controller in paths:
                folder = self._mounts.v1[controller] / paths[controller].lstrip("/")
                self._own[name] = CounterFile(folder / name)
        if (file := self._own.get("pids.max")) is not None:
            self._pids_limit = file.number()
        self._sample()

    def live(self) -> Live:
        self._sample()
        return Live(memory_bytes=self._usage.number(), cpu_ns=self._cpu.number())

    def usage(self) -> Usage:
        self._sample()
        self._drain()
        peak, cpu = self._peak.number(), self._cpu.number()
        notes: dict[str, str] = {}
        if not cpu:  # a container that ran has used some
            cpu, peak = None, None
            notes["cpu_ns"] = notes["peak_memory_bytes"] = self._notes.get("parent", NOT_CHARGED)
        oom = self._own_oom
        if self._event is not None:
            oom = highest(self._event_count, self._own_oom)
        refused, why = refused_forks(self._own_pids, self._pids_peak.number(), self._pids_limit)
        if why is not None:
            self._notes.setdefault("pids_events", why)
        values = {
            "oom_events": oom,
            "rss_peak_bytes": self._rss or None,  # 0: the kernel had not added it up yet
            "swap_peak_bytes": self._swap,
            "pids_events": refused,
            "throttled_periods": self._own_throttled,
            "throttled_ns": self._own_throttled_ns,
        }
        fallback = self._notes.get("parent", NEVER_SEEN)
        for name, value in values.items():
            if value is None:
                notes[name] = self._notes.get(name, fallback)
        return Usage(peak_memory_bytes=peak, cpu_ns=cpu, unmeasured=notes, **values)

    def close(self) -> None:
        own = self._own.values()
        close_all([self._usage, self._peak, self._stat, self._cpu, self._pids_peak, *own])
        self._own = {}
        if self._event is not None:
            os.close(self._event)
            self._event = None
        # The runtime made the parent in trees that we did not ask for: devices, freezer, ...
        for mount in self._mounts.every:
            remove_tree(mount / self._path.lstrip("/"))

    def _limit(self, memory: Path, memory_bytes: int) -> None:
        limit = max(memory_bytes - PARENT_SLACK_BYTES, PARENT_SLACK_BYTES)
        # Kernels before 5.11 do not count children at the parent unless told so, which is
        # possible only before there are any.
        with contextlib.suppress(OSError):
            if (memory / "memory.use_hierarchy").read_bytes().strip() == b"0":
                _write(memory / "memory.use_hierarchy", 1)
        try:
            _write(memory / "memory.limit_in_bytes", limit)
        except OSError as error:
            self._notes["oom_events"] = f"no memory limit on our group: {error.strerror}"
        # The container's group inherits it: nothing is swapped out, whatever the host's habit.
        with contextlib.suppress(OSError):
            _write(memory / "memory.swappiness", 0)
        try:
            _write(memory / "memory.memsw.limit_in_bytes", limit)
        except OSError:
            self._notes["swap_peak_bytes"] = "the kernel does not account for swap"

    def _listen(self, memory: Path) -> None:
        event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            control = os.open(memory / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _write(memory / "cgroup.event_control", f"{event} {control}")
            finally:
                os.close(control)
        except OSError as error:
            self._notes["oom_events"] = f"no out-of-memory events: {error.strerror}"
            os.close(event)
        else:
            self._event = event

    def _drain(self) -> None:
        if self._event is not None:
            with contextlib.suppress(BlockingIOError):
                self._event_count += os.eventfd_read(self._event)

    def _sample(self) -> None:
        rss, swap = self._stat.keyed(b"total_rss", b"total_swap")
        self._rss, self._swap = highest(self._rss, rss), highest(self._swap, swap)
        if (file := self._own.get("memory.oom_control")) is not None:
            self._own_oom = highest(self._own_oom, *file.keyed(b"oom_kill"))
        if (file := self._own.get("pids.events")) is not None:
            self._own_pids = highest(self._own_pids, *file.keyed(b"max"))
        if (file := self._own.get("cpu.stat")) is not None:
            periods, time_ns = file.keyed(b"nr_throttled", b"throttled_time")
            self._own_throttled = highest(self._own_throttled, periods)
            self._own_throttled_ns = highest(self._own_throttled_ns, time_ns)


def _write(path: Path, value: int | str) -> None:
    # Not write_text: a missing control file must stay missing, not be created in a test's tree.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode("ascii"))
    finally:
        os.close(descriptor)
