"""Finds the tasks, threads, processes and mounts that tests leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import pathlib
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm.client_task import tasks_of_clients
from tests.support.waiting import patience

_PAUSE_S: Final = 0.01
_OF_THE_PROCESS: Final = re.compile(
    r"_poll_wrapper|\.klamm-loop$|\.asyncio_\d+$|^py4j\.|java .* pyspark-shell$|multiprocessing\.resource_tracker"
)
"""Matches threads and programs that a library starts once for a whole process. They belong to gRPC, the client's event
loop, Spark's JVM and the connection with it, and multiprocessing."""

_RUNNERS: Final[Any] = asyncio.runners
"""The module whose function ends the remaining tasks. The function is private, and has been the same since Python
3.7."""

_TASKS: Final = pathlib.Path("/proc/self/task")
_MOUNTS: Final = pathlib.Path("/proc/self/mounts")


class Machine(NamedTuple):
    """The threads and children of this process, and the mounts that it sees, each with a text that names it."""

    threads: Mapping[object, str]
    processes: Mapping[object, str]
    mounts: Mapping[object, str]


class LeftoverError(AssertionError):
    """Raised if a test left something behind. The test gets no second chance, because a run of it alone may leave the
    same unnoticed."""


def refuse(left: Sequence[str]) -> None:
    """Raises LeftoverError if `left` is not empty."""
    if left:
        raise LeftoverError(f"left behind: {', '.join(left)}")


def machine(directory: pathlib.Path) -> Machine:
    """Returns the present state, with the mounts below `directory`. Without /proc there are no processes and mounts."""
    threads = [thread for thread in threading.enumerate() if not _is_shared(_full_name(thread))]
    mounts = [line.split()[1] for line in _read(_MOUNTS).splitlines()]
    return Machine(
        {thread: f"the thread {thread.name!r}" for thread in threads},
        {number: f"the process {number}: {command}" for number, command in _children() if not _is_shared(command)},
        {mount: f"the mount at {mount}" for mount in mounts if pathlib.Path(mount).is_relative_to(directory)},
    )


def left_since(before: Machine, directory: pathlib.Path, timeout_s: float | None = None) -> list[str]:
    """Waits until nothing is left that was not there before, for at most `timeout_s`. Returns the texts of what is
    still left.

    Without `timeout_s`, it is `patience()`."""
    deadline_s = time.monotonic() + (patience() if timeout_s is None else timeout_s)
    while (left := _new(before, machine(directory))) and time.monotonic() < deadline_s:
        time.sleep(_PAUSE_S)
    return left


@contextlib.contextmanager
def left_tasks() -> Iterator[list[str]]:
    """Yields a list of the tasks that are left in the block when the coroutine of an `asyncio.run` has ended. Tasks of
    clients are among them. The aclose of an open generator is not counted as a task."""
    left: list[str] = []
    cancel = _RUNNERS._cancel_all_tasks

    def note_and_cancel(loop: asyncio.AbstractEventLoop) -> None:
        coroutines = [task.get_coro() for task in (*asyncio.all_tasks(loop), *tasks_of_clients(loop))]
        left.extend(f"the task {coroutine.__qualname__}" for coroutine in coroutines if inspect.iscoroutine(coroutine))
        cancel(loop)

    _RUNNERS._cancel_all_tasks = note_and_cancel
    try:
        yield left
    finally:
        _RUNNERS._cancel_all_tasks = cancel


def _new(before: Machine, now: Machine) -> list[str]:
    return [text for old, new in zip(before, now, strict=True) for key, text in new.items() if key not in old]


def _full_name(thread: threading.Thread) -> str:
    """Returns the thread's name, after the module of the function that it runs, or else of its class."""
    return f"{getattr(getattr(thread, '_target', None), '__module__', type(thread).__module__)}.{thread.name}"


def _is_shared(name: str) -> bool:
    """Returns whether a thread or program with this name belongs to a library rather than to a test."""
    return _OF_THE_PROCESS.search(name) is not None


def _children() -> Iterable[tuple[int, str]]:
    """Yields the children that run, each with its command.

    A child that has ended and was not waited for is left out, because its `Popen` warns about it."""
    if not _TASKS.exists():
        return
    for task in _TASKS.iterdir():
        for number in map(int, _read(task / "children").split()):
            process = pathlib.Path("/proc", str(number))
            if _read(process / "stat").rpartition(")")[2].split()[:1] not in ([], ["Z"]):
                yield number, _read(process / "cmdline").replace("\0", " ").strip()


def _read(path: pathlib.Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""
