"""Seal a bundle again and again, each time killed one step later. Run as a program by a test.

A step is a write, an fsync, a rename or a new folder. The process of one attempt dies by SIGKILL in
the middle of its step (half of a write's bytes are there); the next one starts afresh.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.bundle import durable
from tests.unit.bundle_files import seal

Call = Callable[..., Any]


class Countdown:
    """Kills this process at the chosen step."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def over(self) -> bool:
        """Count one step; True when it is the last one."""
        self.left -= 1
        return self.left < 0


def die() -> None:
    """End at once, as by a power cut: no handler, no finally block, no flush."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(countdown: Countdown, *, after: bool) -> None:
    """Wrap the system calls that matter; die before or after the chosen one."""
    for owner, name in (
        (os, "fsync"), (os, "mkdir"), (os, "unlink"), (durable, "_rename_no_replace"),
    ):  # fmt: skip
        setattr(owner, name, dying(countdown, getattr(owner, name), after=after))
    write = os.write

    def half(descriptor: int, data: memoryview) -> int:
        if countdown.over():
            write(descriptor, data[: len(data) // 2])
            die()
        return write(descriptor, data)

    os.write = half  # type: ignore[assignment]  # narrower than the stub: only we call it


def dying(countdown: Countdown, call: Call, *, after: bool) -> Call:
    """Return the call wrapped so that the process dies around it when its time has come."""

    def wrapped(*arguments: Any, **options: Any) -> Any:
        last = countdown.over()
        if last and not after:
            die()
        result = call(*arguments, **options)
        if last:
            die()
        return result

    return wrapped


def main(folder: Path) -> None:
    """Make one folder an attempt until an attempt lives to its end; print how many died."""
    died = 0
    for steps in range(10_000):
        survivors = 0
        for after in (False, True):
            place = folder / f"{steps:04d}-{'after' if after else 'before'}"
            child = os.fork()
            if child == 0:
                arm(Countdown(steps), after=after)
                seal(place)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            survivors += status == 0
            died += os.WIFSIGNALED(status)
        if survivors == 2:
            break
    sys.stdout.write(f"{died}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
