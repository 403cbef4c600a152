"""Where a partition begins, and what happens when its position is not there any more: auto.offset.reset."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.consumer.errors import NoOffsetForPartitionError
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import ErrorCode
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

_TIMESTAMPS = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP, "none": None}


class OffsetPolicy:
    """Applies the policy to the subscription, or gives the error that a policy of none means."""

    def __init__(self, subscription: SubscriptionState, auto_offset_reset: str) -> None:
        self._subscription = subscription
        self._timestamp_ms = _TIMESTAMPS[auto_offset_reset]

    def on_nothing_committed(self, partitions: Iterable[TopicPartition]) -> Exception | None:
        """The error to raise, when there is one."""
        missing = list(partitions)
        if self._timestamp_ms is None:
            return NoOffsetForPartitionError(missing) if missing else None
        for tp in missing:
            self._subscription.request_reset(tp, self._timestamp_ms)
        return None

    def on_out_of_range(self, tp: TopicPartition, position: int) -> Exception | None:
        """The error to raise, when there is one."""
        if self._timestamp_ms is None:
            return ErrorCode.OFFSET_OUT_OF_RANGE.exception(
                f"position {position} of {tp} is out of range and auto.offset.reset is none: seek, or set it"
            )
        self._subscription.request_reset(tp, self._timestamp_ms)
        return None
