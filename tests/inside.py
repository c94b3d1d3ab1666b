"""Run a script of a test's own inside a method image, under the supervisor, and read its answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runner.engine.cgroups import open_cgroups
from runner.engine.docker import DockerEngine
from runner.model import Limits, Unit
from runner.request import UnitRequest, container_user, method_env
from runner.signals import CancelToken
from runner.supervisor import Platform, run_unit

LIMITS = Limits(wall_ms=300_000, memory_bytes=2 << 30, tmp_bytes=256 << 20, cpus_milli=2000)


def run_inside(
    engine: DockerEngine,
    image: str,
    folder: Path,
    script: str,
    limits: Limits = LIMITS,
    **given: bytes,
) -> dict[str, Any]:
    """Run a script in a container of the image, as a method would run; return what it left in
    ``/out/found.json``.

    ``given``: files for ``/in``, by name with ``__`` for the dot.
    """
    for name in ("in", "out", "work"):
        (folder / name).mkdir()
    (folder / "in" / "inside.py").write_text(script, encoding="utf-8")
    for name, data in given.items():
        (folder / "in" / name.replace("__", ".")).write_bytes(data)
    platform = Platform(engine=engine, cgroups=open_cgroups(engine.info()))
    result = run_unit(
        platform,
        UnitRequest(
            run_id="sha256:" + "0" * 64,
            unit=Unit(
                unit_id="sha256:" + "1" * 64, method="m", method_id="sha256:" + "2" * 64,
                dataset="none", repeat=0, seed=0,
            ),
            image_id=image,
            command=("python3", "/in/inside.py"),
            limits=limits,
            remaining_wall_ms=limits.wall_ms,
            in_dir=folder / "in",
            out_dir=folder / "out",
            work_dir=folder / "work",
            stdout_log=folder / "stdout.log",
            stderr_log=folder / "stderr.log",
            env=method_env(limits, 0),
            user=container_user(),
        ),
        cancel=CancelToken(),
    )  # fmt: skip
    assert result.evidence.exit_code == 0, (folder / "stderr.log").read_text()
    found: dict[str, Any] = json.loads((folder / "out" / "found.json").read_bytes())
    return found
