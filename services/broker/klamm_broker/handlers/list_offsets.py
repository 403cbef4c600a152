"""ListOffsets: finds the earliest or latest offset, the offset of a timestamp, or the offset of the largest timestamp
(KIP-734).

Klamm has no tiered storage, so the earliest local offset is the earliest offset, and no segment waits for an upload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klamm.acls import AclOperation
from klamm.errors import BrokerError, ErrorCode
from klamm.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    TopicPartition,
)
from klamm_broker.handlers.isolation import reads_committed
from klamm_broker.handlers.topic_rights import require_topic
from klamm_broker.io import metrics
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager

_NOT_FOUND = (-1, -1, -1)


class OffsetQuery(NamedTuple):
    """The partition and the timestamp whose offset is requested. Negative timestamps are Kafka's special values."""

    topic: str
    partition: int
    timestamp_ms: int
    current_leader_epoch: int = -1


class ListedOffset(NamedTuple):
    """The answer for one partition. A field is -1 if it has no value."""

    topic: str
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


class ListOffsetsHandler:
    """Handles ListOffsets requests of both protocols."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def list_offsets(self, queries: Iterable[OffsetQuery], *, isolation_level: int) -> list[ListedOffset]:
        """Returns one answer per query, in the same order. Raises InvalidRequestError for an unknown isolation
        level."""
        read_committed = reads_committed(isolation_level)
        return [self._list(one, read_committed) for one in queries]

    def _list(self, wanted: OffsetQuery, read_committed: bool) -> ListedOffset:
        try:
            require_topic(AclOperation.DESCRIBE, wanted.topic)
            partition = self._replicas.leader(
                TopicPartition(wanted.topic, wanted.partition), wanted.current_leader_epoch
            )
            timestamp_ms, offset, leader_epoch = _find(partition, wanted.timestamp_ms, read_committed)
        except BrokerError as error:
            metrics.on_error("list_offsets", error.code)
            return ListedOffset(wanted.topic, wanted.partition, error.code, error.message)
        return ListedOffset(
            wanted.topic, wanted.partition, offset=offset, timestamp_ms=timestamp_ms, leader_epoch=leader_epoch
        )


def _find(partition: Partition, timestamp_ms: int, read_committed: bool) -> tuple[int, int, int]:
    """Returns (timestamp in milliseconds, offset, leader epoch). A value is -1 if there is none. Raises BrokerError."""
    end_offset = partition.readable_end_offset(read_committed=read_committed)
    if timestamp_ms == LATEST_TIMESTAMP:
        partition.check_high_watermark()
        return -1, end_offset, partition.leader_epoch
    if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return partition.log.reader.earliest()
    if timestamp_ms in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return _NOT_FOUND
    if timestamp_ms == MAX_TIMESTAMP:
        hit = partition.log.reader.find_max_timestamp()
    elif timestamp_ms >= 0:
        hit = partition.log.reader.find_timestamp(timestamp_ms)
    else:
        raise ErrorCode.INVALID_REQUEST.exception(
            f"timestamp is {timestamp_ms}; expected 0 or more, or a special value from -1 (latest) to -6"
        )
    if hit is not None and hit.offset < end_offset:
        return hit
    # Do not return an offset that is not readable yet, because the reader could not fetch it.
    partition.check_high_watermark()
    return _NOT_FOUND
