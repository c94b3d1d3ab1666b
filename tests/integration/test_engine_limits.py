"""Limits that bite on a real engine, and the evidence that stays when the container is gone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from runner.engine.cgroup_files import find_mounts
from runner.engine.cgroups import TOP, NullCgroups, open_cgroups, orphaned_groups
from runner.engine.docker import DockerEngine
from tests.containers import MIB, created, out_mount, run, sh, spec, unit_group

pytestmark = pytest.mark.engine

CHILD_EATS = "dd if=/dev/zero of=/dev/null bs=100M count=1; exit 0"


@pytest.fixture(scope="module")
def counted(engine: DockerEngine) -> DockerEngine:
    """An engine whose containers we can put below control groups of our own."""
    cgroups = open_cgroups(engine.info())
    if isinstance(cgroups, NullCgroups):
        pytest.skip(f"no control groups here: {cgroups.reason}")
    return engine


def test_the_pids_limit_bites(engine: DockerEngine, tiny_image: str) -> None:
    script = "i=0; while [ $i -lt 40 ]; do sleep 1 & i=$((i+1)); done; wait; echo all"
    done = run(engine, spec(tiny_image, sh(script), pids=16))
    assert b"all" not in done.stdout
    assert b"fork" in done.stderr


def test_refused_forks_are_counted(counted: DockerEngine, tiny_image: str) -> None:
    # The subshell dies of its refused fork; its parent lives on, long enough to be read.
    script = "(i=0; while [ $i -lt 40 ]; do sleep 1 & i=$((i+1)); done); sleep 1.5; exit 0"
    done = run(counted, spec(tiny_image, sh(script), pids=16))
    assert done.code == 0
    assert done.usage.pids_events is not None
    assert done.usage.pids_events >= 1


@pytest.mark.parametrize("attempt", range(3))
def test_a_killed_child_is_seen_although_the_exit_code_is_0(
    counted: DockerEngine, tiny_image: str, attempt: int
) -> None:
    done = run(counted, spec(tiny_image, sh(CHILD_EATS), memory_bytes=32 * MIB))
    assert done.code == 0
    assert done.usage.oom_events is not None
    assert done.usage.oom_events >= 1
    peak = done.usage.peak_memory_bytes
    assert peak is not None
    assert 30 * MIB < peak <= 32 * MIB


def test_a_kill_is_seen_when_it_ends_the_container(counted: DockerEngine, tiny_image: str) -> None:
    command = ("/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1")
    done = run(counted, spec(tiny_image, command, memory_bytes=32 * MIB))
    assert done.code == 137
    assert (done.usage.oom_events or 0) >= 1


def test_exit_137_without_memory_trouble_shows_no_event(
    counted: DockerEngine, tiny_image: str
) -> None:
    done = run(counted, spec(tiny_image, sh("sleep 0.3; exit 137")))
    assert done.code == 137
    assert done.usage.oom_events == 0
    assert not done.state.oom_flag


def test_memory_does_not_overflow_into_swap(engine: DockerEngine, tiny_image: str) -> None:
    with (
        created(engine, spec(tiny_image, ("/bin/true",), memory_bytes=32 * MIB)) as ident,
        engine._client("read the settings") as client,
    ):
        settings = client.inspect_container(ident)["HostConfig"]
    assert settings["Memory"] == settings["MemorySwap"] == 32 * MIB
    assert not settings["OomKillDisable"]


def test_cpu_time_and_throttling_are_measured(counted: DockerEngine, tiny_image: str) -> None:
    script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    done = run(counted, spec(tiny_image, sh(script), cpus_milli=200))
    assert done.usage.cpu_ns is not None
    assert done.usage.cpu_ns > 20_000_000
    assert done.usage.throttled_periods is not None
    assert done.usage.throttled_periods > 0
    assert "cpu_ns" not in done.usage.unmeasured


def test_one_file_cannot_outgrow_its_limit(
    engine: DockerEngine, tiny_image: str, tmp_path: Path
) -> None:
    script = "dd if=/dev/zero of=/out/big bs=64k count=64; echo code $?"
    wanted = spec(
        tiny_image, sh(script), mounts=(out_mount(tmp_path / "out"),), file_size_bytes=MIB
    )
    done = run(engine, wanted)
    assert (tmp_path / "out/big").stat().st_size == MIB
    assert done.stdout in (b"code 153\n", b"code 1\n")  # SIGXFSZ, or the error of the write


def test_a_sparse_file_is_no_way_round(
    engine: DockerEngine, tiny_image: str, tmp_path: Path
) -> None:
    wanted = spec(
        tiny_image,
        sh("truncate -s 5G /out/sparse; echo code $?"),
        mounts=(out_mount(tmp_path / "out"),),
        file_size_bytes=MIB,
    )
    assert run(engine, wanted).stdout != b"code 0\n"
    assert (tmp_path / "out/sparse").stat().st_size == 0


def test_no_core_files(engine: DockerEngine, tiny_image: str, tmp_path: Path) -> None:
    wanted = spec(
        tiny_image,
        sh("cd /out; ulimit -c; sh -c 'kill -SEGV $$'; ls | wc -l || true; ls"),
        mounts=(out_mount(tmp_path / "out"),),
    )
    assert run(engine, wanted).stdout.startswith(b"0\n")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_live_reading_is_cheap_and_groups_go(counted: DockerEngine, tiny_image: str) -> None:
    with unit_group(counted, 64 * MIB) as group:
        parent = group.parent
        assert parent is not None
        wanted = spec(tiny_image, ("/bin/sleep", "5"), cgroup_parent=parent)
        with created(counted, wanted) as ident:
            counted.start(ident)
            state = counted.state(ident)
            assert state is not None
            assert state.pid is not None
            group.adopt(state.pid)
            began = time.process_time()
            for _ in range(100):
                live = group.live()
            spent = time.process_time() - began
        assert live.memory_bytes
        assert live.cpu_ns
        assert spent < 0.2  # 2 ms each: ten times the goal, for a machine in company
        leaf = parent.rpartition("/")[2]
        assert _group_folders(leaf)
    assert _group_folders(leaf) == []


def test_an_unused_group_measures_nothing(counted: DockerEngine) -> None:
    with unit_group(counted, 64 * MIB) as group:
        usage = group.usage()
    assert usage.cpu_ns is None
    assert usage.peak_memory_bytes is None
    assert "cpu_ns" in usage.unmeasured


def test_a_container_elsewhere_is_noticed(counted: DockerEngine, tiny_image: str) -> None:
    """As with an engine that cannot see our groups: nothing is charged, and that is said."""
    with (
        unit_group(counted, 64 * MIB) as group,
        created(counted, spec(tiny_image, ("/bin/sleep", "5"))) as ident,
    ):
        counted.start(ident)
        state = counted.state(ident)
        assert state is not None
        assert state.pid is not None
        group.adopt(state.pid)
        usage = group.usage()
    assert usage.peak_memory_bytes is None
    assert "elsewhere" in usage.unmeasured["peak_memory_bytes"]


def test_a_live_owners_groups_are_no_orphans(counted: DockerEngine) -> None:
    with unit_group(counted, 64 * MIB) as group:
        assert group.parent is not None
        leaf = group.parent.rpartition("/")[2]
        assert leaf not in {folder.name for folder in orphaned_groups()}


def _group_folders(leaf: str) -> list[Path]:
    found = []
    for mount in find_mounts().every:
        for top in (TOP, f"{TOP}.slice"):
            folder = mount / top / leaf
            if folder.exists():
                found.append(folder)
    return found
