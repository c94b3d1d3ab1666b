"""Run one unit in its container under hard limits, and tell what was observed.

create -> prove the image -> attach -> start -> watch -> TERM, grace, KILL -> proof of death ->
account -> remove. Whatever happens in between, an engine that dies or a ``KeyboardInterrupt``, the
end is reached: killed, proven dead, removed. Nothing is judged here; see ``outcome.classify``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

from runner.clock import Clock, SystemClock
from runner.container import EXIT, LOST, Container
from runner.engine import lease
from runner.engine.api import Engine
from runner.engine.usage import Cgroups
from runner.errors import EngineError
from runner.expectation import BUDGET_SPENT, CANCELLED_BEFORE
from runner.logs import LogPump
from runner.model import Evidence
from runner.progress_text import UnitTick
from runner.request import (
    MAX_TEXT,
    UnitRequest,
    UnitResult,
    container_spec,
    give_folders,
    unit_name,
    without_host_paths,
)
from runner.signals import CancelToken
from runner.unit_files import UnitFiles, free_bytes

#: Waking up costs more than looking (0.2 to 0.4 ms of CPU on a virtual machine), so a unit that has
#: settled and writes little is looked at less often.
TICK_NS = 100_000_000
CALM_TICK_NS = 250_000_000
CALM_AFTER_LOOKS = 10
MAX_TICK_NS = 1_000_000_000
#: The least time to the next look is the cost of the last one times this: looking at a large tree
#: must not take a core from the methods.
TICK_SHARE = 50
PROGRESS_NS = 500_000_000
KILL_WAIT_NS = 10_000_000_000
LOGS_S = 3.0
#: How long a lost engine is asked again before its container is left to ``sealbench clean``.
PATIENCE_S = 20.0
#: A lease outlives the unit's budget by this much; afterwards anybody may sweep the container.
LEASE_MARGIN_S = 3600
#: Below this much free space the unit is stopped, before the disk is full for everybody.
DISK_FLOOR_BYTES = 128 << 20

#: The exit code of what KILL ended, and how long a removal after it may take.
KILLED = 137
REMOVAL_S = 0.3

CANCELLED, DEADLINE, DISK = "cancelled", "deadline", "disk"
NEARLY_FULL = "the disk of the output folder is nearly full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What units run on."""

    engine: Engine
    cgroups: Cgroups
    clock: Clock = field(default_factory=SystemClock)
    patience_s: float = PATIENCE_S


def run_unit(
    platform: Platform,
    request: UnitRequest,
    *,
    cancel: CancelToken,
    on_progress: Callable[[UnitTick], None] | None = None,
) -> UnitResult:
    """Run the unit to its end and return what was observed. Blocks; safe in several threads.

    Never raises for what a method or the engine does: that is evidence. Raises ``StorageError``
    when the folders or logs cannot be prepared, before anything was started.
    """
    reason = reason_not_to_start(request.remaining_wall_ms, cancel)
    if reason is not None:
        return UnitResult(
            evidence=Evidence(not_started_reason=reason), started=None, wall_ms_used=0
        )
    give_folders(request)
    with ExitStack() as closing:
        attempt = _Attempt(platform, request, cancel, closing)
        attempt.run(on_progress)
    return attempt.result()


def reason_not_to_start(remaining_wall_ms: int, cancel: CancelToken) -> str | None:
    """Return why a unit cannot have its turn; None when it can."""
    if cancel.cancelled:
        return f"{CANCELLED_BEFORE}this unit's turn"
    return BUDGET_SPENT if remaining_wall_ms <= 0 else None


