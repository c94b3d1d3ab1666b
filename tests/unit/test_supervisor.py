"""The supervisor over a scripted engine: every end is reached, and tells the truth."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from runner import container, supervisor
from runner.clock import SystemClock
from runner.engine.api import ContainerSpec, LogStream
from runner.engine.fake import NEVER, FakeEngine, Script, Step
from runner.engine.fake_cgroups import FakeCgroups
from runner.engine.usage import Usage
from runner.errors import EngineError, StorageError
from runner.model import Outcome, RowsReport
from runner.outcome import classify
from runner.progress_text import UnitTick
from runner.request import UnitRequest, UnitResult
from runner.signals import CancelToken
from runner.supervisor import Platform, run_unit
from tests.unit.units import IMAGE, RUN_ID, UNIT, request

FOREVER = Script(exit_after_s=NEVER)
ROWS = RowsReport(expected=3, valid=3, missing=0, errors=0)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_PROOF_S", 0.3)
    monkeypatch.setattr(supervisor, "KILL_WAIT_NS", 300_000_000)


class World:
    """A scripted engine with control groups, and one request."""

    def __init__(self, folder: Path, script: Script, **changes: object) -> None:
        self.engine = FakeEngine(default=script)
        self.cgroups = FakeCgroups(Usage(oom_events=0, cpu_ns=5, peak_memory_bytes=9))
        self.cancel = CancelToken()
        self.request: UnitRequest = request(folder, **changes)
        self.ticks: list[UnitTick] = []

    def run(self) -> UnitResult:
        platform = Platform(engine=self.engine, cgroups=self.cgroups, patience_s=0.3)
        return run_unit(platform, self.request, cancel=self.cancel, on_progress=self.ticks.append)

    def judged(self) -> tuple[Outcome, str, UnitResult]:
        result = self.run()
        word, reason = classify(replace(result.evidence, rows=ROWS), self.request.limits)
        return word, reason, result

    def calls(self) -> list[str]:
        return [call for call, _ in self.engine.calls if call not in ("state", "wait")]

    def left(self) -> int:
        return len(self.engine._containers)


def test_a_unit_that_ends_well(tmp_path: Path) -> None:
    steps = (Step(log=b"out"), Step(log=b"\xff", stream=2), Step(write={"rows.jsonl": b"1\n2\n"}))
    world = World(tmp_path, Script(steps=steps, exit_after_s=0.7))
    word, _, result = world.judged()
    evidence = result.evidence
    assert word is Outcome.OK
    assert (evidence.exit_code, evidence.death_proven, evidence.signal_sent) == (0, True, None)
    assert 0.6 <= (evidence.wall_ns or 0) / 1e9 < 5
    assert result.wall_ms_used >= 600
    assert result.started is not None
    assert result.started.endswith("Z")
    assert (evidence.cpu_ns, evidence.peak_memory_bytes, evidence.oom_events) == (5, 9, 0)
    assert evidence.load_start is not None
    assert evidence.warnings == ()
    assert (tmp_path / "logs" / "stdout.log").read_bytes() == b"out"
    assert (tmp_path / "logs" / "stderr.log").read_bytes() == b"\xff"
    assert world.calls() == ["create", "attach", "start", "remove"]
    assert world.left() == 0
    assert all(group.closed and group.adopted for group in world.cgroups.groups)
    assert world.ticks[0].rows_done == 2
    assert world.ticks[0].rows_planned == 3
    assert world.ticks[0].budget_ms == 20_000


def test_what_the_container_is_asked_to_be(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    world = World(tmp_path, Script(), cache_dir=tmp_path / "cache")
    world.run()
    spec = world.engine.specs[0]
    mounts = {mount.target: mount for mount in spec.mounts}
    assert set(mounts) == {"/in", "/out", "/cache", "/etc/hosts"}
    assert mounts["/in"].read_only
    assert mounts["/etc/hosts"].read_only
    assert not mounts["/out"].read_only
    assert (spec.image_id, spec.command) == (IMAGE, ("run",))
    assert spec.labels["sealbench.run"] == RUN_ID
    assert spec.labels["sealbench.unit"] == UNIT.unit_id
    assert int(spec.labels["sealbench.expires"]) > time.time() + 3600
    assert spec.file_size_bytes == (1 << 20) + 1
    assert spec.cgroup_parent == f"/sealbench/{world.cgroups.groups[0].name}"
    assert spec.env["SEALBENCH_SEED"] == "7"
    assert not any("host" in key.lower() or "proxy" in key.lower() for key in spec.env)


def test_two_attempts_never_share_a_name(tmp_path: Path) -> None:
    world = World(tmp_path, Script())
    world.run()
    world.run()
    assert len({spec.name for spec in world.engine.specs}) == 2
    assert len({group.name for group in world.cgroups.groups}) == 2


def test_exit_codes_and_the_engines_flag_are_kept(tmp_path: Path) -> None:
    word, reason, result = World(tmp_path, Script(exit_code=137, oom=True)).judged()
    assert (result.evidence.exit_code, result.evidence.engine_oom_flag) == (137, True)
    assert word is Outcome.CRASHED
    assert "flag is set" in reason


def test_a_deadline_with_term_that_is_heard(tmp_path: Path) -> None:
    script = Script(exit_after_s=NEVER, term_exit_code=0)
    word, reason, result = World(tmp_path, script, wall_ms=150).judged()
    assert word is Outcome.TIMEOUT
    assert "ended on the stop signal" in reason
    assert (result.evidence.exit_code, result.evidence.signal_sent) == (0, "TERM")


def test_a_deadline_with_term_that_is_not_heard(tmp_path: Path) -> None:
    script = Script(exit_after_s=NEVER, ignores_term=True)
    world = World(tmp_path, script, wall_ms=150, grace_ms=100)
    word, reason, result = world.judged()
    assert word is Outcome.TIMEOUT
    assert "killed after its grace" in reason
    assert [call for call in world.calls() if "kill" in call] == ["kill TERM", "kill KILL"]
    assert 0.25 <= (result.evidence.wall_ns or 0) / 1e9 < 3
    assert world.left() == 0


def test_the_budget_is_what_is_left_of_it(tmp_path: Path) -> None:
    world = World(tmp_path, FOREVER, remaining_wall_ms=100)
    began = time.monotonic()
    assert world.judged()[0] is Outcome.TIMEOUT
    assert time.monotonic() - began < 10


def test_nothing_starts_without_budget(tmp_path: Path) -> None:
    world = World(tmp_path, FOREVER, remaining_wall_ms=0)
    word, reason, result = world.judged()
    assert (word, result.started, result.wall_ms_used) == (Outcome.NOT_STARTED, None, 0)
    assert "wall budget" in reason
    assert world.engine.calls == []


class Asleep(SystemClock):
    """The clock of a host that slept for a minute while the unit ran."""

    def __init__(self) -> None:
        self.begin = time.monotonic_ns()

    def monotonic_ns(self) -> int:
        now = time.monotonic_ns()
        return now + (60_000_000_000 if now - self.begin > 250_000_000 else 0)


def test_ending_late_is_late_even_when_nobody_looked(tmp_path: Path) -> None:
    world = World(tmp_path, Script(exit_after_s=0.28))
    platform = Platform(engine=world.engine, cgroups=world.cgroups, clock=Asleep())
    result = run_unit(platform, world.request, cancel=world.cancel)
    assert result.evidence.deadline_exceeded
    assert result.wall_ms_used > 60_000


@pytest.mark.parametrize("requests", [1, 2])
def test_cancelling_once_leaves_a_grace_twice_does_not(tmp_path: Path, requests: int) -> None:
    script = Script(exit_after_s=NEVER, ignores_term=True)
    world = World(tmp_path, script, grace_ms=400 if requests == 1 else 60_000)
    for moment in range(requests):
        threading.Timer(0.1 + moment / 10, world.cancel.cancel).start()
    word, _, result = world.judged()
    assert word is Outcome.CANCELLED
    assert result.evidence.signal_sent == "KILL"
    assert [call for call in world.calls() if "kill" in call] == ["kill TERM", "kill KILL"]
    assert (result.evidence.wall_ns or 0) / 1e9 < 5
    assert world.left() == 0


def test_cancelled_before_its_turn(tmp_path: Path) -> None:
    world = World(tmp_path, FOREVER)
    world.cancel.cancel()
    word, reason, _ = world.judged()
    assert word is Outcome.NOT_STARTED
    assert "cancelled" in reason
    assert world.engine.calls == []


def test_cancelled_between_create_and_start(tmp_path: Path) -> None:
    world = World(tmp_path, FOREVER)

    class Cancelling(FakeEngine):
        def attach(self, container_id: str) -> LogStream:
            world.cancel.cancel()
            return super().attach(container_id)

    world.engine = Cancelling(default=FOREVER)
    word, reason, _ = world.judged()
    assert word is Outcome.NOT_STARTED
    assert "before the container started" in reason
    assert "start" not in world.calls()
    assert world.left() == 0


def test_output_beyond_the_cap_is_killed_without_grace(tmp_path: Path) -> None:
    flood = tuple(Step(at_s=0.05 * n, write={f"f{n}": bytes(300 << 10)}) for n in range(50))
    world = World(tmp_path, Script(exit_after_s=NEVER, steps=flood), grace_ms=60_000)
    word, reason, result = world.judged()
    assert word is Outcome.OUTPUT_LIMIT
    assert "1.0 MiB" in reason
    assert [call for call in world.calls() if "kill" in call] == ["kill KILL"]
    assert result.evidence.output_exceeded == "output_bytes"


def test_output_is_counted_once_more_after_death(tmp_path: Path) -> None:
    script = Script(steps=(Step(write={"rows.jsonl": bytes((1 << 20) + 1)}),))
    assert World(tmp_path, script).judged()[0] is Outcome.OUTPUT_LIMIT


def test_a_cache_has_the_cap_of_the_output(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()

    def flood(mounts: Mapping[str, Path]) -> None:
        (mounts["/cache"] / "big").write_bytes(bytes(2 << 20))

    script = Script(exit_after_s=NEVER, steps=(Step(act=flood),))
    word, reason, _ = World(tmp_path, script, cache_dir=tmp_path / "cache").judged()
    assert word is Outcome.OUTPUT_LIMIT
    assert reason.startswith("/cache grew beyond its limit of 1.0 MiB")


def test_too_many_files(tmp_path: Path) -> None:
    script = Script(steps=(Step(write={str(n): b"" for n in range(51)}),), exit_after_s=NEVER)
    word, reason, _ = World(tmp_path, script).judged()
    assert word is Outcome.OUTPUT_LIMIT
    assert "50 entries" in reason


def test_a_flood_during_the_grace_ends_the_grace(tmp_path: Path) -> None:
    script = Script(
        exit_after_s=NEVER,
        term_delay_s=50,
        on_term=(Step(write={"f": bytes(2 << 20)}),),
    )
    world = World(tmp_path, script, wall_ms=100, grace_ms=30_000)
    began = time.monotonic()
    word, reason, _ = world.judged()
    assert word is Outcome.TIMEOUT
    assert "/out was beyond its limit too" in reason
    assert time.monotonic() - began < 10


def test_a_nearly_full_disk_is_no_fault_of_the_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter([1 << 40])
    monkeypatch.setattr(supervisor, "free_bytes", lambda _folder: next(free, 1000))
    word, reason, _ = World(tmp_path, FOREVER).judged()
    assert word is Outcome.ENGINE_ERROR
    assert "disk" in reason


@pytest.mark.parametrize("code", [0, 1])
def test_what_ends_by_itself_on_a_nearly_full_disk_is_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    free = iter([1 << 40])  # then full, before anybody looks
    monkeypatch.setattr(supervisor, "free_bytes", lambda _folder: next(free, 1000))
    monkeypatch.setattr(supervisor, "TICK_NS", 10**12)
    word, reason, _ = World(tmp_path, Script(exit_code=code)).judged()
    assert word is Outcome.ENGINE_ERROR
    assert "disk" in reason


def test_a_flood_that_fills_the_disk_is_no_excuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter([1 << 40])
    monkeypatch.setattr(supervisor, "free_bytes", lambda _folder: next(free, 1000))
    monkeypatch.setattr(supervisor, "TICK_NS", 10**12)
    script = Script(steps=(Step(write={"rows.jsonl": bytes((1 << 20) + 1)}),))
    assert World(tmp_path, script).judged()[0] is Outcome.OUTPUT_LIMIT


def test_another_image_than_the_pinned_one_never_starts(tmp_path: Path) -> None:
    world = World(tmp_path, Script(created_image_id="sha256:" + "b" * 64))
    word, reason, result = world.judged()
    assert word is Outcome.ENGINE_ERROR
    assert "sha256:bbb" in reason
    assert result.started is None
    assert "start" not in world.calls()
    assert world.left() == 0


@pytest.mark.parametrize("call", ["create", "attach", "start", "state", "wait"])
def test_one_refused_call(tmp_path: Path, call: str) -> None:
    world = World(tmp_path, Script(exit_after_s=NEVER, fails_on=frozenset({call})))
    word, reason, result = world.judged()
    assert word is Outcome.ENGINE_ERROR
    assert "engine.refused" in reason
    assert result.evidence.started == (call == "wait")
    assert world.left() == 0
    assert all(group.closed for group in world.cgroups.groups)


def test_a_container_that_cannot_be_removed_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, Script(fails_on=frozenset({"remove"})))
    word, _, result = world.judged()
    assert word is Outcome.OK, "the method did its part"
    assert any("sealbench clean" in text for text in result.evidence.warnings)


def test_a_container_that_nothing_can_kill(tmp_path: Path) -> None:
    script = Script(exit_after_s=NEVER, kill_delay_s=NEVER, ignores_term=True)
    word, reason, result = World(tmp_path, script, wall_ms=100, grace_ms=50).judged()
    assert word is Outcome.ENGINE_ERROR
    assert "no proof" in reason
    assert not result.evidence.death_proven
    assert result.evidence.warnings


@pytest.mark.parametrize("call", ["create", "attach", "start", "wait", "state", "remove"])
def test_the_engine_dies_at_a_call(tmp_path: Path, call: str) -> None:
    world = World(tmp_path, Script(exit_after_s=0.2, engine_dies_on=call))
    began = time.monotonic()
    word, reason, _ = world.judged()
    assert time.monotonic() - began < 10, "never hangs"
    if call == "remove":
        assert word is Outcome.OK
    else:
        assert word is Outcome.ENGINE_ERROR
        assert "engine.lost" in reason


def test_the_engine_dies_in_mid_run(tmp_path: Path) -> None:
    script = Script(
        exit_after_s=NEVER,
        engine_dies_after_s=0.15,
        steps=(Step(log=b"kept", write={"rows.jsonl": b"1\n"}),),
    )
    world = World(tmp_path, script)
    word, _, result = world.judged()
    assert word is Outcome.ENGINE_ERROR
    assert result.evidence.started
    assert not result.evidence.death_proven
    assert (tmp_path / "logs" / "stdout.log").read_bytes() == b"kept"


class Reborn(FakeEngine):
    """An engine that restarts: it is away for a while, its containers live on."""

    def die(self) -> None:
        super().die()
        threading.Timer(0.1, self.rise).start()

    def rise(self) -> None:
        self.dead = False


def test_an_engine_that_comes_back_gets_its_container_cleaned(tmp_path: Path) -> None:
    world = World(tmp_path, FOREVER)
    world.engine = Reborn(default=Script(exit_after_s=NEVER, engine_dies_after_s=0.1))
    platform = Platform(engine=world.engine, cgroups=world.cgroups, patience_s=5)
    # The fake's player thread ends with its engine, so the death is played here.
    original = world.engine.kill

    def kill(container_id: str, signal: str) -> None:
        original(container_id, signal)
        world.engine._containers[container_id].status = "exited"
        world.engine._containers[container_id].exit_code = 137

    world.engine.kill = kill  # type: ignore[method-assign]  # played by the test
    result = run_unit(platform, world.request, cancel=world.cancel)
    assert "engine.lost" in (result.evidence.engine_failure or "")
    assert result.evidence.death_proven
    assert world.left() == 0


def test_a_create_whose_answer_is_lost_leaves_nothing(tmp_path: Path) -> None:
    class Silent(FakeEngine):
        def create(self, spec: ContainerSpec) -> str:
            super().create(spec)
            raise EngineError("engine.lost", "no answer", fix="wait")

    world = World(tmp_path, FOREVER)
    world.engine = Silent(default=FOREVER)
    other = FakeEngine.create(world.engine, container_like(world.engine, tmp_path))
    assert world.judged()[0] is Outcome.ENGINE_ERROR
    assert list(world.engine._containers) == [other], "another attempt's container is not ours"


def container_like(engine: FakeEngine, folder: Path) -> ContainerSpec:
    from runner.request import container_spec

    return container_spec(
        request(folder), name="another", labels={"sealbench.unit": UNIT.unit_id}, cgroup_parent=None
    )


def test_somebody_else_removes_the_container(tmp_path: Path) -> None:
    world = World(tmp_path, Script(exit_after_s=0.3))

    def vanish(_mounts: Mapping[str, Path]) -> None:
        world.engine._containers.clear()

    world.engine = FakeEngine(default=Script(exit_after_s=0.3, steps=(Step(at_s=0.1, act=vanish),)))
    word, reason, _ = world.judged()
    assert word is Outcome.ENGINE_ERROR
    assert "somebody else removed" in reason


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_whatever_is_raised_the_container_is_killed_and_removed(
    tmp_path: Path, error: type[BaseException]
) -> None:
    world = World(tmp_path, FOREVER)

    def explode(_tick: UnitTick) -> None:
        raise error

    platform = Platform(engine=world.engine, cgroups=world.cgroups, patience_s=0.3)
    with pytest.raises(error):
        run_unit(platform, world.request, cancel=world.cancel, on_progress=explode)
    assert world.left() == 0
    assert "kill KILL" in world.calls()
    assert all(group.closed for group in world.cgroups.groups)
    world.cancel.cancel()  # nobody listens any more


def test_a_fault_of_our_own_while_cleaning_stops_no_other_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: object) -> bool:
        raise RuntimeError("a bug")

    world = World(tmp_path, Script(exit_after_s=0.05))
    monkeypatch.setattr(container.Container, "prove_dead", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        world.run()
    assert world.left() == 0
    assert all(group.closed for group in world.cgroups.groups)


@pytest.mark.parametrize("missing", ["out", "logs"])
def test_folders_that_cannot_be_used_are_told_before_anything_starts(
    tmp_path: Path, missing: str
) -> None:
    world = World(tmp_path, FOREVER)
    (tmp_path / missing).rmdir()
    with pytest.raises(StorageError) as caught:
        world.run()
    assert caught.value.exit_code == 9
    assert world.engine.calls == []


def test_no_thread_and_no_descriptor_stays(tmp_path: Path) -> None:
    world = World(tmp_path, Script(exit_after_s=0.05))
    world.run()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    threads = set(threading.enumerate())
    for _ in range(5):
        world.run()
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    time.sleep(0.05)
    assert set(threading.enumerate()) <= threads


def test_no_path_of_the_host_reaches_the_evidence(tmp_path: Path) -> None:
    class Talkative(FakeEngine):
        def start(self, container_id: str) -> None:
            raise EngineError("engine.refused", f"bind {tmp_path}/out: /srv/x: no", fix="-")

    world = World(tmp_path, FOREVER)
    world.engine = Talkative(default=FOREVER)
    word, reason, result = world.judged()
    assert word is Outcome.ENGINE_ERROR
    assert str(tmp_path) not in repr(result.evidence)
    assert "/srv" not in reason
    assert "bind <path>" in reason
