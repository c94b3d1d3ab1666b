"""Which control groups a host and an engine allow, and which are left over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.engine.api import EngineInfo
from runner.engine.cgroups import (
    NullCgroups,
    SystemCgroups,
    open_cgroups,
    orphaned_groups,
    remove_group,
)
from runner.engine.fake import FAKE_INFO
from runner.engine.lease import own_lease
from tests.unit.cgroup_trees import V1, V2, machine, put

LIMIT = 64 << 20
HOST_V1 = FAKE_INFO
HOST_V2 = replace(FAKE_INFO, cgroup_version=2, cgroup_driver="systemd")


@pytest.mark.parametrize(
    ("engine", "mountinfo", "word"),
    [
        (replace(HOST_V1, rootless=True), V1, "rootless"),
        (replace(HOST_V1, cgroup_driver="none"), V1, "without control groups"),
        (HOST_V1, V2, "not visible"),
        (HOST_V1, V1.replace(b" / /sys/fs/cgroup/memory", b" /d /sys/fs/cgroup/memory"), "in part"),
        (HOST_V2, b"", "not mounted"),
    ],
)
def test_no_groups_with_a_reason(
    tmp_path: Path, engine: EngineInfo, mountinfo: bytes, word: str
) -> None:
    cgroups = open_cgroups(engine, machine(tmp_path, mountinfo))
    assert isinstance(cgroups, NullCgroups)
    assert word in cgroups.reason
    group = cgroups.open_unit("u", memory_bytes=LIMIT)
    group.adopt(1)
    assert group.parent is None
    assert group.live().memory_bytes is None
    usage = group.usage()
    assert usage.cpu_ns is None
    assert set(usage.unmeasured.values()) == {cgroups.reason}
    group.close()


def test_the_engine_is_told_a_path_or_a_slice(tmp_path: Path) -> None:
    root = machine(tmp_path / "one", V1)
    group = open_cgroups(HOST_V1, root).open_unit("a-b", memory_bytes=LIMIT)
    assert group.parent == f"/sealbench/{own_lease(root)}-a-b"
    group.close()

    root = machine(tmp_path / "two", V2)
    cgroups = open_cgroups(HOST_V2, root)
    assert isinstance(cgroups, SystemCgroups)
    group = cgroups.open_unit("a-b", memory_bytes=LIMIT)
    name = f"sealbench-{str(own_lease(root)).replace('-', '_')}_a_b.slice"
    assert group.parent == name
    assert (root / "sys/fs/cgroup/sealbench.slice" / name).is_dir()
    group.close()
    assert not (root / "sys/fs/cgroup/sealbench.slice" / name).exists()


@pytest.mark.parametrize("name", ["", "A", "a/b", "../x", "a b", "-a", "a" * 64])
def test_names_of_units(tmp_path: Path, name: str) -> None:
    cgroups = open_cgroups(HOST_V1, machine(tmp_path, V1))
    with pytest.raises(ValueError, match="not a name"):
        cgroups.open_unit(name, memory_bytes=LIMIT)


def test_a_tree_that_cannot_be_written_gives_a_null_group(tmp_path: Path) -> None:
    root = machine(tmp_path, V1)
    (root / "sys/fs/cgroup/memory/sealbench").write_text("in the way")
    group = open_cgroups(HOST_V1, root).open_unit("u", memory_bytes=LIMIT)
    assert group.parent is None
    assert "no control group of our own" in group.usage().unmeasured["cpu_ns"]


def test_only_dead_owners_groups_are_orphans(tmp_path: Path) -> None:
    root = machine(tmp_path, V1)
    boot = own_lease(root).boot
    # In this root there is no /proc/<pid>/stat at all: every pid is dead but 500.
    put(root, {"proc/500/stat": "500 (a b) c) S " + " ".join(["1"] * 18) + " 4242 7\n"})
    base = root / "sys/fs/cgroup"
    names = {
        f"{boot}-0-500-4242-u": False,  # alive
        f"{boot}-0-500-4243-u": True,  # the pid was reused
        f"{boot}-0-501-1-u": True,
        f"{boot}-9-501-1-u": False,  # another pid namespace: unknown
        f"{'0' * 12}-0-500-4242-u": True,  # another boot
        "something-else": False,
    }
    for name in names:
        (base / "memory/sealbench" / name / "below").mkdir(parents=True)
    (base / f"pids/sealbench.slice/sealbench-{boot}_0_501_1_u.slice").mkdir(parents=True)
    (base / f"pids/{boot}-0-501-1-u").mkdir()  # not below our top: not ours
    orphans = orphaned_groups(root)
    expected = {name for name, orphan in names.items() if orphan}
    assert {item.name for item in orphans if item.parent.name == "sealbench"} == expected
    assert sum(item.name.endswith(".slice") for item in orphans) == 1
    assert len(orphans) == len(expected) + 1
    assert all(remove_group(folder) for folder in orphans)
    assert orphaned_groups(root) == ()
    assert (base / "memory/sealbench/something-else").is_dir()
