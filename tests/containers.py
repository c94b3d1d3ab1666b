"""Runs one container to its end on a real engine, for tests: never leaves one behind."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from runner.engine.api import ContainerSpec, ContainerState, Engine, Mount
from runner.engine.cgroups import open_cgroups
from runner.engine.lease import labels
from runner.engine.usage import UnitGroup, Usage

USER = "65532:65532"
MIB = 1 << 20
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one container did."""

    code: int
    stdout: bytes
    stderr: bytes
    state: ContainerState
    usage: Usage


def sh(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def out_mount(folder: Path) -> Mount:
    """A folder that the container's user may write."""
    folder.mkdir(exist_ok=True)
    os.chmod(folder, 0o777)  # noqa: PTH101, S103 - the test's own folder, written by another user
    return Mount(source=folder, target="/out", read_only=False)


def spec(image_id: str, command: tuple[str, ...], **changes: object) -> ContainerSpec:
    """A small container with every limit set; ``changes`` are fields of ``ContainerSpec``."""
    base = ContainerSpec(
        image_id=image_id,
        name=f"sealbench-test-{secrets.token_hex(8)}",
        command=command,
        user=USER,
        mounts=(),
        env={},
        labels=labels(run_id="test", unit_id="test", expires_epoch=int(time.time()) + 600),
        memory_bytes=64 * MIB,
        cpus_milli=1000,
        pids=64,
        tmp_bytes=8 * MIB,
        shm_bytes=4 * MIB,
        file_size_bytes=16 * MIB,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # keyword names vary by test


@contextmanager
def created(engine: Engine, wanted: ContainerSpec) -> Iterator[str]:
    """A created container, removed at the end."""
    ident = engine.create(wanted)
    try:
        yield ident
    finally:
        engine.remove(ident)


@contextmanager
def unit_group(engine: Engine, memory_bytes: int) -> Iterator[UnitGroup]:
    group = open_cgroups(engine.info()).open_unit(
        f"test-{secrets.token_hex(8)}", memory_bytes=memory_bytes
    )
    try:
        yield group
    finally:
        group.close()


def run(engine: Engine, wanted: ContainerSpec) -> Ran:
    """Run to the end, within a control group of our own where there can be one."""
    streams: dict[int, list[bytes]] = {1: [], 2: []}
    with unit_group(engine, wanted.memory_bytes) as group:
        wanted = replace(wanted, cgroup_parent=group.parent)
        with created(engine, wanted) as ident:
            logs = engine.attach(ident)

            def drain() -> None:
                for stream, chunk in logs:
                    streams[stream].append(chunk)

            reader = threading.Thread(target=drain)
            reader.start()
            engine.start(ident)
            running = engine.state(ident)
            if running is not None and running.pid is not None:
                group.adopt(running.pid)
            deadline = time.monotonic() + PATIENCE_S
            while (code := engine.wait(ident, 0.1)) is None and time.monotonic() < deadline:
                group.live()
            reader.join(PATIENCE_S)
            logs.close()
            state = engine.state(ident)
            usage = group.usage()
    assert code is not None, "the container did not end"
    assert state is not None
    return Ran(
        code=code,
        stdout=b"".join(streams[1]),
        stderr=b"".join(streams[2]),
        state=state,
        usage=usage,
    )
