"""Finds the positions of assigned partitions: the committed offset, or else the offset of the reset policy or of a
seek.

It also validates positions: the leader must still have the record before a position in its log (KIP-320). If it has
not, the reset policy decides. Follows Kafka's `OffsetFetcher`.

Look-ups run beside the polls, one at a time. A result is applied only if the partition still waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from klamm.client_task import client_task
from klamm.cluster.client import KlammClient
from klamm.cluster.epoch_finder import EpochFinder
from klamm.cluster.offset_finder import OffsetFinder
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.errors import LogTruncationError
from klamm.consumer.offset_policy import OffsetPolicy
from klamm.consumer.offsets.offset_store import OffsetStore
from klamm.consumer.offsets.position_resets import PositionResets
from klamm.consumer.partition_state import PositionState, Validation
from klamm.consumer.position_reset import LostPosition
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import KlammError
from klamm.model import LATEST_TIMESTAMP, TopicPartition
from klamm.offsets import EpochEnd, OffsetAndTimestamp
from klamm.process import PROCESS

logger = logging.getLogger(__name__)


_FAILURES_BEFORE_A_WARNING = 10


class PositionFinder:
    """Finds and validates positions of one consumer. Call `start` whenever partitions may wait for a position. It calls
    `on_progress` after each look-up."""

    def __init__(
        self,
        client: KlammClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        policy: OffsetPolicy,
        store: OffsetStore | None,
        finder: OffsetFinder,
        epochs: EpochFinder,
        resets: PositionResets,
        on_progress: Callable[[], None],
    ) -> None:
        self._client = client
        self._config = config
        self._subscription = subscription
        self._policy = policy
        self._store = store
        self._finder = finder
        self._epochs_of = epochs
        self._resets = resets
        self._on_progress = on_progress
        self._task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    def start(self) -> None:
        """Starts a look-up if positions are missing and no look-up is under way. One that is under way also looks up
        the positions that were added since it began."""
        if self._task is None and self._waiting():
            self._task = client_task(self._run(), name="klamm-positions")

    def drop_failure(self) -> None:
        """Drops an error that no poll has raised yet. The user has moved a position, so the error may be out of
        date."""
        self._failure = None

    def take_failure(self) -> Exception | None:
        """Removes and returns an error that the user has to handle. The next `start` tries again."""
        failure, self._failure = self._failure, None
        return failure

    async def close(self) -> None:
        """Cancels the look-up that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _waiting(self) -> bool:
        return bool(self._subscription.partitions_where(lambda state: state.state is not PositionState.FETCHING))

    async def _run(self) -> None:
        failures = 0
        try:
            while self._waiting() and self._failure is None:
                failed = await self._look_up()
                self._on_progress()
                failures = failures + 1 if failed else 0
                if failed:
                    await self._recover(failed, failures)
        except Exception as error:  # noqa: BLE001 - also what nobody expected is for the next poll to raise
            self._failure = error
        finally:
            self._task = None
        self._on_progress()

    async def _look_up(self) -> list[KlammError]:
        """Runs each kind of look-up once, and returns the errors that allow another try. A look-up that fails does not
        stop the others."""
        failed = []
        for step in (self._initialize, self._reset, self._validate):
            if self._failure is not None:
                break
            try:
                await step()
            except KlammError as error:
                if not error.retriable:
                    raise
                failed.append(error)
        return failed

    async def _recover(self, failed: list[KlammError], failures: int) -> None:
        if failures % _FAILURES_BEFORE_A_WARNING == 0:
            logger.warning("could not find positions, retrying: attempts=%d: %s", failures, failed[0])
        if any(getattr(error, "refresh_metadata", False) for error in failed):
            topics = {tp.topic for tp in (*self._subscription.resetting(), *self._subscription.validating())}
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
        self._failure = self._policy.on_nothing_committed(still, PROCESS.get().wall_ms())

    async def _reset(self) -> None:
        wanted = self._subscription.resetting()
        if not wanted:
            return
        epochs = self._epochs(list(wanted))
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        try:
            await self._finder.ask_once(wanted, found)
        finally:
            # A partition without a leader must not delay the others.
            self._apply(found, epochs)

    def _apply(self, found: dict[TopicPartition, OffsetAndTimestamp], epochs: dict[TopicPartition, int]) -> None:
        for tp, offset in found.items():
            if not self._waits_for(tp, epochs[tp]):
                continue
            state = self._subscription.require(tp)
            lost = state.lost
            if offset.offset < 0:
                # There is no record that late, so begin at the end, where the first such record will be.
                state.request_reset(LATEST_TIMESTAMP, lost)
                continue
            state.seek(offset.offset)
            if lost is not None:
                self._resets.add(tp, lost, offset.offset)

    async def _validate(self) -> None:
        wanted = self._subscription.validating()
        if not wanted:
            return
        found: dict[TopicPartition, EpochEnd] = {}
        try:
            await self._epochs_of.ask_once({tp: position.leader_epoch for tp, position in wanted.items()}, found)
        finally:
            self._take_ends(wanted, found)

    def _take_ends(self, wanted: dict[TopicPartition, Validation], found: dict[TopicPartition, EpochEnd]) -> None:
        truncations = []
        for tp, end in found.items():
            truncation = self._policy.on_epoch_end(tp, wanted[tp], end, PROCESS.get().wall_ms())
            if truncation is not None:
                logger.warning("the log of a partition was truncated: %s", truncation)
                truncations.append(truncation)
                if truncation.divergent is not None and self._policy.resets:
                    self._resets.add(tp, LostPosition(truncation.fetch_offset), truncation.divergent.offset)
            elif end.leader_epoch < wanted[tp].leader_epoch:
                # Kafka's consumer also keeps its position here. The leader's log reaches it, but has other records
                # before it.
                logger.warning(
                    "%s: the records read before offset %d, of leader epoch %d, are no longer in the log, and the"
                    " leader cannot say where the logs diverge",
                    *(tp, wanted[tp].position, wanted[tp].leader_epoch),
                )
        if truncations and not self._policy.resets:
            self._failure = LogTruncationError(truncations)

    def _epochs(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._subscription.require(tp).position_epoch for tp in partitions}

    def _waits_for(self, tp: TopicPartition, epoch: int) -> bool:
        state = self._subscription.get(tp)
        waits = state is not None and state.state is not PositionState.FETCHING
        return waits and state is not None and state.position_epoch == epoch
