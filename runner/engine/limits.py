"""Pure: which limits can this engine on this host enforce, and may the run go on without them?

A limit that cannot be enforced is an error unless the manifest waives it by name; then the result
says so. Engines accept most settings that they cannot enforce with no more than a warning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runner.engine.api import EngineInfo
from runner.errors import LimitError
from runner.model import Limits

#: Names that can be waived, in the order in which they are reported.
WAIVABLE = ("memory", "swap", "cpus", "pids")
_MIN_MEMORY = 6 << 20  # the engine refuses less


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """What the engine says of itself, as far as limits go."""

    memory: bool
    swap: bool
    pids: bool
    cpus: bool
    rootless: bool
    cgroup_version: int
    cgroup_driver: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unenforceable:
    """A limit's name in the manifest, and why it cannot be enforced here."""

    name: str
    reason: str


def unenforceable(flags: EngineFlags) -> tuple[Unenforceable, ...]:
    """Return every limit that the engine cannot enforce."""
    whole: str | None = None
    if flags.cgroup_driver == "none":
        whole = "the engine runs without control groups"
    elif flags.rootless and flags.cgroup_version == 1:
        whole = "a rootless engine on cgroup v1 ignores limits"
    if whole is not None:
        return tuple(Unenforceable(name=name, reason=whole) for name in WAIVABLE)
    supported = {
        "memory": (flags.memory, "the kernel or engine has no memory limit"),
        "swap": (flags.swap, "swap is not accounted, so memory can grow into it"),
        "cpus": (flags.cpus, "the kernel has no CPU quota (CFS bandwidth)"),
        "pids": (flags.pids, "the kernel has no limit of processes"),
    }
    return tuple(
        Unenforceable(name=name, reason=supported[name][1])
        for name in WAIVABLE
        if not supported[name][0]
    )


def check_limits(
    engine: EngineInfo, limits: Limits, waive: Iterable[str] = (), *, swap_bytes: int | None = None
) -> tuple[str, ...]:
    """Return the waived limits that will in fact not be enforced, sorted.

    ``swap_bytes`` is the host's swap: where there is none (0), it needs no limit. Raises
    ``LimitError`` for a limit that cannot be enforced and is not waived, and for a budget that
    this host does not have or the engine refuses.
    """
    _refuse_impossible(engine, limits)
    missing = [name for name in engine.unenforceable if not (name == "swap" and swap_bytes == 0)]
    waived = set(waive)
    refused = [name for name in missing if name not in waived]
    if refused:
        names = ", ".join(refused)
        raise LimitError(
            "limit.unenforceable",
            f"this host's engine cannot enforce: {names}",
            fix=f"run on a host that can, or add `waive: [{names}]` to the manifest; "
            "the result then says so",
        )
    return tuple(sorted(set(missing)))


def _refuse_impossible(engine: EngineInfo, limits: Limits) -> None:
    if limits.memory_bytes > engine.memory_bytes > 0:
        raise LimitError(
            "limit.memory-exceeds-host",
            f"memory {limits.memory_bytes} bytes is more than the host's {engine.memory_bytes}",
            fix="lower limits.memory, or run on a larger host",
        )
    if limits.cpus_milli > engine.cpus * 1000 > 0:
        raise LimitError(
            "limit.cpus-exceed-host",
            f"{limits.cpus_milli / 1000:g} CPUs are more than the host's {engine.cpus}",
            fix="lower limits.cpus, or run on a host with more",
        )
    if limits.memory_bytes < _MIN_MEMORY:
        raise LimitError(
            "limit.memory-too-small",
            f"memory {limits.memory_bytes} bytes is below the engine's least, {_MIN_MEMORY}",
            fix="raise limits.memory",
        )
    if limits.cpus_milli < 10:
        raise LimitError(
            "limit.cpus-too-small",
            f"{limits.cpus_milli / 1000:g} CPUs is below the engine's least, 0.01",
            fix="raise limits.cpus",
        )
    if limits.pids < 2:
        raise LimitError(
            "limit.pids-too-small",
            f"{limits.pids} processes leave none beside the container's init",
            fix="set limits.pids to 2 or more",
        )
