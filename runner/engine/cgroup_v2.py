"""A unit's control group on cgroup version 2: one tree, and counters that include what is below.

``memory.events`` of our own group counts the kills in the container, unless the tree is mounted
with ``memory_localevents``; refused forks (before Linux 6.11) and throttling are counted at the
container's group only: they are read while it lives, and the last reading stands (see
``refused_forks``).
"""

from __future__ import annotations

from pathlib import Path

from runner.engine.cgroup_files import (
    CounterFile,
    close_all,
    highest,
    membership,
    refused_forks,
    remove_tree,
)
from runner.engine.cgroup_v1 import NEVER_SEEN, NOT_CHARGED
from runner.engine.usage import Live, Usage


class V2Group:
    """Implements ``usage.UnitGroup``. ``path`` is the group's name below the mount."""

    def __init__(
        self, path: str, mount: Path, *, local_events: bool = False, root: Path = Path("/")
    ) -> None:
        self._path, self._mount, self._root = path, mount, root
        self._local_events = local_events
        self._folder = mount / path.lstrip("/")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._displaced = False
        self._own: dict[str, CounterFile] = {}
        self._why_pids: str | None = None
        self._pids_limit: int | None = None
        self._own_oom: int | None = None
        self._pids: int | None = None
        self._throttled: int | None = None
        self._throttled_us: int | None = None
        self._rss: int | None = None
        self._files = {
            name: CounterFile(self._folder / name)
            for name in (
                "memory.current",
                "memory.peak",
                "memory.stat",
                "memory.events",
                "memory.swap.peak",
                "cpu.stat",
                "pids.events",
                "pids.peak",
            )
        }

    @property
    def parent(self) -> str | None:
        return self._path

    def adopt(self, pid: int) -> None:
        own = membership(pid, self._root).get("")
        if own is None:
            return
        if not own.startswith(f"{self._path}/"):
            self._displaced = True
            return
        folder = self._mount / own.lstrip("/")
        for name in ("memory.events", "pids.events", "pids.max", "cpu.stat"):
            self._own[name] = CounterFile(folder / name)
        self._pids_limit = self._own["pids.max"].number()
        self._sample()

    def live(self) -> Live:
        self._sample()
        (cpu_us,) = self._files["cpu.stat"].keyed(b"usage_usec")
        return Live(
            memory_bytes=self._files["memory.current"].number(),
            cpu_ns=None if cpu_us is None else cpu_us * 1000,
        )

    def usage(self) -> Usage:
        self._sample()
        (cpu_us,) = self._files["cpu.stat"].keyed(b"usage_usec")
        (oom,) = self._files["memory.events"].keyed(b"oom_kill")
        charged = bool(cpu_us)  # a container that ran has used some
        peak_pids = self._files["pids.peak"].number()
        refused, self._why_pids = refused_forks(self._pids, peak_pids, self._pids_limit)
        values = {
            "peak_memory_bytes": self._files["memory.peak"].number() if charged else None,
            "rss_peak_bytes": self._rss or None,  # 0: the kernel had not added it up yet
            "swap_peak_bytes": self._files["memory.swap.peak"].number(),
            "cpu_ns": cpu_us * 1000 if cpu_us else None,
            "oom_events": self._own_oom if self._local_events else highest(oom, self._own_oom),
            "pids_events": refused,
            "throttled_periods": self._throttled,
            "throttled_ns": None if self._throttled_us is None else self._throttled_us * 1000,
        }
        if not charged:
            # A zero that nothing was charged to would read as "no events".
            values = dict.fromkeys(values)
        notes = {name: self._why(name, charged) for name, value in values.items() if value is None}
        return Usage(unmeasured=notes, **values)

    def close(self) -> None:
        close_all([*self._files.values(), *self._own.values()])
        self._own = {}
        remove_tree(self._folder)

    def _why(self, name: str, charged: bool) -> str:
        if not charged or self._displaced:
            return NOT_CHARGED
        if name == "peak_memory_bytes":
            return "the kernel has no memory.peak (Linux 5.19)"
        if name == "swap_peak_bytes":
            return "the kernel has no memory.swap.peak (Linux 6.5), or does not account for swap"
        if name == "pids_events" and self._why_pids is not None:
            return self._why_pids
        return NEVER_SEEN

    def _sample(self) -> None:
        self._rss = highest(self._rss, *self._files["memory.stat"].keyed(b"anon"))
        # Linux 6.11 counts refused forks at every group above as well.
        self._pids = highest(self._pids, *(self._own_keyed("pids.events", b"max")))
        if self._pids is not None:
            self._pids = highest(self._pids, *self._files["pids.events"].keyed(b"max"))
        self._own_oom = highest(self._own_oom, *self._own_keyed("memory.events", b"oom_kill"))
        periods, time_us = self._own_keyed("cpu.stat", b"nr_throttled", b"throttled_usec")
        self._throttled = highest(self._throttled, periods)
        self._throttled_us = highest(self._throttled_us, time_us)

    def _own_keyed(self, name: str, *keys: bytes) -> tuple[int | None, ...]:
        file = self._own.get(name)
        return (None,) * len(keys) if file is None else file.keyed(*keys)
