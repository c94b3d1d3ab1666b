"""Containers: what a unit costs beside the bare SDK and the command line, and how soon one dies.

All sides run the same image with the same limits, in turns within one process, so that a busy
machine slows them alike; wall times, because most of the work is the engine's. Needs an engine;
``--image`` is an image id with ``/bin/true``, ``/bin/sh`` and ``/bin/sleep``, by default a tiny
image of the local busybox.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import print_limit
from runner.engine.cgroups import open_cgroups
from runner.engine.create import container_body
from runner.engine.docker import DockerEngine
from runner.model import Limits, Unit
from runner.request import UnitRequest, UnitResult, container_spec, container_user
from runner.signals import CancelToken
from runner.supervisor import Platform, run_unit
from tests.tiny_image import build_tiny_image

LIMITS = Limits(memory_bytes=256 << 20, pids=64, tmp_bytes=16 << 20, output_bytes=16 << 20)
NO_OP = ("/bin/true",)
STUBBORN = "trap '' TERM; while :; do :; done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A warm supervisor, an image and a folder to work in."""

    platform: Platform
    engine: DockerEngine
    image_id: str
    folder: Path

    def request(
        self, command: tuple[str, ...], *, wall_ms: int = 60_000, grace_ms: int = 1_000
    ) -> UnitRequest:
        """A unit with folders of its own."""
        home = Path(tempfile.mkdtemp(dir=self.folder))
        # The containers' user must reach the input through every folder above it.
        home.chmod(0o755)
        for name in ("in", "out", "work"):
            (home / name).mkdir()
        return UnitRequest(
            run_id="sha256:" + "0" * 64,
            unit=Unit(
                unit_id="sha256:" + "1" * 64,
                method="bench",
                method_id="sha256:" + "2" * 64,
                dataset="none",
                repeat=0,
                seed=0,
            ),
            image_id=self.image_id,
            command=command,
            limits=Limits(
                memory_bytes=LIMITS.memory_bytes,
                pids=LIMITS.pids,
                tmp_bytes=LIMITS.tmp_bytes,
                output_bytes=LIMITS.output_bytes,
                grace_ms=grace_ms,
            ),
            remaining_wall_ms=wall_ms,
            in_dir=home / "in",
            out_dir=home / "out",
            work_dir=home / "work",
            stdout_log=home / "stdout.log",
            stderr_log=home / "stderr.log",
            env={},
            user=container_user(),
        )

    def run(self, request: UnitRequest) -> UnitResult:
        """One unit; it must have started."""
        result = run_unit(self.platform, request, cancel=CancelToken())
        if not result.evidence.started:
            raise RuntimeError(f"the unit did not start: {result.evidence}")
        return result


def bare_sdk(bench: Bench, client: Any) -> None:
    """create + start + wait + remove with the very body that a unit has."""
    request = bench.request(NO_OP)
    name = f"sealbench-bench-{time.monotonic_ns()}"
    body = container_body(container_spec(request, name=name, labels={}, cgroup_parent=None))
    ident = client.create_container_from_config(body, name)["Id"]
    client.start(ident)
    client.wait(ident)
    client.remove_container(ident, force=True)


def command_line(bench: Bench) -> None:
    """``docker run`` with the same limits, the way that scripts do it."""
    request = bench.request(NO_OP)
    options = ["--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", "--init"]
    options += ["--security-opt", "no-new-privileges", "--pids-limit", str(LIMITS.pids)]
    options += ["--memory", str(LIMITS.memory_bytes), "--memory-swap", str(LIMITS.memory_bytes)]
    tmpfs = f"/tmp:size={LIMITS.tmp_bytes}"  # noqa: S108 - a path inside the container
    options += ["--cpus", "1", "--tmpfs", tmpfs]
    options += ["--log-driver", "none", "--user", request.user]
    options += ["--mount", f"type=bind,src={request.in_dir},dst=/in,readonly"]
    options += ["--mount", f"type=bind,src={request.out_dir},dst=/out"]
    environ = {**os.environ, "DOCKER_HOST": bench.engine.host}
    subprocess.run(["docker", "run", *options, bench.image_id, *NO_OP], check=True, env=environ)


