"""What a program takes from its process and its machine: clocks, threads, random numbers, and its end.

Code takes them from `PROCESS`. An object that uses them often takes them when it is made, and keeps them. The default
is the process of the operating system.
A simulation runs many processes in one interpreter, and sets the variable in the context of each.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import ContextVar
from typing import Final, NamedTuple, NoReturn


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _exit(status: int) -> NoReturn:
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)


def _make_executor(thread_count: int, name: str) -> Executor:
    return concurrent.futures.ThreadPoolExecutor(thread_count, thread_name_prefix=name)


class Process(NamedTuple):
    """The clocks, the threads, the randomness and the end of one process."""

    wall_ms: Callable[[], int] = _wall_ms
    """Returns the milliseconds since the epoch."""
    monotonic_ms: Callable[[], int] = _monotonic_ms
    """Returns a time in milliseconds for deadlines. It never goes back."""
    elapsed_s: Callable[[], float] = time.perf_counter
    """Returns a precise time in seconds, for the duration of a piece of work."""
    thread_s: Callable[[], float] = time.thread_time
    """Returns the processor time of this thread in seconds."""
    make_executor: Callable[[int, str], Executor] = _make_executor
    """Returns that many threads, which have the name."""
    make_event: Callable[[], threading.Event] = threading.Event
    """Returns an event that a thread can wait for."""
    make_rng: Callable[[], random.Random] = random.Random
    """Returns a new source of random numbers that are no secrets."""
    randbytes: Callable[[int], bytes] = os.urandom
    """Returns that many random bytes, which may be secrets."""
    exit: Callable[[int], NoReturn] = _exit
    """Ends the process at once with a status, without a clean-up, which might persist damage. Logs are flushed."""


PROCESS: Final[ContextVar[Process]] = ContextVar("PROCESS", default=Process())  # noqa: B039 - a NamedTuple is immutable
"""The process that the running code belongs to."""
