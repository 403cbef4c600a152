from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from klamm.errors import IllegalStateError
from klamm.threads.loop_thread import LoopThread, _handle_loop_exception


async def _name_of_thread() -> str:
    return threading.current_thread().name


def test_coroutines_run_on_one_shared_thread() -> None:
    shared = LoopThread.shared()

    assert shared.run(_name_of_thread) == "klamm-loop"
    assert LoopThread.shared() is shared


def test_error_reaches_the_caller() -> None:
    async def fail() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        LoopThread.shared().run(fail)


def test_blocking_on_the_loop_from_the_loop_is_refused() -> None:
    async def nested() -> None:
        LoopThread.shared().run(_name_of_thread)

    with pytest.raises(IllegalStateError, match="inside a callback"):
        LoopThread.shared().run(nested)


def test_call_soon_does_not_wait() -> None:
    called = threading.Event()

    LoopThread.shared().call_soon(called.set)

    assert called.wait(30)


def test_stop_cancels_running_coroutines_and_closes_the_loop() -> None:
    thread = LoopThread()
    started, cancelled = threading.Event(), threading.Event()

    async def wait_for_ever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    asyncio.run_coroutine_threadsafe(wait_for_ever(), thread.loop)
    assert started.wait(30)
    thread.stop()

    assert cancelled.is_set()
    assert thread.loop.is_closed()


class PollerCompletionQueue:
    """A class with the name of gRPC's, whose bound method is the handle's callback."""

    def _handle_events(self) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    def _fail_otherwise(self) -> None:
        raise ValueError("a real one")


class LatePollerCompletionQueue(PollerCompletionQueue):
    """A queue with the end of a call whose event loop was closed before."""

    def __init__(self, closed: asyncio.AbstractEventLoop) -> None:
        self._closed = closed

    def _handle_events(self) -> None:
        self._closed.call_soon_threadsafe(int)


def _reported_by(callback: Any) -> list[dict[str, Any]]:
    reported: list[dict[str, Any]] = []

    class Loop(asyncio.SelectorEventLoop):
        def default_exception_handler(self, context: dict[str, Any]) -> None:
            reported.append(context)

    loop = Loop()
    loop.set_exception_handler(_handle_loop_exception)
    loop.call_soon(callback)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    return reported


def test_only_grpcs_wake_up_errors_are_not_logged() -> None:
    def raise_elsewhere() -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    closed = asyncio.new_event_loop()
    closed.close()

    assert _reported_by(LatePollerCompletionQueue(closed)._handle_events) == []
    assert len(_reported_by(lambda: closed.call_soon_threadsafe(int))) == 1
    assert _reported_by(PollerCompletionQueue()._handle_events) == []
    assert len(_reported_by(PollerCompletionQueue()._fail_otherwise)) == 1
    assert len(_reported_by(raise_elsewhere)) == 1


def test_a_thread_gives_up_the_lock_completely_while_it_waits_for_the_loop() -> None:
    """A signal handler does so when it has interrupted a method of a client."""
    shared = LoopThread.shared()

    async def use_the_lock() -> str:
        with shared.lock:
            return "used"

    with shared.lock, shared.lock:
        assert shared.run(use_the_lock) == "used"
        assert not in_another_thread(shared)
    assert in_another_thread(shared)


def test_a_thread_has_the_lock_again_after_an_interrupted_wait() -> None:
    shared = LoopThread.shared()
    with shared.lock, pytest.raises(KeyboardInterrupt), shared.unlocked():
        raise KeyboardInterrupt
    assert in_another_thread(shared)


@pytest.mark.parametrize("end", [lambda: sys.exit(3), lambda: asyncio.get_running_loop().stop()])
def test_the_loop_goes_on_after_an_application_has_ended_it(end: Callable[[], None]) -> None:
    thread = LoopThread()
    thread.call_soon(end)
    assert thread.run(_name_of_thread) == "klamm-loop"
    thread.stop()


def test_a_loop_that_has_ended_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = LoopThread()
    ended.stop()
    monkeypatch.setattr(LoopThread, "_shared", ended)
    shared = LoopThread.shared()
    assert shared is not ended
    assert shared.run(_name_of_thread) == "klamm-loop"
    shared.stop()


def in_another_thread(shared: LoopThread) -> bool:
    """Returns whether another thread could acquire the lock."""
    acquired: list[bool] = []

    def acquire() -> None:
        acquired.append(shared.lock.acquire(blocking=False))
        if acquired[0]:
            shared.lock.release()

    thread = threading.Thread(target=acquire)
    thread.start()
    thread.join()
    return acquired[0]
