"""A DeleteRecords request that waits until every live replica has moved its log start offset.

Kafka's `DelayedDeleteRecords`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klamm.errors import ErrorCode
from klamm_broker.replica.partition import Partition

LiveBrokers = Callable[[], frozenset[int]]


class PendingRecordDeletion:
    """The new log start offset of one partition. It is done when the low watermark has reached this offset."""

    __slots__ = ("_leader_epoch", "_live_brokers", "_required_offset", "code", "low_watermark", "partition")

    def __init__(self, partition: Partition, required_offset: int, live_brokers: LiveBrokers) -> None:
        self.partition = partition
        self._required_offset = required_offset
        self._leader_epoch = partition.leader_epoch
        self._live_brokers = live_brokers
        self.low_watermark = -1
        self.code: ErrorCode | None = None
        """The outcome of the deletion, or None until it has ended."""

    def settle(self) -> bool:
        """Checks the partition if the deletion has no outcome yet. Returns True if it has one now."""
        if self.code is None:
            self._look()
        return self.code is not None

    def _look(self) -> None:
        partition = self.partition
        leadership = partition.leadership
        if leadership is None or partition.leader_epoch != self._leader_epoch:
            self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        self.low_watermark = leadership.low_watermark(partition.log.log_start_offset, self._live_brokers())
        if self.low_watermark >= self._required_offset:
            self.code = ErrorCode.NONE


class DelayedDeleteRecords:
    """Calls `on_done` once, when all of `deletions` have an outcome."""

    __slots__ = ("_deletions", "_on_done")

    def __init__(self, deletions: Sequence[PendingRecordDeletion], on_done: Callable[[], None]) -> None:
        self._deletions = deletions
        self._on_done = on_done

    def try_complete(self) -> bool:
        settled = [deletion.settle() for deletion in self._deletions]
        if not all(settled):
            return False
        self._on_done()
        return True

    def on_expiration(self) -> None:
        for deletion in self._deletions:
            if not deletion.settle():
                deletion.code = ErrorCode.REQUEST_TIMED_OUT
        self._on_done()
