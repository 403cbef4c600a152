"""A broken invariant stops the process: a wrong server is worse than a missing one."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

from klamm.process import PROCESS

log = logging.getLogger(__name__)

EXIT_STATUS = 70
"""sysexits' EX_SOFTWARE."""


def fatal(story: str, error: BaseException | None = None) -> NoReturn:
    """Logs the error and ends the process at once, because a clean-up might persist the damage."""
    log.critical("fatal: %s", story, exc_info=error)
    PROCESS.get().exit(EXIT_STATUS)


def require_assertions() -> None:
    """Refuses to run without assertions (python -O), because services check their invariants with assert."""
    if not __debug__:
        raise SystemExit("klamm: services do not run under python -O: their assertions must stay on")


def watch(task: asyncio.Task[None]) -> asyncio.Task[None]:
    """Makes an exception of a task fatal. Returns the task."""

    def on_done(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            fatal(f"task {done.get_name()} failed", error)

    task.add_done_callback(on_done)
    return task
