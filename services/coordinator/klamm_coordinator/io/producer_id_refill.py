"""Keeps the stock of producer ids filled from the controller."""

from __future__ import annotations

import asyncio
import random

from klamm.retry import Backoff
from klamm.rpc.retrying import retrying
from klamm_coordinator.transaction.producer_ids import ProducerIdPool
from klamm_server.links.producer_ids import ProducerIds
from klamm_server.rpc.retries import ServerRetries
from klamm_server.runtime.faults import watch

RETRY = Backoff(initial_ms=100, max_ms=1_000)


class ProducerIdRefill:
    """Fetches producer ids from the controller. The caller uses `top_up` whenever ids may have been used, and `close`
    at the end. All calls must come from the event loop."""

    def __init__(self, pool: ProducerIdPool, ids: ProducerIds, rng: random.Random) -> None:
        self._pool = pool
        self._ids = ids
        self._rng = rng
        self._task: asyncio.Task[None] | None = None

    def top_up(self) -> asyncio.Task[None] | None:
        """Begins to fetch a block of ids if few are left. Returns the task that fetches, or None if there are enough
        ids."""
        if self._pool.is_low and self._task is None:
            self._task = watch(asyncio.create_task(self._fetch(), name="producer-ids"))
        return self._task

    async def wait(self) -> None:
        """Waits until a producer id is available, but at most for `RETRY.max_ms`."""
        task = self.top_up()
        if task is not None and not len(self._pool):
            await asyncio.wait({task}, timeout=RETRY.max_ms / 1000)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._ids.close()

    async def _fetch(self) -> None:
        retries = ServerRetries("producer ids", "", RETRY, self._rng)
        try:
            while self._pool.is_low:
                self._pool.add(await retrying(self._ids.next_block, retries))
        finally:
            self._task = None
