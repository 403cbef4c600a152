"""Closes clients that an application dropped without a call of `close`.

The tasks of a client run on its event loop and refer to the parts of the client, but not to the object that the
application has. So the garbage collector finds this object, and then its parts close themselves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from klamm.client_task import client_task

log = logging.getLogger(__name__)

Close = Callable[[], Coroutine[Any, Any, object]]


def close_if_forgotten(
    client: object,
    loop: asyncio.AbstractEventLoop,
    name: str,
    *,
    is_closed: Callable[[], bool],
    close: Close,
    unfinished: Callable[[], str] = lambda: "",
) -> None:
    """Calls `close` on `loop` when the garbage collector finds `client`, unless `is_closed` returns True.
    Then there is a ResourceWarning, which names the client by `name`. If `unfinished` returns what the client has not
    finished, the log has it too, because a loop that ends loses it. The functions must not refer to `client`."""
    finalizer = weakref.finalize(client, _on_forgotten, os.getpid(), loop, name, is_closed, close, unfinished)
    # The interpreter destroys open clients at its end, and sockets with them.
    finalizer.atexit = False


def _on_forgotten(
    process_id: int,
    loop: asyncio.AbstractEventLoop,
    name: str,
    is_closed: Callable[[], bool],
    close: Close,
    unfinished: Callable[[], str],
) -> None:
    """Runs in any thread, between any two instructions. A forked child has a copy of the parent's clients."""
    if is_closed() or sys.is_finalizing() or os.getpid() != process_id:
        return
    if text := unfinished():
        log.warning("%s was not closed: %s", name, text)
    with contextlib.suppress(RuntimeError):  # The loop is closed.
        loop.call_soon_threadsafe(_begin, name, close)
    warnings.warn(f"{name} was not closed; call close() or use a with block", ResourceWarning, stacklevel=2)


def _begin(name: str, close: Close) -> None:
    client_task(_close(name, close), name="klamm-close-forgotten")


async def _close(name: str, close: Close) -> None:
    try:
        await close()
    except Exception:
        log.exception("could not close %s, which was not closed by the application", name)
