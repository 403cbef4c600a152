"""The commit before partitions are revoked. Their next owner begins at the positions that it commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from klamm.client_task import client_task


class LastCommit:
    """Runs the commit beside the polls, because it may take longer than a poll. `commit` has a time limit. If it is
    None, nothing is committed.

    `on_progress` is called when the commit has ended."""

    def __init__(self, commit: Callable[[], Coroutine[Any, Any, None]] | None, on_progress: Callable[[], None]) -> None:
        self._commit = commit
        self._on_progress = on_progress
        self._task: asyncio.Task[None] | None = None

    @property
    def under_way(self) -> bool:
        """True from the begin of the commit until `advance` has returned True."""
        return self._task is not None

    def advance(self) -> bool:
        """Begins the commit, or checks whether it has ended. Returns True once after the end. Raises the commit's
        error."""
        if self._commit is None:
            return True
        if self._task is None:
            self._task = client_task(self._commit(), name="klamm-last-commit")
            self._task.add_done_callback(lambda _: self._on_progress())
        if not self._task.done():
            return False
        task, self._task = self._task, None
        task.result()
        return True

    async def give_up(self) -> None:
        """Cancels the commit that is under way."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
