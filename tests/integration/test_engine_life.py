"""A container's life on a real engine: logs, waits, kills, removal; and engines that go away."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import secrets
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.engine.clean import sweep
from runner.engine.docker import DockerEngine
from runner.engine.lease import LEASE, RUN, Owner
from runner.errors import EngineError, ImageError
from tests.containers import PATIENCE_S, created, run, sh, spec

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("code", [0, 1, 2, 125, 126, 127, 137, 143, 255])
def test_an_exit_code_is_the_applications(engine: DockerEngine, tiny_image: str, code: int) -> None:
    assert run(engine, spec(tiny_image, sh(f"exit {code}"))).code == code


def test_a_missing_program_is_the_methods_failure(engine: DockerEngine, tiny_image: str) -> None:
    done = run(engine, spec(tiny_image, ("/no/such/program",)))
    assert done.code == 127
    assert b"/no/such/program" in done.stdout + done.stderr


def test_bytes_arrive_as_they_were_written(engine: DockerEngine, tiny_image: str) -> None:
    script = (
        r"printf '\377\376\000\303'; sleep 0.1; printf '\251';"  # an e-acute in two pieces
        r"printf '\033[31mred\r\n' >&2"
    )
    done = run(engine, spec(tiny_image, sh(script)))
    assert done.stdout == b"\xff\xfe\x00\xc3\xa9"
    assert done.stderr == b"\x1b[31mred\r\n"


def test_short_lives_lose_no_output(engine: DockerEngine, tiny_image: str) -> None:
    for number in range(15):
        done = run(engine, spec(tiny_image, ("/bin/echo", str(number))))
        assert done.stdout == f"{number}\n".encode()


def test_much_output_arrives_and_the_engine_keeps_none(
    engine: DockerEngine, tiny_image: str
) -> None:
    size = 30 << 20
    digest, got = hashlib.sha256(), 0
    command = sh(f"yes sealbench | head -c {size}")
    with created(engine, spec(tiny_image, command)) as ident:
        logs = engine.attach(ident)
        engine.start(ident)
        for _, chunk in logs:
            digest.update(chunk)
            got += len(chunk)
        assert engine.wait(ident, PATIENCE_S) == 0
        logs.close()
        with engine._client("read the settings") as client:
            answer = client.inspect_container(ident)
        assert answer["HostConfig"]["LogConfig"]["Type"] == "none"
        assert answer["LogPath"] == ""
        root = engine.info().data_root
        folder = Path(root or "/nonexistent") / "containers" / ident
        kept = sum(item.stat().st_size for item in folder.rglob("*") if item.is_file())
    line = b"sealbench\n"
    assert got == size
    assert digest.hexdigest() == hashlib.sha256((line * (size // len(line) + 1))[:size]).hexdigest()
    assert kept < 1 << 20


def test_a_wait_that_runs_out_leaves_the_container(engine: DockerEngine, tiny_image: str) -> None:
    with created(engine, spec(tiny_image, ("/bin/sleep", "60"))) as ident:
        engine.start(ident)
        began = time.monotonic()
        assert engine.wait(ident, 0.3) is None
        assert 0.2 < time.monotonic() - began < 20
        assert engine.wait(ident, 0) is None
        state = engine.state(ident)
        assert state is not None
        assert state.status == "running"


def test_a_method_that_ignores_term_is_killed(engine: DockerEngine, tiny_image: str) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    with created(engine, spec(tiny_image, sh(script))) as ident:
        logs = engine.attach(ident)
        engine.start(ident)
        assert next(iter(logs)) == (1, b"ready\n")
        engine.kill(ident, "TERM")
        assert engine.wait(ident, 0.5) is None
        began = time.monotonic()
        engine.kill(ident, "KILL")
        assert engine.wait(ident, PATIENCE_S) == 137
        assert time.monotonic() - began < 10
        state = engine.state(ident)
        assert state is not None
        assert (state.status, state.pid) == ("exited", None)
        logs.close()


def test_term_reaches_a_method_without_a_handler(engine: DockerEngine, tiny_image: str) -> None:
    with created(engine, spec(tiny_image, ("/bin/sleep", "60"))) as ident:
        engine.start(ident)
        engine.kill(ident, "TERM")
        assert engine.wait(ident, PATIENCE_S) == 143


def test_a_kill_goes_through_while_another_thread_waits(
    engine: DockerEngine, tiny_image: str
) -> None:
    codes: list[int | None] = []
    with created(engine, spec(tiny_image, ("/bin/sleep", "60"))) as ident:
        engine.start(ident)
        waiter = threading.Thread(target=lambda: codes.append(engine.wait(ident, PATIENCE_S)))
        waiter.start()
        time.sleep(0.1)
        assert engine.state(ident) is not None
        engine.kill(ident, "KILL")
        waiter.join(PATIENCE_S)
    assert codes == [137]


def test_the_gone_and_the_dead_are_no_error(engine: DockerEngine, tiny_image: str) -> None:
    with created(engine, spec(tiny_image, ("/bin/true",))) as ident:
        engine.start(ident)
        assert engine.wait(ident, PATIENCE_S) == 0
        engine.kill(ident, "KILL")
        engine.remove(ident)
        assert engine.state(ident) is None
        engine.kill(ident, "TERM")
        engine.remove(ident)
        with pytest.raises(EngineError) as caught:
            engine.wait(ident, 1)
        assert caught.value.code == "engine.not-there"


def test_a_running_container_can_be_removed(engine: DockerEngine, tiny_image: str) -> None:
    with created(engine, spec(tiny_image, ("/bin/sleep", "60"))) as ident:
        engine.start(ident)
        engine.remove(ident)
        assert engine.state(ident) is None


def test_only_digests_reach_the_engine(engine: DockerEngine, tiny_image: str) -> None:
    for reference in ("busybox", "busybox:latest", "a:1@sha256:" + "0" * 64, "sha256:12"):
        with pytest.raises(ImageError) as caught:
            engine.inspect_image(reference)
        assert caught.value.code == "image.not-pinned"
    with pytest.raises(EngineError):
        engine.create(spec("busybox:latest", ("/bin/true",)))
    assert engine.inspect_image("sha256:" + "0" * 64) is None
    found = engine.inspect_image(tiny_image)
    assert found is not None
    assert found.os == "linux"


# --- leases -----------------------------------------------------------------------------------


def _dead_owner() -> str:
    """The lease of a process that has ended."""
    code = "from runner.engine.lease import own_lease; print(own_lease())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_sweep_takes_only_what_a_dead_owner_left(engine: DockerEngine, tiny_image: str) -> None:
    sleep = ("/bin/sleep", "60")
    mine = spec(tiny_image, sleep)
    orphan = spec(tiny_image, sleep, labels={**mine.labels, LEASE: _dead_owner()})
    foreign = spec(tiny_image, sleep, labels={"somebody": "else"})
    with (
        created(engine, mine) as mine_id,
        created(engine, foreign) as foreign_id,
        created(engine, orphan) as orphan_id,
    ):
        for ident in (mine_id, foreign_id, orphan_id):
            engine.start(ident)
        listed = {item.container_id for item in engine.containers({RUN: ""})}
        assert {mine_id, orphan_id} <= listed
        assert foreign_id not in listed

        dry = {item.container_id: item for item in sweep(engine, dry_run=True).containers}
        assert dry[orphan_id].stale
        assert not dry[orphan_id].removed
        assert engine.state(orphan_id) is not None
        assert (dry[mine_id].owner, dry[mine_id].stale) == (Owner.ALIVE, False)

        wet = {item.container_id: item for item in sweep(engine, dry_run=False).containers}
        assert wet[orphan_id].removed
        assert engine.state(orphan_id) is None
        for ident in (mine_id, foreign_id):
            state = engine.state(ident)
            assert state is not None
            assert state.status == "running"


# --- engines that go away ---------------------------------------------------------------------


class Relay:
    """Stands between us and the engine's socket, and can be cut like an engine that dies."""

    def __init__(self, target: str, path: Path) -> None:
        self._target, self._pairs = target, list[socket.socket]()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self.host = f"unix://{path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._target)
            self._pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()

    def cut(self) -> None:
        for end in (self._listener, *self._pairs):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        return


