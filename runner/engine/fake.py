"""An engine that follows a script, for unit tests of everything above the engine.

It keeps the real engine's manners: output that nobody attached to is lost, a container's name is
taken until it is removed, a missing mount source is an error, TERM can be ignored, and after the
engine died every call fails. Times are real but may be tiny; events happen in the script's order.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from runner.engine.api import (
    ContainerSpec,
    ContainerState,
    ContainerSummary,
    EngineInfo,
    ImageInfo,
    LogStream,
)
from runner.engine.fake_facts import FAKE_INFO, fake_image
from runner.errors import EngineError, ImageError

__all__ = ["FAKE_INFO", "NEVER", "FakeEngine", "Script", "ScriptSource", "Step", "fake_image"]

NEVER = float("inf")
#: Above the kernel's largest pid, so that no code can hurt a real process by mistake.
_PID_BASE = 1 << 30
_EXIT_OF_SIGNAL = {"TERM": 143, "KILL": 137}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something a scripted container does ``at_s`` seconds after its start.

    ``log`` goes to ``stream`` (1 or 2); ``write`` maps names below ``/out`` to bytes that are
    appended; ``act`` gets the mounts (target -> host folder) and may do anything.
    """

    at_s: float = 0.0
    log: bytes = b""
    stream: int = 1
    write: Mapping[str, bytes] = field(default_factory=dict)
    act: Callable[[Mapping[str, Path]], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a container does. ``exit_after_s=NEVER`` runs until it is killed.

    ``fails_on`` names calls (``create``, ``attach``, ``start``, ``wait``, ``state``, ``kill``,
    ``remove``) that fail for this container while the engine lives; ``engine_dies_on`` is the
    call at which the whole engine goes away, ``engine_dies_after_s`` a time after start.
    ``kill_delay_s=NEVER`` is a container that KILL cannot end.
    """

    exit_after_s: float = 0.0
    exit_code: int = 0
    steps: tuple[Step, ...] = ()
    ignores_term: bool = False
    term_delay_s: float = 0.0
    term_exit_code: int = 143
    on_term: tuple[Step, ...] = ()
    kill_delay_s: float = 0.0
    oom: bool = False
    created_image_id: str | None = None
    fails_on: frozenset[str] = frozenset()
    engine_dies_on: str | None = None
    engine_dies_after_s: float = NEVER


ScriptSource = Mapping[str, Script] | Callable[[ContainerSpec], Script]


class _Container:
    """One scripted container and the thread that plays it. Guarded by the engine's condition."""

    def __init__(self, engine: FakeEngine, ident: str, spec: ContainerSpec, script: Script) -> None:
        self.engine, self.ident, self.spec, self.script = engine, ident, spec, script
        self.status = "created"
        self.exit_code: int | None = None
        self.dies_at = NEVER
        self.death_code = 0
        self.termed = False
        self.chunks: deque[tuple[int, bytes]] = deque()
        self.attached = False
        self.mounts = {mount.target: mount.source for mount in spec.mounts}
        self.thread = threading.Thread(target=self._play, daemon=True)

    def begin(self) -> None:
        self.status = "running"
        self.started = time.monotonic()
        if self.script.exit_after_s != NEVER:
            self.schedule_death(self.started + self.script.exit_after_s, self.script.exit_code)
        self.thread.start()

    def schedule_death(self, moment: float, code: int) -> None:
        if moment < self.dies_at:
            self.dies_at, self.death_code = moment, code
        self.engine.changed.notify_all()

    def _play(self) -> None:
        engine, script = self.engine, self.script
        todo = deque(sorted(script.steps, key=lambda step: step.at_s))
        term_todo = deque(script.on_term)
        engine_end = self.started + script.engine_dies_after_s
        with engine.changed:
            while not engine.dead:
                now = time.monotonic()
                if now >= engine_end:
                    engine.die()
                    break
                while todo and self.started + todo[0].at_s <= min(now, self.dies_at):
                    self._apply(todo.popleft())
                while self.termed and term_todo and now < self.dies_at:
                    self._apply(term_todo.popleft())
                if now >= self.dies_at:
                    self.status, self.exit_code = "exited", self.death_code
                    break
                coming = self.started + todo[0].at_s if todo else NEVER
                moment = min(coming, self.dies_at, engine_end)
                engine.changed.wait(None if moment == NEVER else max(0.0, moment - now))
            engine.changed.notify_all()

    def _apply(self, step: Step) -> None:
        if step.log and self.attached:
            self.chunks.append((step.stream, step.log))
        for name, data in step.write.items():
            with (self.mounts["/out"] / name).open("ab") as stream:
                stream.write(data)
        if step.act is not None:
            step.act(self.mounts)
        self.engine.changed.notify_all()


class _FakeLogs:
    """The log stream of one scripted container."""

    def __init__(self, container: _Container) -> None:
        self._container = container
        self._closed = False

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        container, engine = self._container, self._container.engine
        while True:
            with engine.changed:
                engine.changed.wait_for(
                    lambda: (
                        container.chunks
                        or self._closed
                        or engine.dead
                        or container.status not in ("created", "running")
                    )
                )
                if self._closed or not container.chunks:
                    return
                chunk = container.chunks.popleft()
            yield chunk

    def close(self) -> None:
        with self._container.engine.changed:
            self._closed = True
            self._container.engine.changed.notify_all()


class FakeEngine:
    """Implements ``api.Engine``. ``scripts`` is keyed by the image id, the command joined by
    spaces, or its first word (looked up in the order command, word, image), or is a function of
    the spec. ``images=None`` knows every image id. ``calls`` records (call, container name)."""

    def __init__(
        self,
        scripts: ScriptSource | None = None,
        *,
        default: Script | None = None,
        images: Sequence[ImageInfo] | None = None,
        info: EngineInfo = FAKE_INFO,
        pullable: Sequence[ImageInfo] = (),
    ) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.dead = False
        self.calls: list[tuple[str, str]] = []
        self.specs: list[ContainerSpec] = []
        self._scripts: ScriptSource = {} if scripts is None else scripts
        self._default = default or Script()
        self._images = None if images is None else list(images)
        self._pullable = list(pullable)
        self._info = info
        self._containers: dict[str, _Container] = {}
        self._idents = itertools.count(1)

    def die(self) -> None:
        """The engine goes away: every call from now on fails, streams end, waits raise."""
        with self.changed:
            self.dead = True
            self.changed.notify_all()

    def info(self) -> EngineInfo:
        self._alive()
        return self._info

    def inspect_image(self, reference: str) -> ImageInfo | None:
        self._alive()
        if self._images is None:
            return fake_image(reference)
        for image in self._images:
            if reference == image.image_id or reference in image.repo_digests:
                return image
        return None

    def load_image(self, archive: BinaryIO) -> tuple[str, ...]:
        self._alive()
        raise ImageError(
            "image.unreadable-archive",
            f"the fake engine loads no archives ({len(archive.read(1))} byte read)",
            fix="give FakeEngine the image in its list",
        )

    def save_image(self, image_id: str) -> Iterator[bytes]:
        self._alive()
        raise ImageError("image.absent", f"no archive of {image_id}", fix="load one first")

    def pull_image(self, repository: str, manifest_digest: str) -> ImageInfo:
        self._alive()
        reference = f"{repository}@{manifest_digest}"
        for image in self._pullable:
            if reference in image.repo_digests:
                if self._images is not None:
                    self._images.append(image)
                return image
        raise ImageError("image.pull-failed", f"{reference}: not found", fix="check the digest")

    def create(self, spec: ContainerSpec) -> str:
        with self.changed:
            script = self._script_of(spec)
            self._enter("create", spec.name, script)
            if any(box.spec.name == spec.name for box in self._containers.values()):
                raise _engine_error("engine.refused", f"the name {spec.name} is in use")
            for mount in spec.mounts:
                if not mount.source.exists():
                    raise _engine_error("engine.refused", f"mount {mount.target} has no source")
            if self.inspect_image(spec.image_id) is None:
                raise _engine_error("engine.refused", f"no such image: {spec.image_id}")
            ident = f"{next(self._idents):064x}"
            self._containers[ident] = _Container(self, ident, spec, script)
            self.specs.append(spec)
            return ident

    def attach(self, container_id: str) -> LogStream:
        with self.changed:
            container = self._get("attach", container_id)
            container.attached = True
            return _FakeLogs(container)

    def start(self, container_id: str) -> None:
        with self.changed:
            self._get("start", container_id).begin()

    def wait(self, container_id: str, timeout_s: float) -> int | None:
        with self.changed:
            container = self._get("wait", container_id)
            self.changed.wait_for(
                lambda: self.dead or container.status not in ("created", "running"), timeout_s
            )
            self._alive()
            return container.exit_code

    def state(self, container_id: str) -> ContainerState | None:
        with self.changed:
            if container_id not in self._containers:
                self._alive()
                return None
            container = self._get("state", container_id)
            running = container.status == "running"
            return ContainerState(
                status=container.status,
                exit_code=container.exit_code,
                oom_flag=container.script.oom and container.status == "exited",
                error="",
                pid=_PID_BASE + int(container_id, 16) if running else None,
                image_id=container.script.created_image_id or container.spec.image_id,
            )

    def kill(self, container_id: str, signal: str) -> None:
        with self.changed:
            if container_id not in self._containers:
                self._alive()
                return
            container = self._get("kill", container_id, note=signal)
            script, now = container.script, time.monotonic()
            if container.status != "running":
                return
            if signal == "KILL":
                container.schedule_death(now + script.kill_delay_s, _EXIT_OF_SIGNAL["KILL"])
            elif not script.ignores_term:
                container.termed = True
                container.schedule_death(now + script.term_delay_s, script.term_exit_code)

    def remove(self, container_id: str) -> None:
        with self.changed:
            if container_id not in self._containers:
                self._alive()
                return
            container = self._get("remove", container_id)
            if container.status == "running":
                if container.script.kill_delay_s == NEVER:
                    raise _engine_error("engine.not-removed", "the container outlives KILL")
                moment = time.monotonic() + container.script.kill_delay_s
                container.schedule_death(moment, _EXIT_OF_SIGNAL["KILL"])
                self.changed.wait_for(lambda: self.dead or container.status == "exited")
                self._alive()
            del self._containers[container_id]

    def containers(self, labels: Mapping[str, str]) -> tuple[ContainerSummary, ...]:
        with self.changed:
            self._alive()
            return tuple(
                ContainerSummary(
                    container_id=ident,
                    name=box.spec.name,
                    status=box.status,
                    labels=dict(box.spec.labels),
                )
                for ident, box in self._containers.items()
                if all(
                    key in box.spec.labels and value in ("", box.spec.labels[key])
                    for key, value in labels.items()
                )
            )

    def close(self) -> None:
        """Nothing to release."""

    def _script_of(self, spec: ContainerSpec) -> Script:
        if not isinstance(self._scripts, Mapping):
            return self._scripts(spec)
        for key in (" ".join(spec.command), spec.command[:1], spec.image_id):
            word = key if isinstance(key, str) else "".join(key)
            if word in self._scripts:
                return self._scripts[word]
        return self._default

    def _get(self, call: str, container_id: str, *, note: str = "") -> _Container:
        self._alive()
        container = self._containers.get(container_id)
        if container is None:
            raise _engine_error("engine.no-such-container", f"no such container: {container_id}")
        self._enter(f"{call} {note}".strip(), container.spec.name, container.script, call)
        return container

    def _enter(self, label: str, name: str, script: Script, call: str = "create") -> None:
        self._alive()
        self.calls.append((label, name))
        if script.engine_dies_on == call:
            self.die()
            self._alive()
        if call in script.fails_on:
            raise _engine_error("engine.refused", f"{call} of {name} fails by script")

    def _alive(self) -> None:
        if self.dead:
            raise EngineError(
                "engine.lost",
                "the engine went away",
                fix="start the container engine again, then resume the run",
            )


def _engine_error(code: str, message: str) -> EngineError:
    return EngineError(code, message, fix="look at the engine's own log")
