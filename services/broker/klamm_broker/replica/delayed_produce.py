"""A produce that waits until its records may be acknowledged.

Kafka's `DelayedProduce`. With acks=all, every in-sync replica must have the records. With acks=1, this broker must have
synced them, if `flush.messages` requires that. Each partition gets its own outcome. It also ends when this broker loses
the leadership under which it appended, when the log directory fails, or at the time-out. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klamm.errors import ErrorCode
from klamm_broker.replica.partition import Partition


class PendingAppend:
    """The records of one partition, appended with acks=all under `_leader_epoch`. The append is done when the high
    watermark is `required_offset`."""

    __slots__ = ("_leader_epoch", "code", "partition", "required_offset")

    def __init__(self, partition: Partition, required_offset: int) -> None:
        self.partition = partition
        self.required_offset = required_offset
        self._leader_epoch = partition.leader_epoch
        self.code: ErrorCode | None = None
        """The outcome of the append, or None until it has ended."""

    def settle(self) -> bool:
        """Checks the partition if the append has no outcome yet. Returns True if it has one now."""
        if self.code is None:
            self.code = self._outcome()
        return self.code is not None

    def _outcome(self) -> ErrorCode | None:
        partition = self.partition
        if partition.log.log_dir.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self._outcome_of_leader()

    def _outcome_of_leader(self) -> ErrorCode | None:
        partition = self.partition
        if partition.high_watermark < self.required_offset:
            return None
        # The records are committed, but the in-sync set has become smaller than min.insync.replicas since the append.
        return ErrorCode.NONE if partition.has_min_isr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class PendingSync(PendingAppend):
    """The records of one partition, appended with acks=1. The append is done when this broker may acknowledge
    `required_offset`."""

    __slots__ = ()

    def _outcome_of_leader(self) -> ErrorCode | None:
        acknowledgeable_offset = self.partition.log.flusher.acknowledgeable_offset
        return None if acknowledgeable_offset < self.required_offset else ErrorCode.NONE


class DelayedProduce:
    """Calls `on_done` once, when all of `appends` have an outcome."""

    __slots__ = ("_appends", "_on_done")

    def __init__(self, appends: Sequence[PendingAppend], on_done: Callable[[], None]) -> None:
        self._appends = appends
        self._on_done = on_done

    def try_complete(self) -> bool:
        # Check every append, even after one that waits, because a later check might find another outcome.
        settled = [append.settle() for append in self._appends]
        if not all(settled):
            return False
        self._on_done()
        return True

    def on_expiration(self) -> None:
        for append in self._appends:
            if not append.settle():
                append.code = ErrorCode.REQUEST_TIMED_OUT
        self._on_done()
