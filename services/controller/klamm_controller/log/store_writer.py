"""The one thread that touches the disk, and the order in which it does.

Writes handed over in one turn of the event loop, and those that arrive while another is under way, share the next one:
one `fsync` at a time (group commit). Everything else that needs the store waits in the same line.

A failure ends the process (`on_failure`): what the disk holds is not known any more, and nobody was promised it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from klamm_controller.log.raft_store import RaftStore
from klamm_controller.raft.effects import Persist

T = TypeVar("T")
OnFailure = Callable[[str, BaseException], None]


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[], Any]
    """Runs on the thread."""
    done: Callable[[Any], None]
    """Gets its result, on the event loop."""


class StoreWriter:
    """`on_persisted` is told the id of the newest write that is durable."""

    def __init__(self, store: RaftStore, on_persisted: Callable[[int], None], on_failure: OnFailure) -> None:
        self._store = store
        self._on_persisted = on_persisted
        self._on_failure = on_failure
        self._line: deque[Persist | _Job] = deque()
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-log")

    def write(self, persist: Persist) -> None:
        """Makes it durable."""
        self._line.append(persist)
        self._start()

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Runs `work` on the thread after everything that was handed over before, then `done` on the event loop."""
        self._line.append(_Job(work, done))
        self._start()

    async def drain(self) -> None:
        """Returns when nothing is left to do."""
        while self._task is not None:
            await asyncio.wait({self._task})

    def close(self) -> None:
        """Ends the thread, when nothing is left to do."""
        self._thread.shutdown()

    def _start(self) -> None:
        """The task runs in the loop's next turn at the earliest: this turn's writes are together by then."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="metadata-log-writer")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._line:
                head = self._line[0]
                if isinstance(head, _Job):
                    self._line.popleft()
                    head.done(await loop.run_in_executor(self._thread, head.work))
                else:
                    group = self._take_group()
                    await loop.run_in_executor(self._thread, self._store.write, group)
                    self._on_persisted(group[-1].persist_id)
        except Exception as error:  # noqa: BLE001 - rocksdict raises a bare Exception
            self._on_failure(f"the metadata log failed: {error}", error)
        finally:
            self._task = None

    def _take_group(self) -> list[Persist]:
        group: list[Persist] = []
        while self._line and isinstance(head := self._line[0], Persist):
            group.append(head)
            self._line.popleft()
        return group
