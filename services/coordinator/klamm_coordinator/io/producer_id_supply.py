"""Keeps the stock of producer ids filled from the controller."""

from __future__ import annotations

import asyncio
import logging
import random

from klamm.errors import KlammError
from klamm.retry import Backoff
from klamm_coordinator.transaction.producer_ids import ProducerIdStock
from klamm_server.faults import watch
from klamm_server.producer_ids import ProducerIds

log = logging.getLogger(__name__)

RETRY = Backoff(initial_ms=100, max_ms=1_000)


class ProducerIdSupply:
    """`top_up` whenever something may have been taken; `close` at the end. Event loop only."""

    def __init__(self, stock: ProducerIdStock, ids: ProducerIds, rng: random.Random) -> None:
        self._stock = stock
        self._ids = ids
        self._rng = rng
        self._task: asyncio.Task[None] | None = None

    def top_up(self) -> asyncio.Task[None] | None:
        """Begins to fetch a block if few are left; the task ends when it is there. None: there are enough."""
        if self._stock.is_low and self._task is None:
            self._task = watch(asyncio.create_task(self._fetch(), name="producer-ids"))
        return self._task

    async def wait(self) -> None:
        """Returns when there is an id, or some time after it could not be had."""
        task = self.top_up()
        if task is not None and not len(self._stock):
            await asyncio.wait({task}, timeout=RETRY.max_ms / 1000)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._ids.close()

    async def _fetch(self) -> None:
        failures = 0
        try:
            while self._stock.is_low:
                try:
                    self._stock.add(await self._ids.next_block())
                except KlammError as error:
                    failures += 1
                    log.warning("no producer ids, trying again: %s", error)
                    await asyncio.sleep(RETRY.delay_ms(failures, self._rng) / 1000)
        finally:
            self._task = None
