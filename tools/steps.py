"""How the set-up talks: one line for every step, with its result and how long it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, STDOUT, run
from typing import TextIO

EXIT_NOT_READY = 22  # as `sealbench doctor`: something is missing on this machine
EXIT_ENGINE = 7  # as every engine error of `sealbench`
TAIL_LINES = 15


class SetupError(Exception):
    """The set-up cannot go on: what is wrong, how to mend it, and the exit code."""

    def __init__(self, message: str, *, fix: str, exit_code: int = EXIT_NOT_READY) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.exit_code = exit_code


class Step:
    """One step that is under way."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream = name, stream
        self.result = "done"

    def working(self, text: str) -> None:
        """Say what takes a while, before it does."""
        _line(self._stream, f".. {self._name}: {text}")

    def done(self, result: str) -> None:
        """Set the result that the step's closing line will show."""
        self.result = result


class Steps:
    """Tells the steps of one set-up."""

    def __init__(
        self, stream: TextIO = sys.stdout, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._clock = stream, clock

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Time a block; its closing line is written only when it succeeded."""
        began = self._clock()
        step = Step(name, self._stream)
        yield step
        _line(self._stream, f"ok {name}: {step.result} ({self._clock() - began:.1f} s)")

    def say(self, text: str) -> None:
        """Write a line that belongs to no step."""
        _line(self._stream, text)


def _line(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()  # a child process writes to the same terminal next


def quietly(
    command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, fix: str
) -> None:
    """Run a command with its output in ``log``; ``SetupError`` with the log's end if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream:
        try:
            code = run(
                command, check=False, stdin=DEVNULL, stdout=stream, stderr=STDOUT, env=env
            ).returncode
        except OSError as error:
            raise SetupError(f"{command[0]} cannot be run: {error}", fix=fix) from error
    if code != 0:
        raise SetupError(
            f"`{' '.join(command)}` failed with exit code {code}:\n{tail(log)}",
            fix=f"{fix} (whole output: {log})",
        )


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log, indented; empty when there is none."""
    try:
        text = log.read_bytes().decode("utf-8", "backslashreplace")
    except OSError:
        return ""
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
