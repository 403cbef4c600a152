"""A produce with acks=all that waits until every in-sync replica has its records.

Kafka's `DelayedProduce`. Each appended partition is settled by itself: by the high watermark passing its
records, by losing the leadership they were appended under, or by the time-out. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klamm.errors import ErrorCode
from klamm_broker.replica.partition import Partition


class PendingAppend:
    """One partition's records, appended under `leader_epoch`, done when `required_offset` is committed."""

    __slots__ = ("_leader_epoch", "code", "partition", "required_offset")

    def __init__(self, partition: Partition, required_offset: int) -> None:
        self.partition = partition
        self.required_offset = required_offset
        self._leader_epoch = partition.leader_epoch
        self.code: ErrorCode | None = None
        """How it ended, once it has."""

    def settle(self) -> bool:
        """Whether it has ended."""
        if self.code is None:
            self.code = self._outcome()
        return self.code is not None

    def _outcome(self) -> ErrorCode | None:
        partition = self.partition
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition.high_watermark < self.required_offset:
            return None
        # The records are committed, but to fewer replicas than were there when they were accepted.
        return ErrorCode.NONE if partition.has_min_isr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class DelayedProduce:
    """Calls `on_done` once, when all of `appends` have ended."""

    __slots__ = ("_appends", "_on_done")

    def __init__(self, appends: Sequence[PendingAppend], on_done: Callable[[], None]) -> None:
        self._appends = appends
        self._on_done = on_done

    def try_complete(self) -> bool:
        # Every one is asked, not only up to the first that waits: an outcome is what held when it was reached.
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
