from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from klamm.threads.in_thread import in_thread

AT_EXIT = """
import asyncio, atexit
from klamm.threads.in_thread import in_thread
atexit.register(lambda: print(asyncio.run(in_thread(divmod, 7, 2))))
asyncio.run(in_thread(divmod, 1, 1))
"""


def test_the_work_runs_in_another_thread_and_its_error_reaches_the_caller() -> None:
    assert asyncio.run(in_thread(threading.current_thread)) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(divmod, 1, 0))


def test_functions_of_atexit_can_wait_for_work() -> None:
    assert subprocess.check_output([sys.executable, "-c", AT_EXIT], text=True) == "(3, 1)\n"