@pytest.fixture
def sdk_leak() -> Iterator[None]:
    """The SDK leaves a socket to the collector when nobody listens; collect it without a warning.

    The tests that use it also ignore the warning itself, for sockets that go sooner.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def relay(engine: DockerEngine) -> Iterator[Relay]:
    if not engine.host.startswith("unix://"):
        pytest.skip("the engine is not behind a socket file")
    path = Path("/tmp") / f"sealbench-relay-{secrets.token_hex(6)}.sock"
    made = Relay(engine.host.removeprefix("unix://"), path)
    yield made
    made.cut()
    path.unlink()


@pytest.mark.usefixtures("sdk_leak")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_an_engine_lost_while_waiting_is_an_engine_error(
    engine: DockerEngine, tiny_image: str, relay: Relay
) -> None:
    through = DockerEngine(relay.host)
    with created(engine, spec(tiny_image, ("/bin/sleep", "60"))) as ident:
        logs = through.attach(ident)
        through.start(ident)
        threading.Timer(0.5, relay.cut).start()
        began = time.monotonic()
        with pytest.raises(EngineError) as caught:
            through.wait(ident, PATIENCE_S)
        assert caught.value.code == "engine.lost"
        assert "Traceback" not in caught.value.message
        assert time.monotonic() - began < 20
        assert list(logs) == []
        for call in (through.state, through.remove, lambda name: through.kill(name, "KILL")):
            with pytest.raises(EngineError) as caught:
                call(ident)
            assert caught.value.code == "engine.lost"
        logs.close()
    through.close()


@pytest.mark.usefixtures("sdk_leak")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_no_engine_at_an_address(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        DockerEngine(f"unix://{tmp_path}/nothing.sock")
    assert caught.value.code == "engine.lost"
