"""The handle on a container: whom it signals, and what it takes for dead."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from runner import container as module
from runner.clock import SystemClock
from runner.container import EXIT, Container
from runner.engine.api import ContainerState
from runner.engine.fake import NEVER, FakeEngine, Script
from runner.errors import EngineError
from runner.request import container_spec
from tests.unit.units import request


class Pretending(FakeEngine):
    """Claims that its containers run as a certain process of this host."""

    pid = 0

    def state(self, container_id: str) -> ContainerState | None:
        found = super().state(container_id)
        running = found is not None and found.status == "running"
        return replace(found, pid=self.pid) if found is not None and running else found


def started(engine: FakeEngine, folder: Path) -> tuple[Container, SimpleQueue[str]]:
    spec = container_spec(request(folder), name="n", labels={}, cgroup_parent=None)
    handle = Container(engine, spec, clock=SystemClock(), patience_s=0.3)
    handle.create()
    words = SimpleQueue[str]()
    handle.start(words)
    return handle, words


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_another_process_by_the_same_number_is_never_signalled(
    tmp_path: Path, child: subprocess.Popen[bytes]
) -> None:
    """A pid can be reused between the engine's answer and our look at it."""
    engine = Pretending(default=Script(exit_after_s=NEVER))
    engine.pid = child.pid
    handle, _ = started(engine, tmp_path)
    assert handle.hold() == child.pid
    handle.send("KILL")
    assert "kill KILL" in [call for call, _ in engine.calls]
    assert handle.prove_dead()
    assert child.poll() is None
    handle.close()


def held(tmp_path: Path, pid: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Container, Pretending]:
    """A handle that believes that a process of ours is the container's init."""
    engine = Pretending(default=Script(exit_after_s=NEVER))
    engine.pid = pid
    handle, _ = started(engine, tmp_path)
    ident = handle.ident or ""
    monkeypatch.setattr(Path, "read_text", lambda _path: f"1:memory:/sealbench/x/{ident}")
    assert handle.hold() == pid
    monkeypatch.undo()
    return handle, engine


def test_signals_need_no_engine(
    tmp_path: Path, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, engine = held(tmp_path, child.pid, monkeypatch)
    engine.die()
    handle.send("KILL")
    assert child.wait(10) == -signal.SIGKILL
    assert handle.prove_dead(), "the kernel's word, without the engine"
    assert handle.exit_ns is not None
    handle.send("KILL")  # dead already: no error
    handle.close()


def test_the_kernel_stamps_the_end(
    tmp_path: Path, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, _ = held(tmp_path, child.pid, monkeypatch)
    before = time.monotonic_ns()
    child.kill()
    child.wait(10)
    until = time.monotonic() + 10
    while handle.exit_ns is None and time.monotonic() < until:
        time.sleep(0.01)
    assert handle.exit_ns is not None
    assert before < handle.exit_ns < time.monotonic_ns()
    handle.close()


def test_no_process_is_held_when_none_can_be_seen(tmp_path: Path) -> None:
    engine = Pretending(default=Script(exit_after_s=NEVER))
    engine.pid = (1 << 22) + 1  # above any pid
    handle, _ = started(engine, tmp_path)
    assert handle.hold() == engine.pid
    assert handle._pidfd is None
    handle.send("KILL")
    assert handle.prove_dead()


def test_the_end_comes_as_a_word(tmp_path: Path) -> None:
    handle, words = started(FakeEngine(default=Script(exit_after_s=0.05, exit_code=4)), tmp_path)
    assert words.get(timeout=10) == EXIT
    assert handle.exit_code == 4


def test_a_lost_engine_is_asked_again_but_not_for_ever(tmp_path: Path) -> None:
    engine = FakeEngine(default=Script(exit_after_s=NEVER))
    handle, _ = started(engine, tmp_path)
    engine.die()
    began = time.monotonic()
    for call in (handle.final_state, handle.remove, lambda: handle.send("KILL")):
        with pytest.raises(EngineError):
            call()
    assert time.monotonic() - began < 5, "once it has been given up, it is not asked again"


def test_an_engine_that_comes_back_in_time(tmp_path: Path) -> None:
    engine = FakeEngine(default=Script())
    handle, words = started(engine, tmp_path)
    words.get(timeout=10)
    engine.die()
    threading.Timer(0.1, setattr, (engine, "dead", False)).start()
    assert handle.final_state() is not None
    handle.remove()
    assert engine._containers == {}


def test_a_refused_create_leaves_nothing_to_remove(tmp_path: Path) -> None:
    engine = FakeEngine(default=Script(fails_on=frozenset({"create"})))
    spec = container_spec(request(tmp_path), name="n", labels={}, cgroup_parent=None)
    handle = Container(engine, spec, clock=SystemClock(), patience_s=0.3)
    with pytest.raises(EngineError):
        handle.create()
    engine.die()
    handle.remove()  # does not even ask


def test_what_survives_kill_is_not_called_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROOF_S", 0.1)
    handle, _ = started(
        FakeEngine(default=Script(exit_after_s=NEVER, kill_delay_s=NEVER)), tmp_path
    )
    assert not handle.prove_dead()
