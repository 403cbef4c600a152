"""A forked child starts an event loop thread of its own, because the thread of its parent does not exist there."""

from __future__ import annotations

import os
import threading

import pytest

from klamm.threads.loop_thread import LoopThread


async def _name_of_thread() -> str:
    return threading.current_thread().name


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_gets_its_own_event_loop() -> None:
    parent = LoopThread.shared()
    child_pid = os.fork()
    if not child_pid:
        status = 1
        try:
            child = LoopThread.shared()
            status = 0 if child is not parent and child.run(_name_of_thread) else 1
        finally:
            os._exit(status)

    assert os.waitstatus_to_exitcode(os.waitpid(child_pid, 0)[1]) == 0
    assert LoopThread.shared() is parent
    assert parent.run(_name_of_thread)
