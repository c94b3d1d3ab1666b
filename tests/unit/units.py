"""What the tests of supervision share: one unit, its folders, and how to run it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from runner.model import ImagePin, Limits, MethodPlan, Plan, Unit
from runner.request import UnitRequest, container_user, method_env

IMAGE = "sha256:" + "a" * 64
RUN_ID = "sha256:" + "1" * 64
UNIT = Unit(
    unit_id="sha256:" + "2" * 64,
    method="method",
    method_id="sha256:" + "3" * 64,
    dataset="data",
    repeat=0,
    seed=7,
)
LIMITS = Limits(
    wall_ms=20_000,
    grace_ms=200,
    memory_bytes=64 << 20,
    cpus_milli=1000,
    pids=32,
    output_bytes=1 << 20,
    output_files=50,
    log_bytes=4096,
    tmp_bytes=1 << 20,
    shm_bytes=1 << 20,
)


def request(folder: Path, **changes: object) -> UnitRequest:
    """A unit with folders of its own in ``folder``; ``limits`` may be changed by field."""
    for name in ("in", "out", "work", "logs"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "in").chmod(0o755)
    limits = LIMITS
    for name in [key for key in changes if key in Limits.__dataclass_fields__]:
        limits = replace(limits, **{name: changes.pop(name)})  # type: ignore[arg-type]  # by name
    base = UnitRequest(
        run_id=RUN_ID,
        unit=UNIT,
        image_id=IMAGE,
        command=("run",),
        limits=limits,
        remaining_wall_ms=limits.wall_ms,
        in_dir=folder / "in",
        out_dir=folder / "out",
        work_dir=folder / "work",
        stdout_log=folder / "logs" / "stdout.log",
        stderr_log=folder / "logs" / "stderr.log",
        env=method_env(limits, UNIT.seed),
        user=container_user(),
        rows_planned=3,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # by name


PIN = ImagePin(name="image", image_id=IMAGE)
PLAN = Plan(
    run_id=RUN_ID,
    name="run",
    benchmark_id="bench",
    protocol_id="sha256:" + "4" * 64,
    splits=("all",),
    seed=7,
    repeats=1,
    jobs=1,
    methods=(
        MethodPlan(
            name="method",
            method_id=UNIT.method_id,
            image=PIN,
            command=("run",),
            config={},
            limits=LIMITS,
        ),
    ),
    units=tuple(
        replace(UNIT, unit_id="sha256:" + letter * 64, dataset=f"data{letter}") for letter in "abc"
    ),
)
