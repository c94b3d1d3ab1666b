"""Ctrl-C, SIGTERM and a closed terminal -> a token that units look at.

A handler may interrupt its own thread anywhere, also inside a lock that it would need. So it takes
none: it sets a number and puts words into ``SimpleQueue``s, whose ``put`` is made for that.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: The word that a cancelled token puts into each queue that listens.
CANCEL = "cancel"


class CancelToken:
    """Whether a run should stop. ``requests`` is 0, 1 (TERM, grace, KILL) or more (KILL at once);
    both still clean up. Any thread and any signal handler may call ``cancel``."""

    def __init__(self) -> None:
        self.requests = 0
        self._queues: tuple[SimpleQueue[str], ...] = ()
        self._lock = threading.Lock()

    @property
    def cancelled(self) -> bool:
        """Stop: take no new unit, end the running ones."""
        return self.requests > 0

    @property
    def at_once(self) -> bool:
        """Stop without grace."""
        return self.requests > 1

    def cancel(self) -> None:
        """Ask once more."""
        self.requests += 1
        for queue in self._queues:
            queue.put(CANCEL)

    @contextmanager
    def listen(self, queue: SimpleQueue[str]) -> Iterator[None]:
        """Within, each request also puts ``CANCEL`` into ``queue``; one that came before does."""
        with self._lock:
            self._queues = (*self._queues, queue)
        if self.cancelled:
            queue.put(CANCEL)
        try:
            yield
        finally:
            with self._lock:
                self._queues = tuple(item for item in self._queues if item is not queue)


@contextmanager
def cancel_on_signals(token: CancelToken) -> Iterator[CancelToken]:
    """Within, each signal of ``HANDLED`` is a request to ``token``; what was before comes back.

    Call in the main thread: only there does Python run handlers. An ignored SIGHUP stays ignored,
    so that ``nohup`` keeps its meaning.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        token.cancel()

    before = {
        number: signal.getsignal(number)
        for number in HANDLED
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    for number in before:
        signal.signal(number, handle)
    try:
        yield token
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
