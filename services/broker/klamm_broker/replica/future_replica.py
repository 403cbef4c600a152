"""Copies a log to another log directory of the same broker, to replace the current log there (KIP-113).

Kafka's `ReplicaAlterLogDirsThread`. The copy follows the current log as a follower follows its leader, with the same
core (`FollowerPartition`). If the current log was truncated and written again, the epochs show where the two logs
diverge. The copied records never reach beyond the end that the current log had when it was read. Pure, except for the
logs.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.errors import ErrorCode
from klamm.model import NO_LEADER_EPOCH
from klamm.records.header import Buffer
from klamm.setting import INT_MAX
from klamm_broker.log.partition.log_segments import LocatedRecords
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.replica.follower_partition import FollowerPartition, FollowerUpdate, LeaderAnswer, LogEpochEnd


class NextPart(NamedTuple):
    """The next part of the log to copy."""

    answer: LeaderAnswer
    """The answer that a leader would send, without the records."""
    located: LocatedRecords | None
    """The location of the records, or None if there are none."""


class FutureReplica:
    """Copies a log. The caller repeats `next_part`, reads its records and calls `take`, until `is_caught_up`."""

    def __init__(self, current: PartitionLog, future: PartitionLog) -> None:
        self._current = current
        self._future = future
        # The current log may have records of any epoch.
        self._follower = FollowerPartition(future, leader_epoch=INT_MAX)

    @property
    def is_caught_up(self) -> bool:
        """True if the two logs are equal. The caller may swap them in the same turn of the event loop."""
        current, future = self._current, self._future
        return (
            future.log_end_offset == current.log_end_offset
            and future.log_start_offset == current.log_start_offset
            and self._divergence() is None
        )

    def next_part(self, max_bytes: int) -> NextPart:
        """Locates the next part, of at most `max_bytes` unless the first batch is larger. Raises as
        `LogReader.locate`."""
        current, offset = self._current, self._future.log_end_offset
        self._future.config = current.config
        diverging = self._divergence()
        located = None
        is_out_of_range = not current.log_start_offset <= offset <= current.log_end_offset
        if diverging is None and not is_out_of_range:
            located = current.reader.locate(offset, max_bytes)
        answer = LeaderAnswer(
            error_code=ErrorCode.OFFSET_OUT_OF_RANGE if is_out_of_range and diverging is None else ErrorCode.NONE,
            fetch_offset=offset,
            high_watermark=0,
            log_start_offset=current.log_start_offset,
            log_end_offset=current.log_end_offset,
            records=b"",
            diverging=diverging,
        )
        return NextPart(answer, located)

    def take(self, part: NextPart, records: Buffer, *, high_watermark: int, now_ms: int) -> FollowerUpdate:
        """Applies a part to the future log, with the partition's high watermark. Raises as
        `FollowerPartition.on_answer`."""
        answer = part.answer._replace(records=records)
        return self._follower.on_answer(answer, high_watermark=high_watermark, now_ms=now_ms)

    def _divergence(self) -> LogEpochEnd | None:
        """Returns where the logs diverge if the future log's last record is not in the current log, otherwise None."""
        current, offset = self._current, self._future.log_end_offset
        epoch = self._future.epochs.latest_epoch
        if epoch == NO_LEADER_EPOCH or offset < current.log_start_offset:
            return None
        end = LogEpochEnd(*current.epochs.end_offset_for(epoch, current.log_end_offset))
        if end.epoch == NO_LEADER_EPOCH:
            end = LogEpochEnd(NO_LEADER_EPOCH, current.log_end_offset)
            return end if end.end_offset < offset else None
        return None if end.epoch == epoch and end.end_offset >= offset else end
