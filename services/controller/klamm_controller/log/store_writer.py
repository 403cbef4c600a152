"""Runs all access to the store on one thread, in order.

All writes that are queued in one turn of the event loop, or while another write is in progress, share the next `fsync`
(group commit). All other work on the store waits in the same queue.

While the disk is full, the writer retries until there is space again. Queued writes are not acknowledged before they
are durable, so the wait breaks no promise. Any other failure ends the process (`on_failure`), because it is unknown
what the disk holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar

from klamm.process import PROCESS
from klamm_controller.log.database import DiskFullError
from klamm_controller.log.raft_metrics import WRITE_SECONDS
from klamm_controller.log.raft_store import RaftStore
from klamm_controller.raft.effects import Persist

log = logging.getLogger(__name__)

FULL_DISK_RETRY_S: Final = 1.0
"""The pause between attempts to write to a full disk."""

T = TypeVar("T")
OnFailure = Callable[[str, BaseException], None]


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[], Any]
    """The function that the store's thread runs."""
    done: Callable[[Any], None]
    """Called on the event loop with the result of `work`."""


class StoreWriter:
    """Writes to the store in a thread. `on_persisted` is called with the id of the newest durable write. `on_full` is
    called after each attempt that finds the disk full."""

    def __init__(
        self,
        store: RaftStore,
        *,
        on_persisted: Callable[[int], None],
        on_full: Callable[[], None],
        on_failure: OnFailure,
    ) -> None:
        self._store = store
        self._on_persisted = on_persisted
        self._on_full = on_full
        self._on_failure = on_failure
        self._line: deque[Persist | _Job] = deque()
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._thread = PROCESS.get().make_executor(1, "metadata-log")

    def write(self, persist: Persist) -> None:
        """Queues a write. `on_persisted` is called once it is durable."""
        self._line.append(persist)
        self._start()

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Queues `work` to run on the thread after all earlier work. Then calls `done` with its result on the event
        loop."""
        self._line.append(_Job(work, done))
        self._start()

    async def drain(self) -> None:
        """Waits until the queue is empty and no work is running."""
        while self._task is not None:
            await asyncio.wait({self._task})

    def stop_waiting(self) -> None:
        """Makes writes fail on a full disk from now on, instead of waiting for space."""
        self._stopping.set()

    def close(self) -> None:
        """Ends the thread. Call `drain` first, so that no work is left."""
        self._thread.shutdown()

    def _start(self) -> None:
        """Starts the task that works off the queue. The task starts in the next turn of the event loop, so it finds all
        writes of this turn."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="metadata-log-writer")

    async def _run(self) -> None:
        try:
            while self._line:
                head = self._line[0]
                if isinstance(head, _Job):
                    self._line.popleft()
                    head.done(await self._on_thread(head.work))
                else:
                    group = self._take_group()
                    began_s = perf_counter()
                    await self._on_thread(partial(self._store.write, group))
                    WRITE_SECONDS.observe(perf_counter() - began_s)
                    self._on_persisted(group[-1].persist_id)
        except DiskFullError:
            log.warning("stopped on a full disk: dropped the queued writes, none of which was acknowledged")
            self._line.clear()
        except Exception as error:  # noqa: BLE001 - rocksdict raises a bare Exception
            self._on_failure(f"the metadata log failed: {error}", error)
        finally:
            self._task = None

    async def _on_thread(self, work: Callable[[], T]) -> T:
        """Runs `work` on the thread and returns its result. Retries while the disk is full.

        Raises DiskFullError if the disk is full and `stop_waiting` was called."""
        failures = 0
        while True:
            try:
                result = await asyncio.get_running_loop().run_in_executor(self._thread, work)
            except DiskFullError as error:
                if self._stopping.is_set():
                    raise
                if not failures:
                    log.error("the controller cannot change metadata until its disk has space: %s", error)
                failures += 1
                self._on_full()
            else:
                if failures:
                    log.warning("the disk has space again, after %d attempts", failures)
                return result
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), FULL_DISK_RETRY_S)

    def _take_group(self) -> list[Persist]:
        group: list[Persist] = []
        while self._line and isinstance(head := self._line[0], Persist):
            group.append(head)
            self._line.popleft()
        return group
