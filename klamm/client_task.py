"""Tasks that belong to a client and not to the application.

`asyncio.run` and test frameworks cancel all tasks of a loop (`asyncio.all_tasks`) and then wait for them. Coroutines of
the application may then still close a client, which needs its own tasks for that. So these are not among the tasks of
the loop. The client ends them when it is closed."""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_Tasks = weakref.WeakSet[asyncio.Task[Any]]
_tasks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Tasks] = weakref.WeakKeyDictionary()
"""The tasks of each loop. Only the thread of the loop changes them."""


def client_task(
    coroutine: Coroutine[Any, Any, T], *, name: str, context: contextvars.Context | None = None
) -> asyncio.Task[T]:
    """Runs a coroutine in a task on the running loop, and returns the task. Nothing is logged if the loop is closed
    before the task has ended, because the application need not close a client before."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(coroutine, name=name, context=context)
    asyncio._unregister_task(task)
    tasks = _tasks.get(loop)
    if tasks is None:
        tasks = _tasks[loop] = _Tasks()
    tasks.add(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio sets it in the same way
    return task


def tasks_of_clients(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    """Returns the tasks of clients on `loop` that have not ended. Only the thread of the loop may call this."""
    return [task for task in _tasks.get(loop, ()) if not task.done()]
