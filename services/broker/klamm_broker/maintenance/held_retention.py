"""Runs retention of the logs that this broker leads and whose topics have a hold (`retention.hold.groups`).

Every `log.retention.check.interval.ms`, the task looks for logs of which retention alone would delete segments, and
asks the coordinators what the groups of these holds have read. `retention_hold.py` then decides. The answer counts only
for the leader epoch and the groups for which it was asked. A follower deletes nothing by itself: its log starts where
the leader's does.

The question ends after a time-out. So a lasting outage of the coordinators does not keep the bounds from being applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from klamm.errors import BrokerError
from klamm.model import TopicPartition
from klamm_broker.io.metrics import HOLD_UNREAD_DELETED
from klamm_broker.log.cleaning.retention_hold import HoldDecision, LowOffset
from klamm_broker.log.files.storage_failure import DiskFull, LogDir
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.maintenance.held_partitions import HeldPartition, HeldPartitions
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.runtime.clock import Clock

log = logging.getLogger(__name__)


class OffsetSource(Protocol):
    """Knows what groups have committed."""

    async def lowest(
        self, holds: Mapping[TopicPartition, tuple[str, ...]]
    ) -> Mapping[TopicPartition, LowOffset | None]:
        """Returns the lowest committed offset of each partition's groups, or None if it cannot be known now."""


class _Waiting(NamedTuple):
    """A log for which retention asks, and the state for which the answer counts."""

    partition: Partition
    leader_epoch: int
    groups: tuple[str, ...]

    @property
    def is_current(self) -> bool:
        partition = self.partition
        return (
            partition.is_leader
            and partition.leader_epoch == self.leader_epoch
            and partition.log.config.retention_hold_groups == self.groups
        )


class HeldRetention:
    """Deletes expired segments of held logs. `run` works until it is cancelled."""

    def __init__(
        self,
        replicas: ReplicaManager,
        config: BrokerConfig,
        clock: Clock,
        *,
        offsets: OffsetSource,
        retire: Callable[[PendingDeletion], None],
        on_disk_full: Callable[[LogDir], None],
    ) -> None:
        self._replicas = replicas
        self._interval_ms = config.log_retention_check_interval_ms
        self._clock = clock
        self._offsets = offsets
        self._retire = retire
        self._on_disk_full = on_disk_full
        self.held = HeldPartitions()
        self.held.watch(clock.wall_ms)

    async def run(self) -> None:
        """Checks the logs at every interval."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self.check()

    async def check(self) -> None:
        """Deletes the segments that have expired and that no group needs."""
        waiting = list(self._waiting())
        answers: Mapping[TopicPartition, LowOffset | None] = {}
        if waiting:
            answers = await self._offsets.lowest({entry.partition.topic_partition: entry.groups for entry in waiting})
        self.held.replace(self._applied(waiting, answers))

    def _waiting(self) -> Iterable[_Waiting]:
        now_ms = self._clock.wall_ms()
        for partition in self._replicas:
            try:
                is_waiting = partition.is_leader and partition.log.retention.waits(
                    now_ms=now_ms, high_watermark=partition.high_watermark
                )
            except BrokerError as error:
                self._note(partition, error)
                continue
            if is_waiting:
                yield _Waiting(partition, partition.leader_epoch, partition.log.config.retention_hold_groups)

    def _applied(
        self, waiting: Iterable[_Waiting], answers: Mapping[TopicPartition, LowOffset | None]
    ) -> dict[TopicPartition, HeldPartition]:
        """Applies retention, and returns the partitions of which it keeps segments for groups."""
        held = {}
        for entry in waiting:
            topic_partition = entry.partition.topic_partition
            if not entry.is_current or self._replicas.get(topic_partition) is not entry.partition:
                continue
            lowest = answers.get(topic_partition)
            try:
                decision = self._apply(entry.partition, lowest)
            except BrokerError as error:
                self._note(entry.partition, error)
                continue
            if decision.held_bytes:
                held[topic_partition] = HeldPartition(lowest, decision.held_bytes, decision.bound_due_ms)
        return held

    def _apply(self, partition: Partition, lowest: LowOffset | None) -> HoldDecision:
        decision, deletion = partition.log.retention.apply_held(
            now_ms=self._clock.wall_ms(),
            high_watermark=partition.high_watermark,
            low_offset=None if lowest is None else lowest.offset,
        )
        # The counter of a held topic begins at 0, so that a rate does not miss the first records.
        unread = HOLD_UNREAD_DELETED.labels(partition.topic_partition.topic)
        if deletion is not None:
            self._retire(deletion)
            self._replicas.on_log_start_moved(partition)
        if decision.unread_count:
            unread.inc(decision.unread_count)
            log.warning(
                "retention deleted records at a bound of retention.hold before they were read, partition=%s"
                " log_start_offset=%d unread=%d %s",
                partition.topic_partition,
                decision.log_start_offset,
                decision.unread_count,
                _reader(lowest),
            )
        return decision

    def _note(self, partition: Partition, error: BrokerError) -> None:
        """Reports an error. The next check tries again."""
        if isinstance(error, DiskFull):
            self._on_disk_full(error.log_dir)
        else:
            log.error("could not delete expired segments, partition=%s: %s", partition.topic_partition, error)


def _reader(lowest: LowOffset | None) -> str:
    if lowest is None:
        return "(no coordinator could tell what the groups have read)"
    return f"group={lowest.group_id} committed_offset={lowest.offset}"
