"""Control groups read from trees of plain files, as kernels of both versions lay them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.engine.cgroup_files import (
    CounterFile,
    find_mounts,
    parse_membership,
    parse_mountinfo,
    refused_forks,
)
from runner.engine.cgroup_v1 import PARENT_SLACK_BYTES, V1Group
from runner.engine.cgroup_v2 import V2Group
from runner.engine.usage import Usage
from tests.unit.cgroup_trees import V1, V2, machine, put

PID = 77
PATH = "/sealbench/unit"
OWN = f"{PATH}/0123abcd"
LIMIT = 64 << 20


@pytest.fixture
def v1(tmp_path: Path) -> Path:
    root = machine(tmp_path, V1)
    put(
        root / "sys/fs/cgroup",
        {
            f"memory{PATH}/memory.limit_in_bytes": "9223372036854771712\n",
            f"memory{PATH}/memory.memsw.limit_in_bytes": "9223372036854771712\n",
            f"memory{PATH}/memory.swappiness": "60\n",
            f"memory{PATH}/memory.use_hierarchy": "0\n",
            f"memory{PATH}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
            f"memory{PATH}/cgroup.event_control": "",
            f"memory{PATH}/memory.usage_in_bytes": "1000\n",
            f"memory{PATH}/memory.max_usage_in_bytes": "5000\n",
            f"memory{PATH}/memory.stat": "rss 1\ntotal_rss 300\ntotal_swap 20\n",
            f"cpu,cpuacct{PATH}/cpuacct.usage": "123456\n",
            f"pids{PATH}/pids.peak": "5\n",
            f"memory{OWN}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
            f"pids{OWN}/pids.events": "max 0\n",
            f"pids{OWN}/pids.max": "16\n",
            f"cpu,cpuacct{OWN}/cpu.stat": "nr_periods 9\nnr_throttled 3\nthrottled_time 700\n",
        },
    )
    put(root, {f"proc/{PID}/cgroup": f"4:memory:{OWN}\n2:cpu,cpuacct:{OWN}\n8:pids:{OWN}\n"})
    return root


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    root = machine(tmp_path, V2)
    put(
        root / "sys/fs/cgroup",
        {
            f".{PATH}/memory.current": "1000\n",
            f".{PATH}/memory.peak": "5000\n",
            f".{PATH}/memory.swap.peak": "0\n",
            f".{PATH}/memory.stat": "anon 300\nfile 7\n",
            f".{PATH}/memory.events": "low 0\nhigh 0\nmax 4\noom 1\noom_kill 2\n",
            f".{PATH}/cpu.stat": "usage_usec 123\nuser_usec 100\n",
            f".{PATH}/pids.events": "max 0\n",
            f".{PATH}/pids.peak": "5\n",
            f".{OWN}/memory.events": "oom 1\noom_kill 1\n",
            f".{OWN}/pids.events": "max 0\n",
            f".{OWN}/pids.max": "16\n",
            f".{OWN}/cpu.stat": "usage_usec 120\nnr_throttled 3\nthrottled_usec 7\n",
        },
    )
    put(root, {f"proc/{PID}/cgroup": f"0::{OWN}\n"})
    return root


def v1_group(root: Path) -> V1Group:
    return V1Group(PATH, find_mounts(root), memory_bytes=LIMIT, root=root)


def v2_group(root: Path, *, local_events: bool = False) -> V2Group:
    mount = find_mounts(root).v2
    assert mount is not None
    return V2Group(PATH, mount, local_events=local_events, root=root)


# --- mounts and memberships -------------------------------------------------------------------


def test_mounts_of_version_1() -> None:
    found = parse_mountinfo(V1)
    assert found.v1 == {
        "cpu": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "cpuacct": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "memory": Path("/sys/fs/cgroup/memory"),
        "pids": Path("/sys/fs/cgroup/pids"),
    }
    assert found.v2 == Path("/sys/fs/cgroup/unified")
    assert {path.name for path in found.every} == {
        "cpu,cpuacct",
        "memory",
        "devices",
        "pids",
        "systemd",
        "unified",
    }


def test_mounts_of_version_2() -> None:
    found = parse_mountinfo(V2)
    assert (found.v1, found.v2) == ({}, Path("/sys/fs/cgroup"))
    assert not found.v2_local_events
    assert parse_mountinfo(V2.replace(b"nsdelegate", b"memory_localevents")).v2_local_events


@pytest.mark.parametrize(
    ("text", "point"),
    [
        (rb"1 1 0:1 / /sys/my\040groups rw - cgroup c rw,memory", Path("/sys/my groups")),
        (b"1 1 0:1 /docker/abc /sys/fs/cgroup/memory rw - cgroup c rw,memory", None),
        (b"1 1 0:1 / /sys/fs/cgroup/memory rw - ext4 c rw,memory", None),
        (b"garbage", None),
        (b"", None),
    ],
)
def test_odd_mounts(text: bytes, point: Path | None) -> None:
    assert parse_mountinfo(text).v1.get("memory") == point


def test_a_part_of_a_tree_is_told_apart() -> None:
    found = parse_mountinfo(b"1 1 0:1 /docker/abc /sys/fs/cgroup/memory rw - cgroup c rw,memory")
    assert found.partial == {"memory"}
    assert found.every == ()


def test_memberships() -> None:
    text = "4:memory:/a/b\n2:cpu,cpuacct:/a:b\n1:name=systemd:/x\n0::/u\nbroken\n"
    assert parse_membership(text) == {
        "memory": "/a/b",
        "cpu": "/a:b",
        "cpuacct": "/a:b",
        "name=systemd": "/x",
        "": "/u",
    }


@pytest.mark.parametrize(
    ("text", "number"), [("12\n", 12), ("max\n", None), ("", None), ("-1\n", None)]
)
def test_numbers(tmp_path: Path, text: str, number: int | None) -> None:
    (tmp_path / "f").write_text(text)
    file = CounterFile(tmp_path / "f")
    assert file.number() == number
    file.close()
    assert file.number() is None


@pytest.mark.parametrize(
    ("seen", "peak", "limit", "value", "explained"),
    [
        (3, None, None, 3, False),
        (3, 4, 16, 3, False),
        (0, 4, 16, 0, False),
        (0, 16, 16, None, True),  # the limit was reached: a refusal may have been missed
        (0, None, 16, None, True),
        (0, 4, None, 0, False),  # no limit at all
        (None, 4, 16, None, False),  # the caller's own reason stands
    ],
)
def test_refused_forks(
    seen: int | None, peak: int | None, limit: int | None, value: int | None, explained: bool
) -> None:
    found, reason = refused_forks(seen, peak, limit)
    assert found == value
    assert (reason is not None) == explained


# --- version 1 --------------------------------------------------------------------------------


def test_version_1_sets_its_limits(v1: Path) -> None:
    group = v1_group(v1)
    folder = v1 / f"sys/fs/cgroup/memory{PATH}"
    limit = str(LIMIT - PARENT_SLACK_BYTES)
    assert (folder / "memory.limit_in_bytes").read_text().startswith(limit)
    assert (folder / "memory.memsw.limit_in_bytes").read_text().startswith(limit)
    assert (folder / "memory.swappiness").read_text().startswith("0")
    assert (folder / "memory.use_hierarchy").read_text().startswith("1")
    assert (folder / "cgroup.event_control").read_text().count(" ") == 1
    assert group.parent == PATH
    group.close()


def test_version_1_reads_everything(v1: Path) -> None:
    group = v1_group(v1)
    group.adopt(PID)
    live = group.live()
    assert (live.memory_bytes, live.cpu_ns) == (1000, 123456)
    assert group.usage() == Usage(
        peak_memory_bytes=5000,
        rss_peak_bytes=300,
        swap_peak_bytes=20,
        cpu_ns=123456,
        oom_events=0,
        pids_events=0,
        throttled_periods=3,
        throttled_ns=700,
    )
    group.close()


def test_version_1_keeps_the_highest_of_its_samples(v1: Path) -> None:
    group = v1_group(v1)
    group.adopt(PID)
    base = v1 / "sys/fs/cgroup"
    (base / f"memory{PATH}/memory.stat").write_text("total_rss 900\ntotal_swap 0\n")
    (base / f"memory{OWN}/memory.oom_control").write_text("oom_kill 2\n")
    group.live()
    (base / f"memory{PATH}/memory.stat").write_text("total_rss 10\ntotal_swap 0\n")
    usage = group.usage()
    assert (usage.rss_peak_bytes, usage.swap_peak_bytes, usage.oom_events) == (900, 20, 2)
    group.close()


def test_version_1_without_the_container_says_what_it_missed(v1: Path) -> None:
    group = v1_group(v1)
    group.adopt(PID + 1)  # gone already
    usage = group.usage()
    assert usage.oom_events == 0  # our own group saw none
    assert usage.throttled_periods is None
    assert "ended before" in usage.unmeasured["throttled_periods"]
    assert usage.cpu_ns == 123456
    group.close()


def test_version_1_knows_a_container_put_elsewhere(v1: Path) -> None:
    put(v1, {f"proc/{PID}/cgroup": "4:memory:/docker/0123\n"})
    (v1 / f"sys/fs/cgroup/cpu,cpuacct{PATH}/cpuacct.usage").write_text("0\n")
    group = v1_group(v1)
    group.adopt(PID)
    usage = group.usage()
    assert usage.cpu_ns is None
    assert usage.peak_memory_bytes is None
    assert "elsewhere" in usage.unmeasured["cpu_ns"]
    group.close()


def test_version_1_without_swap_accounting(v1: Path) -> None:
    folder = v1 / f"sys/fs/cgroup/memory{PATH}"
    (folder / "memory.memsw.limit_in_bytes").unlink()
    (folder / "memory.stat").write_text("total_rss 300\n")
    group = v1_group(v1)
    group.adopt(PID)
    usage = group.usage()
    assert usage.swap_peak_bytes is None
    assert "swap" in usage.unmeasured["swap_peak_bytes"]
    group.close()


def test_version_1_without_events_relies_on_the_containers_group(v1: Path) -> None:
    (v1 / f"sys/fs/cgroup/memory{PATH}/cgroup.event_control").unlink()
    (v1 / f"sys/fs/cgroup/memory{OWN}/memory.oom_control").write_text("oom_kill_disable 0\n")
    group = v1_group(v1)
    group.adopt(PID)
    usage = group.usage()
    assert usage.oom_events is None
    assert "out-of-memory" in usage.unmeasured["oom_events"]
    group.close()


# --- version 2 --------------------------------------------------------------------------------


def test_version_2_reads_everything(v2: Path) -> None:
    group = v2_group(v2)
    group.adopt(PID)
    live = group.live()
    assert (live.memory_bytes, live.cpu_ns) == (1000, 123_000)
    assert group.usage() == Usage(
        peak_memory_bytes=5000,
        rss_peak_bytes=300,
        swap_peak_bytes=0,
        cpu_ns=123_000,
        oom_events=2,
        pids_events=0,
        throttled_periods=3,
        throttled_ns=7000,
    )
    group.close()


def test_version_2_counts_kills_without_the_container(v2: Path) -> None:
    group = v2_group(v2)
    assert group.usage().oom_events == 2
    group.close()


def test_version_2_with_local_events_asks_the_containers_group(v2: Path) -> None:
    group = v2_group(v2, local_events=True)
    group.adopt(PID)
    assert group.usage().oom_events == 1
    group.close()


def test_version_2_on_an_older_kernel(v2: Path) -> None:
    for name in ("memory.peak", "memory.swap.peak"):
        (v2 / f"sys/fs/cgroup{PATH}" / name).unlink()
    group = v2_group(v2)
    group.adopt(PID)
    usage = group.usage()
    assert usage.peak_memory_bytes is None
    assert "5.19" in usage.unmeasured["peak_memory_bytes"]
    assert "6.5" in usage.unmeasured["swap_peak_bytes"]
    assert usage.cpu_ns == 123_000
    group.close()


def test_version_2_takes_no_zero_for_a_measurement(v2: Path) -> None:
    (v2 / f"sys/fs/cgroup{PATH}/cpu.stat").write_text("usage_usec 0\n")
    group = v2_group(v2)
    usage = group.usage()
    assert usage.oom_events is None
    assert set(usage.unmeasured) == set(Usage.__dataclass_fields__) - {"unmeasured"}
    group.close()
