"""The fake keeps the real engine's manners, so that what passes on it can pass on the real one."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from runner.engine.api import ContainerSpec, Engine, Mount
from runner.engine.fake import NEVER, FakeEngine, Script, Step, fake_image
from runner.engine.fake_cgroups import FakeCgroups
from runner.engine.usage import Cgroups
from runner.errors import EngineError, ImageError

IMAGE = "sha256:" + "a" * 64


def spec(out: Path, **changes: object) -> ContainerSpec:
    base = ContainerSpec(
        image_id=IMAGE,
        name="unit-1",
        command=("run", "fast"),
        user="1000:1000",
        mounts=(Mount(source=out, target="/out", read_only=False),),
        env={},
        labels={"sealbench.run": "r1"},
        memory_bytes=1 << 20,
        cpus_milli=1000,
        pids=8,
        tmp_bytes=0,
        shm_bytes=0,
        file_size_bytes=1,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # keyword names vary by test


def started(engine: FakeEngine, out: Path) -> str:
    ident = engine.create(spec(out))
    engine.start(ident)
    return ident


def test_it_is_an_engine() -> None:
    engine: Engine = FakeEngine()
    cgroups: Cgroups = FakeCgroups()
    group = cgroups.open_unit("u", memory_bytes=1)
    assert group.parent == "/sealbench/u"
    assert group.usage().oom_events == 0
    assert engine.info().name == "docker"


def test_a_script_writes_logs_and_exits_in_order(tmp_path: Path) -> None:
    steps = (
        Step(log=b"one"),
        Step(log=b"\xff", stream=2, write={"rows.jsonl": b"a\n"}),
        Step(at_s=0.01, write={"rows.jsonl": b"b\n"}),
    )
    engine = FakeEngine({"run fast": Script(steps=steps, exit_after_s=0.02, exit_code=3)})
    ident = engine.create(spec(tmp_path))
    stream = engine.attach(ident)
    engine.start(ident)
    assert list(stream) == [(1, b"one"), (2, b"\xff")]
    assert engine.wait(ident, 5) == 3
    assert (tmp_path / "rows.jsonl").read_bytes() == b"a\nb\n"
    engine.remove(ident)
    assert engine.state(ident) is None
    assert [call for call, _ in engine.calls] == ["create", "attach", "start", "wait", "remove"]


def test_output_that_nobody_attached_to_is_lost(tmp_path: Path) -> None:
    engine = FakeEngine(default=Script(steps=(Step(log=b"lost"),)))
    ident = started(engine, tmp_path)
    engine.wait(ident, 5)
    assert list(engine.attach(ident)) == []


@pytest.mark.parametrize(
    ("script", "signal", "code"),
    [
        (Script(exit_after_s=NEVER), "TERM", 143),
        (Script(exit_after_s=NEVER), "KILL", 137),
        (Script(exit_after_s=NEVER, ignores_term=True), "TERM", None),
        (Script(exit_after_s=NEVER, kill_delay_s=NEVER), "KILL", None),
        (Script(exit_after_s=NEVER, kill_delay_s=0.02), "KILL", 137),
        (Script(exit_after_s=NEVER, term_exit_code=0), "TERM", 0),
    ],
)
def test_signals(tmp_path: Path, script: Script, signal: str, code: int | None) -> None:
    engine = FakeEngine(default=script)
    ident = started(engine, tmp_path)
    assert engine.wait(ident, 0) is None
    engine.kill(ident, signal)
    assert engine.wait(ident, 0.2 if code is None else 5) == code


def test_a_method_may_finish_its_rows_on_term(tmp_path: Path) -> None:
    script = Script(
        exit_after_s=NEVER, term_delay_s=0.01, on_term=(Step(write={"rows.jsonl": b"last\n"}),)
    )
    engine = FakeEngine(default=script)
    ident = started(engine, tmp_path)
    engine.kill(ident, "TERM")
    assert engine.wait(ident, 5) == 143
    assert (tmp_path / "rows.jsonl").read_bytes() == b"last\n"


@pytest.mark.parametrize("call", ["create", "attach", "start", "wait", "state", "kill", "remove"])
def test_one_call_fails_and_the_engine_lives(tmp_path: Path, call: str) -> None:
    engine = FakeEngine(default=Script(exit_after_s=NEVER, fails_on=frozenset({call})))
    with pytest.raises(EngineError) as caught:
        _all_calls(engine, tmp_path)
    assert caught.value.code == "engine.refused"
    assert engine.info()


@pytest.mark.parametrize("call", ["create", "attach", "start", "wait", "state", "kill", "remove"])
def test_the_engine_dies_at_a_call(tmp_path: Path, call: str) -> None:
    engine = FakeEngine(default=Script(exit_after_s=NEVER, engine_dies_on=call))
    with pytest.raises(EngineError) as caught:
        _all_calls(engine, tmp_path)
    assert caught.value.code == "engine.lost"
    with pytest.raises(EngineError):
        engine.info()


def _all_calls(engine: FakeEngine, out: Path) -> None:
    ident = engine.create(spec(out))
    engine.attach(ident)
    engine.start(ident)
    engine.wait(ident, 0)
    engine.state(ident)
    engine.kill(ident, "KILL")
    engine.remove(ident)


def test_a_wait_ends_when_the_engine_dies(tmp_path: Path) -> None:
    engine = FakeEngine(default=Script(exit_after_s=NEVER, engine_dies_after_s=0.02))
    ident = engine.create(spec(tmp_path))
    logs = engine.attach(ident)
    engine.start(ident)
    began = time.monotonic()
    with pytest.raises(EngineError):
        engine.wait(ident, 30)
    assert time.monotonic() - began < 10
    assert list(logs) == []


def test_refusals(tmp_path: Path) -> None:
    engine = FakeEngine(images=[fake_image(IMAGE)])
    engine.create(spec(tmp_path))
    for changed in (
        spec(tmp_path),
        spec(tmp_path, name="other", image_id="sha256:" + "b" * 64),
        spec(tmp_path / "absent", name="third"),
    ):
        with pytest.raises(EngineError):
            engine.create(changed)
    with pytest.raises(ImageError):
        engine.pull_image("name", "sha256:" + "c" * 64)


def test_what_inspect_says(tmp_path: Path) -> None:
    other = "sha256:" + "d" * 64
    engine = FakeEngine({IMAGE: Script(oom=True, created_image_id=other)})
    ident = engine.create(spec(tmp_path))
    before = engine.state(ident)
    assert before is not None
    assert (before.status, before.image_id, before.oom_flag) == ("created", other, False)
    engine.start(ident)
    engine.wait(ident, 5)
    after = engine.state(ident)
    assert after is not None
    assert (after.status, after.exit_code, after.oom_flag) == ("exited", 0, True)


def test_listing_by_label(tmp_path: Path) -> None:
    engine = FakeEngine()
    ident = engine.create(spec(tmp_path))
    assert [box.container_id for box in engine.containers({"sealbench.run": ""})] == [ident]
    assert [box.container_id for box in engine.containers({"sealbench.run": "r1"})] == [ident]
    assert engine.containers({"sealbench.run": "r2"}) == ()
    assert engine.containers({"other": ""}) == ()


def test_remove_ends_a_running_container_unless_nothing_can(tmp_path: Path) -> None:
    engine = FakeEngine(default=Script(exit_after_s=NEVER))
    ident = started(engine, tmp_path)
    engine.remove(ident)
    assert engine.state(ident) is None
    stuck = FakeEngine(default=Script(exit_after_s=NEVER, kill_delay_s=NEVER))
    ident = started(stuck, tmp_path)
    with pytest.raises(EngineError) as caught:
        stuck.remove(ident)
    assert caught.value.code == "engine.not-removed"
