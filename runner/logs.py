"""A method's stdout and stderr on disk: head and tail as bytes, with a visible mark between.

Bytes go in and bytes come out: nothing is decoded, so no output can break the log, and a character
split across two chunks stays whole. Memory and disk are bounded by the cap, whatever comes.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from runner.engine.api import LogStream
from runner.errors import EngineError
from runner.secret_scan import Redactor

#: The tail waits in memory until the end, so it stays small even under a large cap.
MAX_TAIL_BYTES = 1 << 20
#: Beyond its cap, output is read at this rate only: a flood must not take a core from the others.
FLOOD_BYTES_PER_S = 64 << 20
_FLOOD_STEP = 1 << 20
_CLOSE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """``total`` bytes came; ``left_out`` of them are not in the file; ``fault`` is why, if the
    disk is to blame and not the cap."""

    total: int
    left_out: int
    fault: str | None = None


class CappedLog:
    """One stream's log. At most ``cap_bytes`` of output are kept, plus the mark."""

    def __init__(self, path: Path, cap_bytes: int, redactor: Redactor | None = None) -> None:
        """Create or replace the file; ``OSError`` where that is impossible.

        The ``redactor`` sees every byte before the cap does: a secret that the cap cuts in two
        would not be found afterwards.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o644)
        self._tail_cap = min(cap_bytes // 2, MAX_TAIL_BYTES)
        self._head_left = cap_bytes - self._tail_cap
        self._tail = bytearray()
        self._total = self._left_out = 0
        self._fault: str | None = None
        self._closed = False
        self._redactor = redactor

    @property
    def flooded(self) -> bool:
        """Whether the cap was passed."""
        return self._left_out > 0

    def write(self, chunk: bytes) -> None:
        """Take a chunk of any size. Never raises: a full disk is told by ``close``."""
        self._take(chunk if self._redactor is None else self._redactor.feed(chunk))

    def _take(self, chunk: bytes) -> None:
        self._total += len(chunk)
        if self._head_left:
            head = chunk[: self._head_left]
            self._head_left -= len(head)
            self._put(head)
            chunk = chunk[len(head) :]
        if len(chunk) > self._tail_cap:
            self._left_out += len(self._tail) + len(chunk) - self._tail_cap
            self._tail.clear()
            chunk = chunk[len(chunk) - self._tail_cap :]
        self._tail += chunk
        if len(self._tail) > 2 * self._tail_cap:  # cut rarely: each cut moves the whole tail
            self._cut()

    def close(self) -> LogSummary:
        """Write the mark and the tail, make the file durable; callable twice."""
        if not self._closed:
            self._closed = True
            if self._redactor is not None:
                self._take(self._redactor.end())
            self._cut()
            if self._left_out:
                self._put(b"\n[... %d bytes left out ...]\n" % self._left_out)
            self._put(bytes(self._tail))
            try:
                os.fsync(self._fd)
            except OSError as error:
                self._fault = self._fault or os.strerror(error.errno or 0)
            os.close(self._fd)
        return LogSummary(total=self._total, left_out=self._left_out, fault=self._fault)

    def _cut(self) -> None:
        surplus = len(self._tail) - self._tail_cap
        if surplus > 0:
            del self._tail[:surplus]
            self._left_out += surplus

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._fault is None:
            try:
                view = view[os.write(self._fd, view) :]
            except OSError as error:
                # The stream must still be read to its end, or the method would block on it.
                self._fault = os.strerror(error.errno or 0)


class LogPump:
    """Carries an attached stream into two logs from a thread of its own."""

    def __init__(self, stream: LogStream, stdout: CappedLog, stderr: CappedLog) -> None:
        self._stream = stream
        self._logs = {1: stdout, 2: stderr}
        self._hurry = threading.Event()
        self._broken: str | None = None
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)
        self._thread.start()

    def finish(self, timeout_s: float) -> tuple[bool, tuple[str, ...]]:
        """Call when the container is dead or never started; then ``timeout_s`` may be 0.

        Return (whether anything was left out, warnings).
        """
        self._hurry.set()
        self._thread.join(timeout_s)
        late = self._thread.is_alive()
        self._stream.close()
        if late:
            self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            return True, ("logs: the stream did not end with the container, so its end is missing",)
        warnings = [f"logs: the stream broke: {self._broken}"] if self._broken else []
        left_out = False
        for number, name in ((1, "stdout"), (2, "stderr")):
            summary = self._logs[number].close()
            left_out = left_out or summary.left_out > 0
            if summary.fault:
                warnings.append(f"logs: {name} is cut short: {summary.fault}")
        return left_out, tuple(warnings)

    def _run(self) -> None:
        flood = 0
        try:
            for number, chunk in self._stream:
                log = self._logs[2 if number == 2 else 1]
                log.write(chunk)
                if log.flooded:
                    flood += len(chunk)
                if flood >= _FLOOD_STEP and not self._hurry.is_set():
                    time.sleep(flood / FLOOD_BYTES_PER_S)
                    flood = 0
        except EngineError as error:
            self._broken = error.code
        except OSError as error:
            self._broken = os.strerror(error.errno) if error.errno else "connection lost"
