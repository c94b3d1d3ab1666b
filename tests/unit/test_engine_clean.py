"""What a sweep removes, and what it never touches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.engine.api import ContainerSpec
from runner.engine.clean import is_stale, sweep
from runner.engine.fake import NEVER, FakeEngine, Script
from runner.engine.lease import EXPIRES, LEASE, RUN, UNIT, Owner, labels, own_lease

NOW = 1000.0
DEAD = str(replace(own_lease(), started=1))
ELSEWHERE = str(replace(own_lease(), namespace=1))


@pytest.mark.parametrize(
    ("owner", "past", "stale"),
    [
        (Owner.DEAD, False, True),
        (Owner.DEAD, True, True),
        (Owner.UNKNOWN, False, False),
        (Owner.UNKNOWN, True, True),
        (Owner.ALIVE, False, False),
        (Owner.ALIVE, True, False),
    ],
)
def test_who_is_stale(owner: Owner, past: bool, stale: bool) -> None:
    assert is_stale(owner, past=past) is stale


def engine_with(*boxes: tuple[str, dict[str, str]], script: Script | None = None) -> FakeEngine:
    engine = FakeEngine(default=script or Script(exit_after_s=NEVER))
    for name, marks in boxes:
        spec = ContainerSpec(
            image_id="sha256:" + "a" * 64,
            name=name,
            command=("x",),
            user="1:1",
            mounts=(),
            env={},
            labels=marks,
            memory_bytes=1,
            cpus_milli=1,
            pids=1,
            tmp_bytes=1,
            shm_bytes=1,
            file_size_bytes=1,
        )
        engine.start(engine.create(spec))
    return engine


def marks(**changes: str) -> dict[str, str]:
    return {**labels(run_id="r", unit_id="u", expires_epoch=2000), **changes}


BOXES: tuple[tuple[str, dict[str, str]], ...] = (
    ("sealbench-mine", marks()),
    ("sealbench-overdue", marks(**{EXPIRES: "1"})),
    ("sealbench-dead", marks(**{LEASE: DEAD})),
    ("sealbench-elsewhere", marks(**{LEASE: ELSEWHERE})),
    ("sealbench-elsewhere-past", marks(**{LEASE: ELSEWHERE, EXPIRES: "1"})),
    ("sealbench-no-lease", {RUN: "r", UNIT: "u"}),
    ("sealbench-foreign", {"com.example": "x", LEASE: DEAD, EXPIRES: "1"}),
    ("from-our-image", marks(**{LEASE: DEAD, EXPIRES: "1"})),
    ("bare", {}),
)
STALE = {"sealbench-dead", "sealbench-elsewhere-past"}


def names(engine: FakeEngine) -> set[str]:
    return {item.name for item in engine.containers({})}


def test_only_our_own_leftovers_go(tmp_path: Path) -> None:
    engine = engine_with(*BOXES)
    report = sweep(engine, dry_run=False, now=lambda: NOW, root=_root(tmp_path))
    assert names(engine) == {name for name, _ in BOXES} - STALE
    assert {item.name for item in report.containers if item.removed} == STALE
    assert {item.name for item in report.containers} == {name for name, _ in BOXES[:6]}
    assert report.clean


def test_a_dry_run_touches_nothing(tmp_path: Path) -> None:
    engine = engine_with(*BOXES)
    report = sweep(engine, dry_run=True, now=lambda: NOW, root=_root(tmp_path))
    assert names(engine) == {name for name, _ in BOXES}
    assert {item.name for item in report.containers if item.stale} == STALE
    assert not any(item.removed for item in report.containers)
    assert not report.clean


def test_a_container_that_does_not_go_is_reported(tmp_path: Path) -> None:
    engine = engine_with(
        ("sealbench-dead", marks(**{LEASE: DEAD})),
        script=Script(exit_after_s=NEVER, kill_delay_s=NEVER),
    )
    report = sweep(engine, dry_run=False, now=lambda: NOW, root=_root(tmp_path))
    (item,) = report.containers
    assert item.stale
    assert not item.removed
    assert item.problem
    assert not report.clean


def test_unfinished_folders_are_listed_and_stay(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    (runs / ".partial-1").mkdir(parents=True)
    (runs / "bundle").mkdir()
    (runs / ".partial-file").touch()
    folders = [runs, tmp_path / "absent"]
    report = sweep(FakeEngine(), dry_run=False, folders=folders, root=_root(tmp_path))
    assert report.partial_folders == (str(runs / ".partial-1"),)
    assert (runs / ".partial-1").is_dir()


def test_orphaned_groups_go_with_the_sweep(tmp_path: Path) -> None:
    root = _root(tmp_path)
    mount = root / "sys/fs/cgroup/memory"
    (root / "proc/self/mountinfo").write_text(
        "1 1 0:1 / /sys/fs/cgroup/memory rw - cgroup c rw,memory\n"
    )
    orphan = mount / "sealbench" / f"{own_lease(root).boot}-1-2-3-u"
    other_boot = mount / "sealbench" / f"{'0' * 12}-0-2-3-u"
    foreign = mount / "docker/abc"
    for folder in (orphan, other_boot, foreign):
        folder.mkdir(parents=True)
    dry = sweep(FakeEngine(), dry_run=True, root=root)
    assert dry.groups == ((str(other_boot), False),)
    assert sweep(FakeEngine(), dry_run=False, root=root).groups == ((str(other_boot), True),)
    assert orphan.is_dir()  # of another pid namespace: nobody can tell
    assert foreign.is_dir()


def _root(tmp_path: Path) -> Path:
    """A root whose processes are the real ones, and whose control groups are not."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "proc").mkdir()
    for name in ("sys", str(own_lease().pid)):
        (root / "proc" / name).symlink_to(Path("/proc") / name)
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/self/ns/pid").symlink_to(Path("/proc/self/ns/pid").readlink())
    return root
