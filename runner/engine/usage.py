"""What one unit used, as its control group counted it, and who can be asked.

``cgroups.py`` answers from the kernel's files; ``fake.py`` from a script. Everything that could
not be read is ``None`` and has its reason in ``unmeasured``, keyed by the field's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A cheap reading while the container runs (goal: 0.2 ms)."""

    memory_bytes: int | None
    cpu_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The whole account, readable after the container is gone.

    ``peak_memory_bytes`` includes page cache; ``rss_peak_bytes`` is anonymous memory only, the
    highest of the samples that ``live`` took. ``oom_events`` counts kills, wherever in the
    container they happened; ``pids_events`` counts refused forks.
    """

    peak_memory_bytes: int | None = None
    rss_peak_bytes: int | None = None
    swap_peak_bytes: int | None = None
    cpu_ns: int | None = None
    oom_events: int | None = None
    pids_events: int | None = None
    throttled_periods: int | None = None
    throttled_ns: int | None = None
    unmeasured: Mapping[str, str] = field(default_factory=dict)


class UnitGroup(Protocol):
    """The control group above one container. Not shared between threads."""

    @property
    def parent(self) -> str | None:
        """Goes into ``ContainerSpec.cgroup_parent``; None leaves the engine's default."""
        ...

    def adopt(self, pid: int) -> None:
        """Call once, right after start, with the container's host pid."""
        ...

    def live(self) -> Live: ...

    def usage(self) -> Usage:
        """Read the account: once when death is proven, before ``remove`` of the container."""
        ...

    def close(self) -> None:
        """Remove the group, after the container is removed. Never raises; callable twice."""
        ...


class Cgroups(Protocol):
    """Opens control groups for units."""

    def open_unit(self, name: str, *, memory_bytes: int) -> UnitGroup:
        """``name`` is ``[a-z0-9-]{1,63}``, unique among the running units of this host."""
        ...
