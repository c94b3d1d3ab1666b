"""One container of ours, from its creation to the proof that it is gone.

Signals go straight to the container's init by a pidfd where the kernel allows it: that is proven to
be the right process, takes a millisecond, and still works when the engine hangs. Init is PID 1 of
its own pid namespace, so the kernel kills everything else in there with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from runner.clock import Clock
from runner.engine.api import ContainerSpec, ContainerState, Engine, LogStream
from runner.engine.lease import UNIT
from runner.errors import EngineError

#: Words for the supervisor's queue.
EXIT = "exit"  # the container ended
LOST = "lost"  # the engine stopped answering

_WAIT_S = 3600.0
_RETRY_S = 0.2
_PROOF_S = 30.0
_PROBE_S = 0.02
_LIVING = frozenset({"running", "paused", "restarting", "removing", "stopping"})
T = TypeVar("T")


class Container:
    """A handle that outlives the engine's moods. Every call may raise ``EngineError``.

    Once the engine has not answered for ``patience_s``, it is not asked again.
    """

    def __init__(self, engine: Engine, spec: ContainerSpec, *, clock: Clock, patience_s: float):
        self._engine, self._spec, self._clock = engine, spec, clock
        self._patience_s = patience_s
        self._given_up: EngineError | None = None
        self._asked = False
        self._pidfd: int | None = None
        self.ident: str | None = None
        self.exit_ns: int | None = None  # when the end was seen
        self.exit_code: int | None = None
        self.lost: EngineError | None = None

    def create(self) -> None:
        """Create it without starting it."""
        self._asked = True
        try:
            self.ident = self._engine.create(self._spec)
        except EngineError as error:
            # A refusal leaves nothing behind; an engine that went silent may have created it.
            self._asked = error.code == "engine.lost"
            raise

    def image_id(self) -> str | None:
        """The image that the engine says the container has; None when it is gone already."""
        found = self._state()
        return None if found is None else found.image_id

    def attach(self) -> LogStream:
        """Attach before ``start``: output that nobody is attached to is lost."""
        return self._engine.attach(self._id())

    def start(self, words: SimpleQueue[str]) -> int:
        """Start it; return the monotonic moment. ``EXIT`` or ``LOST`` comes through ``words``."""
        self._engine.start(self._id())
        moment = self._clock.monotonic_ns()
        threading.Thread(target=self._wait, args=(words,), name="wait", daemon=True).start()
        return moment

    def hold(self) -> int | None:
        """Take hold of init; return its pid, None when it has ended or cannot be seen."""
        found = self._state()
        if found is None or found.pid is None:
            return None
        try:
            self._pidfd = os.pidfd_open(found.pid)
            groups = Path(f"/proc/{found.pid}/cgroup").read_text()
        except OSError:  # ended, or of a pid namespace that we do not see
            return found.pid
        if self._id() not in groups:  # another process by the same number
            self._let_go()
        else:
            held = os.dup(self._pidfd)
            threading.Thread(target=self._stamp_end, args=(held,), name="end", daemon=True).start()
        return found.pid

    def send(self, name: str) -> None:
        """Send TERM or KILL; one that is dead already is no error."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._pidfd, signal.Signals[f"SIG{name}"])
                return
            if self._ended():
                return
        self._patiently(lambda: self._engine.kill(self._id(), name))

    def prove_dead(self) -> bool:
        """KILL it unless it ended, then look until it is dead or gone, for a bounded time."""
        if self.exit_ns is None:
            self.send("KILL")
        deadline = time.monotonic() + _PROOF_S
        while True:
            if self._dead():
                self.exit_ns = self.exit_ns or self._clock.monotonic_ns()
                return True
            if time.monotonic() > deadline:
                return False
            self.send("KILL")
            time.sleep(_PROBE_S)

    def final_state(self) -> ContainerState | None:
        """What the engine says of the dead container; None when it is gone."""
        return self._state()

    def remove(self) -> None:
        """Remove it; returns only when it is gone. Also when its id never reached us."""
        if not self._asked:
            return
        idents = [self.ident]
        if self.ident is None:
            unit = {UNIT: self._spec.labels.get(UNIT, "")}
            found = self._patiently(lambda: self._engine.containers(unit))
            idents = [item.container_id for item in found if item.name == self._spec.name]
        for ident in filter(None, idents):
            self._patiently(partial(self._engine.remove, ident))

    def close(self) -> None:
        """Let go of what was held here; the container itself is not touched."""
        self._let_go()

    def _id(self) -> str:
        assert self.ident is not None, "create comes first"  # noqa: S101 - a bug, not an input
        return self.ident

    def _dead(self) -> bool:
        if self._pidfd is not None:
            return self._ended()  # the kernel's word, with or without the engine
        found = self._state()
        return found is None or (found.status not in _LIVING and found.pid is None)

    def _ended(self) -> bool:
        """Has the held process ended? A pidfd is readable from then on."""
        if self._pidfd is None:
            return False
        probe = select.poll()
        probe.register(self._pidfd, select.POLLIN)
        return bool(probe.poll(0))

    def _state(self) -> ContainerState | None:
        return self._patiently(lambda: self._engine.state(self._id()))

    def _stamp_end(self, held: int) -> None:
        """The kernel tells the moment; the engine tells it up to a tenth of a second later."""
        try:
            probe = select.poll()
            probe.register(held, select.POLLIN)
            probe.poll()
            self.exit_ns = self.exit_ns or self._clock.monotonic_ns()
        finally:
            os.close(held)

    def _wait(self, words: SimpleQueue[str]) -> None:
        try:
            while (code := self._engine.wait(self._id(), _WAIT_S)) is None:
                pass
        except EngineError as error:
            self.lost = error
            words.put(LOST)
        else:
            self.exit_ns = self.exit_ns or self._clock.monotonic_ns()
            self.exit_code = code
            words.put(EXIT)

    def _patiently(self, call: Callable[[], T]) -> T:
        """Ask again while the engine does not answer: it may be restarting."""
        if self._given_up is not None:
            raise self._given_up
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return call()
            except EngineError as error:
                if error.code != "engine.lost":
                    raise
                if time.monotonic() >= deadline:
                    self._given_up = error
                    raise
            time.sleep(min(_RETRY_S, self._patience_s))

    def _let_go(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
