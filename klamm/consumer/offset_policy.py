"""The policy auto.offset.reset decides where a consumer begins, and continues when its position is not in the log:

earliest, latest         the start or the end of the log
nearest                  the start of the log if records were deleted or nothing is committed, the end if the log was
                         truncated (proposed for Kafka by KIP-842)
by_duration:<duration>   the first record of the last `duration` (KIP-1106), a duration of ISO 8601 such as `P1DT2H30M`
none                     the consumer raises an error

If the log was truncated before the position, the consumer goes back to the offset where the logs diverge (KIP-320). If
the policy is none, it raises an error instead."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from klamm.consumer.errors import LogTruncation, NoOffsetForPartitionError
from klamm.consumer.partition_state import Validation
from klamm.consumer.position_reset import LostPosition
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import ErrorCode
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from klamm.offsets import EpochEnd, OffsetAndMetadata

NONE: Final = "none"
NEAREST: Final = "nearest"
_ENDS: Final = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{0,9}))?S)?)?", re.ASCII | re.IGNORECASE
)


def parse_offset_reset(value: object) -> str:
    """Returns a value of auto.offset.reset unchanged. Raises ValueError that names the expected values."""
    if isinstance(value, str):
        if value in _ENDS or value in (NONE, NEAREST):
            return value
        if value.startswith(_BY_DURATION) and _duration_ms(value) is not None:
            return value
    raise ValueError(
        "one of earliest, latest, nearest, none or by_duration:<ISO 8601 duration>, such as by_duration:PT1H"
    )


def _duration_ms(reset: str) -> int | None:
    """Returns the milliseconds of `by_duration:PnDTnHnMn.nS`, or None if it does not parse. The syntax is that of
    Java's Duration.parse, without signs."""
    match = _DURATION.fullmatch(reset.removeprefix(_BY_DURATION))
    if match is None:
        return None
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups()[:4])
    millis = int((match[5] or "").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + millis


class OffsetPolicy:
    """Applies the policy to the subscription, or returns the error if the policy is none.

    `now_ms` is the time in milliseconds since the epoch."""

    def __init__(self, subscription: SubscriptionState, auto_offset_reset: str) -> None:
        self._subscription = subscription
        self._is_nearest = auto_offset_reset == NEAREST
        self._end = EARLIEST_TIMESTAMP if self._is_nearest else _ENDS.get(auto_offset_reset)
        self._duration_ms = _duration_ms(auto_offset_reset)

    def on_nothing_committed(self, partitions: Iterable[TopicPartition], now_ms: int) -> Exception | None:
        """Resets the positions of partitions without a committed offset. Returns the error to raise if the policy is
        none, otherwise None."""
        missing = list(partitions)
        timestamp_ms = self._timestamp_ms(now_ms)
        if timestamp_ms is None:
            return NoOffsetForPartitionError(missing) if missing else None
        for tp in missing:
            self._subscription.require(tp).request_reset(timestamp_ms)
        return None

    def on_out_of_range(self, tp: TopicPartition, lost: LostPosition, now_ms: int) -> Exception | None:
        """Resets a position that is out of the log's range. Returns the error to raise if the policy is none, otherwise
        None."""
        timestamp_ms = self._timestamp_ms(now_ms, was_cut=lost.is_beyond_the_end)
        if timestamp_ms is None:
            return ErrorCode.OFFSET_OUT_OF_RANGE.exception(
                f"position {lost.position} of {tp} is out of range and auto.offset.reset is none: seek, or set it"
            )
        self._subscription.require(tp).request_reset(timestamp_ms, lost)
        return None

    @property
    def resets(self) -> bool:
        """True if the policy is not none."""
        return self._end is not None or self._duration_ms is not None

    def on_epoch_end(self, tp: TopicPartition, asked: Validation, end: EpochEnd, now_ms: int) -> LogTruncation | None:
        """Validates a position. Continues there if the leader's log of its epoch reaches it, otherwise at the offset
        where the logs diverge.

        Returns the truncation, or None if there is none. Without a reset policy, the position then stays unvalidated.
        """
        subscription = self._subscription
        if not subscription.is_validating(tp, asked):
            return None
        if end.is_known and end.end_offset >= asked.position:
            # If the leader lacks the epoch but reaches the position, its record there has an earlier epoch.
            epoch = min(asked.leader_epoch, end.leader_epoch)
            subscription.complete_validation(tp, asked.position, epoch, current_leader_epoch=end.current_leader_epoch)
            return None
        divergent = OffsetAndMetadata(end.end_offset, "", end.leader_epoch) if end.is_known else None
        timestamp_ms = self._timestamp_ms(now_ms, was_cut=True)
        if timestamp_ms is not None and divergent is None:
            subscription.require(tp).request_reset(timestamp_ms, LostPosition(asked.position))
        elif divergent is not None and self.resets:
            subscription.complete_validation(
                tp, divergent.offset, divergent.leader_epoch, current_leader_epoch=end.current_leader_epoch
            )
        return LogTruncation(tp, asked.position, asked.leader_epoch, divergent)

    def _timestamp_ms(self, now_ms: int, *, was_cut: bool = False) -> int | None:
        """Returns the timestamp for ListOffsets whose offset is the new position, or None if the policy is none.
        `was_cut` means that the log has lost its end."""
        if self._is_nearest and was_cut:
            return LATEST_TIMESTAMP
        if self._duration_ms is None:
            return self._end
        return max(0, now_ms - self._duration_ms)  # Negative timestamps have special meanings.
