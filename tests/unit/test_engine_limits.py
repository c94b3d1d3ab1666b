"""Which limits an engine can enforce, and what a run may waive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.engine.fake import FAKE_INFO
from runner.engine.limits import EngineFlags, check_limits, unenforceable
from runner.errors import LimitError
from runner.model import Limits

ALL = EngineFlags(
    memory=True,
    swap=True,
    pids=True,
    cpus=True,
    rootless=False,
    cgroup_version=2,
    cgroup_driver="systemd",
)
EVERY = ("memory", "swap", "cpus", "pids")


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (ALL, ()),
        (replace(ALL, memory=False), ("memory",)),
        (replace(ALL, swap=False), ("swap",)),
        (replace(ALL, pids=False), ("pids",)),
        (replace(ALL, cpus=False), ("cpus",)),
        (replace(ALL, cpus=False, memory=False), ("memory", "cpus")),
        (replace(ALL, rootless=True), ()),  # version 2, delegated: the flags tell
        (replace(ALL, rootless=True, cgroup_version=1), EVERY),  # ignored, whatever the flags say
        (replace(ALL, cgroup_driver="none"), EVERY),
    ],
)
def test_unenforceable(flags: EngineFlags, names: tuple[str, ...]) -> None:
    found = unenforceable(flags)
    assert tuple(item.name for item in found) == names
    assert all(item.reason for item in found)


@pytest.mark.parametrize(
    ("missing", "waive", "swap_bytes", "waived"),
    [
        ((), (), None, ()),
        ((), ("pids",), None, ()),  # nothing to waive: the limit holds
        (("pids",), ("pids",), None, ("pids",)),
        (("cpus", "pids"), ("pids", "cpus"), None, ("cpus", "pids")),
        (("swap",), (), 0, ()),  # no swap on the host: nothing to limit
        (("swap",), ("swap",), 1 << 30, ("swap",)),
    ],
)
def test_waived(
    missing: tuple[str, ...],
    waive: tuple[str, ...],
    swap_bytes: int | None,
    waived: tuple[str, ...],
) -> None:
    engine = replace(FAKE_INFO, unenforceable=missing)
    assert check_limits(engine, Limits(), waive, swap_bytes=swap_bytes) == waived


@pytest.mark.parametrize(
    ("missing", "waive", "swap_bytes", "named"),
    [
        (("pids",), (), None, "pids"),
        (("cpus", "pids"), ("pids",), None, "cpus"),
        (("swap",), (), None, "swap"),
        (("swap",), (), 1, "swap"),
        (("memory", "swap", "cpus", "pids"), ("memory",), None, "swap, cpus, pids"),
    ],
)
def test_refused(
    missing: tuple[str, ...], waive: tuple[str, ...], swap_bytes: int | None, named: str
) -> None:
    with pytest.raises(LimitError) as caught:
        check_limits(
            replace(FAKE_INFO, unenforceable=missing), Limits(), waive, swap_bytes=swap_bytes
        )
    assert caught.value.code == "limit.unenforceable"
    assert caught.value.message.endswith(f": {named}")
    assert f"[{named}]" in caught.value.fix


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (Limits(memory_bytes=(8 << 30) + 1), "limit.memory-exceeds-host"),
        (Limits(cpus_milli=2001), "limit.cpus-exceed-host"),
        (Limits(memory_bytes=(6 << 20) - 1), "limit.memory-too-small"),
        (Limits(cpus_milli=9), "limit.cpus-too-small"),
        (Limits(pids=1), "limit.pids-too-small"),
    ],
)
def test_a_budget_that_this_host_does_not_have(limits: Limits, code: str) -> None:
    every = ("memory", "swap", "cpus", "pids")
    with pytest.raises(LimitError) as caught:
        check_limits(FAKE_INFO, limits, every)
    assert caught.value.code == code


def test_the_whole_host_is_allowed() -> None:
    assert check_limits(FAKE_INFO, Limits(memory_bytes=8 << 30, cpus_milli=2000)) == ()
