"""Control groups that say what they were told to, for unit tests."""

from __future__ import annotations

from runner.engine.usage import Live, UnitGroup, Usage


class FakeGroup:
    """A control group that tells what it was given."""

    def __init__(self, name: str, memory_bytes: int, live: Live, usage: Usage) -> None:
        self.name, self.memory_bytes = name, memory_bytes
        self._live, self._usage = live, usage
        self.adopted: int | None = None
        self.closed = False

    @property
    def parent(self) -> str | None:
        return f"/sealbench/{self.name}"

    def adopt(self, pid: int) -> None:
        self.adopted = pid

    def live(self) -> Live:
        return self._live

    def usage(self) -> Usage:
        return self._usage

    def close(self) -> None:
        self.closed = True


class FakeCgroups:
    """Implements ``usage.Cgroups``: the same account for every unit."""

    def __init__(self, usage: Usage | None = None, live: Live | None = None) -> None:
        self._usage = usage or Usage(oom_events=0, cpu_ns=1_000_000, peak_memory_bytes=1 << 20)
        self._live = live or Live(memory_bytes=1 << 20, cpu_ns=1_000_000)
        self.groups: list[FakeGroup] = []

    def open_unit(self, name: str, *, memory_bytes: int) -> UnitGroup:
        group = FakeGroup(name, memory_bytes, self._live, self._usage)
        self.groups.append(group)
        return group
