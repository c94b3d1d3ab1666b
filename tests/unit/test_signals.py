"""A signal becomes a request, a second one a harder request, and handlers are given back."""

from __future__ import annotations

import os
import signal
import threading
from queue import Empty, SimpleQueue

import pytest

from runner.signals import CANCEL, HANDLED, CancelToken, cancel_on_signals


@pytest.mark.parametrize("number", HANDLED)
def test_each_signal_asks(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with cancel_on_signals(CancelToken()) as token:
        assert (token.cancelled, token.at_once) == (False, False)
        signal.raise_signal(number)
        assert (token.cancelled, token.at_once) == (True, False)
        signal.raise_signal(number)
        assert (token.cancelled, token.at_once) == (True, True)
    assert signal.getsignal(number) is before


def test_nohup_keeps_its_meaning() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with cancel_on_signals(CancelToken()) as token:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not token.cancelled
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_come_back_after_an_error() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match="inside"), cancel_on_signals(CancelToken()):
        raise ValueError("inside")
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_listener_is_woken_and_forgotten() -> None:
    token, queue = CancelToken(), SimpleQueue[str]()
    with token.listen(queue):
        threading.Timer(0.02, token.cancel).start()
        assert queue.get(timeout=5) == CANCEL
    token.cancel()
    with pytest.raises(Empty):
        queue.get_nowait()


def test_who_listens_late_is_told_at_once() -> None:
    token, queue = CancelToken(), SimpleQueue[str]()
    token.cancel()
    with token.listen(queue):
        assert queue.get_nowait() == CANCEL


def test_a_signal_wakes_a_waiting_main_thread() -> None:
    queue = SimpleQueue[str]()
    with cancel_on_signals(CancelToken()) as token, token.listen(queue):
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGTERM)).start()
        assert queue.get(timeout=5) == CANCEL