def overhead(bench: Bench, rounds: int) -> bool:
    """A no-op unit against its peers."""
    from docker import APIClient

    client = APIClient(base_url=bench.engine.host, version="auto")
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: bench.run(bench.request(NO_OP)),
        "SDK": lambda: bare_sdk(bench, client),
    }
    if shutil.which("docker"):
        sides["docker run"] = lambda: command_line(bench)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, side in sides.items():
            began = time.perf_counter()
            side()
            if turn > 0:  # the first turn warms caches and connections
                times[name].append(time.perf_counter() - began)
    client.close()
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print(f"one no-op container, {name}: {value * 1000:.0f} ms (median of {rounds})")
    met = print_limit("ours / bare SDK, same flags", medians["ours"] / medians["SDK"], "x", 1.15)
    if "docker run" not in medians:
        print("ours / docker run --network none: not measured, there is no docker command")
        return met
    ratio = medians["ours"] / medians["docker run"]
    return print_limit("ours / docker run --network none", ratio, "x", 0.7) and met


def throughput(bench: Bench, rounds: int) -> bool:
    """Two units at a time against one."""
    seconds = {}
    for jobs in (1, 2):
        with ThreadPoolExecutor(jobs) as pool:
            began = time.perf_counter()
            for result in pool.map(bench.run, [bench.request(NO_OP) for _ in range(2 * rounds)]):
                assert result.evidence.death_proven  # noqa: S101 - a wrong measurement otherwise
            seconds[jobs] = time.perf_counter() - began
    ratio = seconds[1] / seconds[2]
    met = ratio >= 1.4
    print(f"jobs: 2 against 1: {ratio:.2f} x (goal >= 1.4 x) {'met' if met else 'MISSED'}")
    return met


def growth(bench: Bench, rounds: int) -> bool:
    """Does a late unit cost us more CPU time than an early one?"""
    times = []
    for _ in range(rounds * 5):
        began = time.process_time()
        bench.run(bench.request(NO_OP))
        times.append(time.process_time() - began)
    part = max(1, len(times) // 3)
    ratio = statistics.median(times[-part:]) / statistics.median(times[:part])
    name = f"our CPU, last third / first third of {len(times)} units"
    return print_limit(name, ratio, "x", 1.25)


def deaths(bench: Bench, rounds: int) -> bool:
    """From the end of the grace to the proof of death, of methods that ignore TERM."""
    wall_ms, grace_ms = 300, 100
    met = True
    for processes in (1, 8):
        script = f"({STUBBORN}) & " * (processes - 1) + STUBBORN
        late = []
        for _ in range(rounds):
            request = bench.request(("/bin/sh", "-c", script), wall_ms=wall_ms, grace_ms=grace_ms)
            evidence = bench.run(request).evidence
            assert evidence.signal_sent == "KILL"  # noqa: S101 - a wrong measurement otherwise
            late.append((evidence.wall_ns or 0) / 1e6 - wall_ms - grace_ms)
        name = f"deadline + grace to dead, {processes} busy"
        met = print_limit(name, statistics.median(late), "ms", 100) and met
    return met


def watching(bench: Bench) -> bool:
    """The supervisor's own CPU time while a container sleeps for 5 s, without start and end."""

    def spent(command: tuple[str, ...]) -> float:
        began = time.process_time()
        bench.run(bench.request(command))
        return time.process_time() - began

    ends = statistics.median(spent(NO_OP) for _ in range(5))
    whole = statistics.median(spent(("/bin/sleep", "5")) for _ in range(3))
    return print_limit("CPU of watching 5 s", max(0.0, whole - ends) * 1000, "ms", 20)


def main(arguments: list[str] | None = None) -> int:
    """Return 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--image", help="image id, sha256:...; default: a tiny image made here")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side")
    parsed = parser.parse_args(arguments)
    engine = DockerEngine()
    image_id = parsed.image
    if image_id is None:
        image = build_tiny_image()
        image_id = image.image_id
        if engine.inspect_image(image_id) is None:
            engine.load_image(io.BytesIO(image.archive))
    with tempfile.TemporaryDirectory(prefix="sealbench-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        platform = Platform(engine=engine, cgroups=open_cgroups(engine.info()))
        bench = Bench(platform=platform, engine=engine, image_id=image_id, folder=folder)
        kept = [
            overhead(bench, parsed.rounds),
            throughput(bench, parsed.rounds),
            growth(bench, parsed.rounds),
            deaths(bench, max(3, parsed.rounds // 3)),
            watching(bench),
        ]
    engine.close()
    leftover = [thread.name for thread in threading.enumerate() if not thread.daemon]
    assert len(leftover) == 1, leftover  # noqa: S101 - a unit that left a thread behind
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
