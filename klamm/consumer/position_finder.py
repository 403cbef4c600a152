"""Finds out where assigned partitions begin: the committed offset, else what the reset policy or a seek asks for.

Runs beside the polls, one look-up at a time; what it finds counts only if the partition still waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from klamm.client import KlammClient
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.offset_policy import OffsetPolicy
from klamm.consumer.offset_store import OffsetStore
from klamm.consumer.subscription import PositionState, SubscriptionState
from klamm.errors import KlammError
from klamm.model import LATEST_TIMESTAMP, NO_LEADER_EPOCH, TopicPartition
from klamm.offset_finder import OffsetFinder
from klamm.offsets import OffsetAndTimestamp


class PositionFinder:
    """Call `kick` whenever partitions may have come to wait for a position. `on_progress` follows."""

    def __init__(
        self,
        client: KlammClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        policy: OffsetPolicy,
        store: OffsetStore | None,
        finder: OffsetFinder,
        on_progress: Callable[[], None],
    ) -> None:
        self._client = client
        self._config = config
        self._subscription = subscription
        self._policy = policy
        self._store = store
        self._finder = finder
        self._on_progress = on_progress
        self._task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    def kick(self) -> None:
        """Starts looking up, unless nothing waits or a look-up is under way (which then goes on to the rest)."""
        if self._task is None and self._waiting():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="klamm-positions")

    def take_failure(self) -> Exception | None:
        """An error the user must hear of; the next `kick` tries again."""
        failure, self._failure = self._failure, None
        return failure

    async def close(self) -> None:
        """Gives the look-up under way up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _waiting(self) -> bool:
        return bool(self._subscription.partitions_where(lambda state: state.state is not PositionState.FETCHING))

    async def _run(self) -> None:
        failures = 0
        try:
            while self._waiting() and self._failure is None:
                try:
                    await self._initialize()
                    await self._reset()
                    failures = 0
                except KlammError as error:
                    if not error.retriable:
                        raise
                    failures += 1
                    self._on_progress()
                    await self._recover(error, failures)
                self._on_progress()
        except Exception as error:  # noqa: BLE001 - also what nobody expected is for the next poll to raise
            self._failure = error
        finally:
            self._task = None
        self._on_progress()

    async def _recover(self, error: KlammError, failures: int) -> None:
        if getattr(error, "refresh_metadata", False):
            topics = {tp.topic for tp in self._subscription.resetting()}
            with contextlib.suppress(KlammError):
                await self._client.refresh_metadata(topics)
        await asyncio.sleep(self._client.backoff.delay_ms(failures, self._client.rng) / 1000)

    async def _initialize(self) -> None:
        epochs = self._epochs(self._subscription.initializing())
        if not epochs:
            return
        committed = {}
        if self._store is not None:
            committed = await self._store.fetch(epochs, timeout_ms=self._config.request_timeout_ms)
        for tp, offset in committed.items():
            if tp in epochs:
                self._subscription.complete(tp, epochs[tp], offset.offset, offset.leader_epoch)
        still = [tp for tp, epoch in epochs.items() if tp not in committed and self._waits_for(tp, epoch)]
        self._failure = self._policy.on_nothing_committed(still, int(time.time() * 1000))

    async def _reset(self) -> None:
        wanted = self._subscription.resetting()
        if not wanted or self._failure is not None:
            return
        epochs = self._epochs(list(wanted))
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        try:
            await self._finder.ask_once(wanted, found)
        finally:
            # One partition without a leader keeps only itself waiting.
            self._apply(found, epochs)

    def _apply(self, found: dict[TopicPartition, OffsetAndTimestamp], epochs: dict[TopicPartition, int]) -> None:
        for tp, offset in found.items():
            if offset.offset >= 0:
                self._subscription.complete(tp, epochs[tp], offset.offset, NO_LEADER_EPOCH)
            elif self._waits_for(tp, epochs[tp]):
                # No record is that late: the end is where the first such record will be.
                self._subscription.request_reset(tp, LATEST_TIMESTAMP)

    def _epochs(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._subscription.require(tp).position_epoch for tp in partitions}

    def _waits_for(self, tp: TopicPartition, epoch: int) -> bool:
        state = self._subscription.get(tp)
        waits = state is not None and state.state is not PositionState.FETCHING
        return waits and state is not None and state.position_epoch == epoch