class _Attempt:
    """One attempt at a unit. Each thing that it opens is closed by ``closing``, the last one being
    the container, which is therefore ended first."""

    def __init__(
        self, platform: Platform, request: UnitRequest, cancel: CancelToken, closing: ExitStack
    ) -> None:
        self._request, self._cancel, self._clock = request, cancel, platform.clock
        self._evidence = Evidence(load_start=_load())
        self._started: str | None = None
        self._started_ns = 0
        self._memory: int | None = None
        self._looks = 0
        self._over = False  # the end was seen, or can no longer be seen
        self._pump: LogPump | None = None
        self._words = SimpleQueue[str]()
        closing.enter_context(cancel.listen(self._words))
        self._files = UnitFiles(request, closing)
        self._floor = DISK_FLOOR_BYTES if free_bytes(request.out_dir) > DISK_FLOOR_BYTES else 0
        name = unit_name(request)
        self._group = platform.cgroups.open_unit(name, memory_bytes=request.limits.memory_bytes)
        closing.callback(self._group.close)
        life_ms = request.remaining_wall_ms + request.limits.grace_ms
        spec = container_spec(
            request,
            name=name,
            labels=lease.labels(
                run_id=request.run_id,
                unit_id=request.unit.unit_id,
                expires_epoch=int(self._clock.epoch()) + life_ms // 1000 + LEASE_MARGIN_S,
            ),
            cgroup_parent=self._group.parent,
        )
        self._container = Container(
            platform.engine, spec, clock=self._clock, patience_s=platform.patience_s
        )
        # The last is the first to be done, and each is done whatever the others raise.
        for step in (self._container.close, self._remove, self._take_account, self._bury):
            closing.callback(step)

    def result(self) -> UnitResult:
        """What was observed, once everything is closed."""
        wall_ns = self._evidence.wall_ns or 0
        return UnitResult(
            evidence=self._evidence, started=self._started, wall_ms_used=-(-wall_ns // 1_000_000)
        )

    def run(self, on_progress: Callable[[UnitTick], None] | None) -> None:
        """Launch, watch and stop the container; ``closing`` does the rest."""
        try:
            if not self._launch():
                return
            cause = self._watch(on_progress)
            if cause is not None:
                self._stop(cause)
            elif self._container.lost is not None:
                raise self._container.lost
        except EngineError as error:
            self._fail(error)

    def _launch(self) -> bool:
        container, pinned = self._container, self._request.image_id
        container.create()
        found = container.image_id()
        if found != pinned:
            failure = f"the container was created from {found}, not from the pinned {pinned}"
            self._note(engine_failure=failure)
            return False
        self._pump = LogPump(container.attach(), self._files.stdout, self._files.stderr)
        if self._cancel.cancelled:
            self._note(not_started_reason=f"{CANCELLED_BEFORE}the container started")
            return False
        self._started_ns = container.start(self._words)
        self._started = self._clock.utc_stamp()
        self._note(started=True)
        self._let_pass()
        pid = container.hold()
        if pid is not None:
            self._group.adopt(pid)
        return True

    def _let_pass(self) -> None:
        """Remove what the container has mounted by now and the host need not keep."""
        for path in self._request.passing:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._warn(f"a passing file stays until the end: {os.strerror(error.errno or 0)}")

    def _watch(self, on_progress: Callable[[UnitTick], None] | None) -> str | None:
        """Return why the container must be stopped; None when it ended by itself or was lost."""
        deadline = self._started_ns + self._request.remaining_wall_ms * 1_000_000
        next_look = next_tell = self._started_ns + TICK_NS
        while True:
            if self._over_within(min(next_look, deadline)):
                return None
            now = self._clock.monotonic_ns()
            if self._cancel.cancelled:
                return CANCELLED
            if now >= deadline:
                return DEADLINE
            if now < next_look:
                continue
            cause = self._look()
            if cause is not None:
                return cause
            if on_progress is not None and now >= next_tell:
                on_progress(self._tick(now))
                next_tell = now + PROGRESS_NS
            cost = self._clock.monotonic_ns() - now
            calm = self._looks > CALM_AFTER_LOOKS and not self._files.growing
            least = CALM_TICK_NS if calm else TICK_NS
            next_look = now + min(max(least, cost * TICK_SHARE), MAX_TICK_NS)

    def _look(self) -> str | None:
        """One look at memory, output and disk; the name of what is beyond its bound."""
        self._memory = self._group.live().memory_bytes
        self._looks += 1
        passed = self._files.tick()
        if passed is not None:
            return self._exceeded(*passed)
        return DISK if self._disk_is_low() else None

    def _exceeded(self, folder: str, cap: str) -> str:
        if folder != "/out":
            self._warn(f"{folder} grew beyond the cap on output")
        return cap

    def _tick(self, now: int) -> UnitTick:
        return UnitTick(
            rows_done=self._files.rows.count(),
            elapsed_ms=(now - self._started_ns) // 1_000_000,
            budget_ms=self._request.remaining_wall_ms,
            memory_bytes=self._memory,
            memory_limit_bytes=self._request.limits.memory_bytes,
            rows_planned=self._request.rows_planned,
        )

    def _stop(self, cause: str) -> None:
        """TERM, grace, KILL. Only a deadline or a first cancellation leaves a grace: what floods
        the disk would use it to go on."""
        if cause == CANCELLED:
            self._note(cancelled=True)
        elif cause == DEADLINE:
            self._note(deadline_exceeded=True)
        elif cause == DISK:
            self._note(engine_failure=NEARLY_FULL)
        else:
            self._note(output_exceeded=cause)
        grace_ns = self._request.limits.grace_ms * 1_000_000
        if cause in (CANCELLED, DEADLINE) and grace_ns > 0 and not self._cancel.at_once:
            self._send("TERM")
            self._wait_out(grace_ns)
        if not self._over:
            self._send("KILL")
            until = self._clock.monotonic_ns() + KILL_WAIT_NS
            while not self._over_within(until) and self._clock.monotonic_ns() < until:
                pass

    def _wait_out(self, grace_ns: int) -> None:
        """Let the grace pass, unless the unit ends, someone asks again, or the output floods."""
        until = self._clock.monotonic_ns() + grace_ns
        while (now := self._clock.monotonic_ns()) < until:
            if self._over_within(min(until, now + TICK_NS)) or self._cancel.at_once:
                return
            if self._look() is not None:
                return

    def _over_within(self, until_ns: int) -> bool:
        """Wait for the end; also returns, with False, when someone cancels."""
        if not self._over:
            rest_s = max(0, until_ns - self._clock.monotonic_ns()) / 1e9
            with suppress(Empty):
                self._over = self._words.get(timeout=rest_s) in (EXIT, LOST)
        return self._over

    def _bury(self) -> None:
        """Make sure that it is dead, and ask how it ended."""
        container = self._container
        if container.ident is None:
            return
        try:
            self._note(death_proven=container.prove_dead())
            self._settle()
        except EngineError as error:
            self._fail(error)

    def _remove(self) -> None:
        try:
            self._container.remove()
        except EngineError as error:
            problem = without_host_paths(error, self._request)
            self._warn(f"`sealbench clean` must remove the container: {problem}")
        self._note(load_end=_load())

    def _settle(self) -> None:
        """Ask the engine how the dead container ended."""
        found = self._container.final_state()
        killed = found is not None and found.exit_code == KILLED and not found.oom_flag
        if killed and self._evidence.signal_sent is None:
            # A removal by somebody else begins with a kill: look again after it.
            time.sleep(REMOVAL_S)
            found = self._container.final_state()
        if found is None or found.status == "removing":
            raise EngineError(
                "engine.not-there", "somebody else removed the container", fix="run the unit again"
            )
        if not self._evidence.started:
            return
        code = found.exit_code if found.exit_code is not None else self._container.exit_code
        wall_ns = (self._container.exit_ns or self._clock.monotonic_ns()) - self._started_ns
        self._note(exit_code=code, engine_oom_flag=found.oom_flag, wall_ns=wall_ns)
        stopped = self._evidence.cancelled or self._evidence.output_exceeded is not None
        if wall_ns > self._request.remaining_wall_ms * 1_000_000 and not stopped:
            self._note(deadline_exceeded=True)  # it ended by itself, but too late

    def _take_account(self) -> None:
        """Take in the logs, what the container used, and what it wrote in all."""
        if self._pump is not None:
            truncated, warnings = self._pump.finish(LOGS_S if self._evidence.started else 0)
            self._note(log_truncated=truncated)
            self._warn(*warnings)
        if not self._evidence.started:
            return
        usage = self._group.usage()
        self._note(
            oom_events=usage.oom_events,
            pids_events=usage.pids_events,
            throttled_periods=usage.throttled_periods,
            peak_memory_bytes=usage.peak_memory_bytes,
            rss_peak_bytes=usage.rss_peak_bytes,
            cpu_ns=usage.cpu_ns,
            unmeasured={
                name: reason
                for name, reason in sorted(usage.unmeasured.items())
                if name in Evidence.__dataclass_fields__
            },
        )
        for folder, watch in self._files.watches.items():
            size = watch.measure()
            if size.exceeded is not None and self._evidence.output_exceeded is None:
                self._note(output_exceeded=self._exceeded(folder, size.exceeded))
            if size.unseen:
                self._warn(f"{folder}: {size.unseen} entries could not be looked at")
        self._excuse()

    def _excuse(self) -> None:
        """Hold nothing against a method that ended by itself when it may have had no room."""
        seen = self._evidence
        stopped = seen.cancelled or seen.deadline_exceeded or seen.output_exceeded is not None
        if not stopped and seen.engine_failure is None and self._disk_is_low():
            self._note(engine_failure=NEARLY_FULL)

    def _disk_is_low(self) -> bool:
        return free_bytes(self._request.out_dir) < self._floor

    def _send(self, name: str) -> None:
        self._container.send(name)
        self._note(signal_sent=name)

    def _note(self, **facts: object) -> None:
        self._evidence = replace(self._evidence, **facts)  # type: ignore[arg-type]  # by field name

    def _warn(self, *texts: str) -> None:
        self._note(warnings=(*self._evidence.warnings, *(text[:MAX_TEXT] for text in texts)))

    def _fail(self, error: EngineError) -> None:
        """Keep the first failure: those that follow come of it."""
        if self._evidence.engine_failure is None:
            self._note(engine_failure=without_host_paths(error, self._request))


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
