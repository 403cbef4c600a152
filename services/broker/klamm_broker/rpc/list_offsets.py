"""ListOffsets: the earliest and latest offset, the one of a timestamp, the one of the largest timestamp (KIP-734).

All of a log is local: the earliest local offset is the earliest one, and nothing is tiered or waits to be uploaded."""

from __future__ import annotations

from typing import Any

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
from klamm.wire.v1.broker_pb2 import ListedOffset, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse
from klamm_broker import metrics
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.rpc.isolation import reads_committed

_NOT_FOUND = (-1, -1, -1)


class ListOffsetsRpc:
    """Handles ListOffsets."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def list_offsets(self, request: ListOffsetsRequest, context: Any) -> ListOffsetsResponse:
        read_committed = reads_committed(request.isolation_level)
        return ListOffsetsResponse(partitions=[self._list(one, read_committed) for one in request.partitions])

    def _list(self, wanted: ListOffsetsPartition, read_committed: bool) -> ListedOffset:
        try:
            partition = self._replicas.leader(
                TopicPartition(wanted.topic, wanted.partition), wanted.current_leader_epoch
            )
            timestamp_ms, offset, leader_epoch = _find(partition, wanted.timestamp_ms, read_committed)
        except BrokerError as error:
            metrics.on_error("list_offsets", error.code)
            return _failed(wanted, error)
        return ListedOffset(
            topic=wanted.topic,
            partition=wanted.partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            leader_epoch=leader_epoch,
        )


def _find(partition: Partition, timestamp_ms: int, read_committed: bool) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch), each -1 where there is none."""
    end_offset = partition.readable_end_offset(read_committed=read_committed)
    if timestamp_ms == LATEST_TIMESTAMP:
        partition.check_high_watermark()
        return -1, end_offset, partition.leader_epoch
    if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return partition.log.earliest()
    if timestamp_ms in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return _NOT_FOUND
    if timestamp_ms == MAX_TIMESTAMP:
        hit = partition.log.find_max_timestamp()
    elif timestamp_ms >= 0:
        hit = partition.log.find_timestamp(timestamp_ms)
    else:
        raise ErrorCode.INVALID_REQUEST.exception(
            f"timestamp {timestamp_ms}; expected 0 or more, or one of Kafka's from -1 (latest) to -6"
        )
    if hit is not None and hit.offset < end_offset:
        return hit
    # What is not readable yet must not be named: the reader could not fetch it.
    partition.check_high_watermark()
    return _NOT_FOUND


def _failed(wanted: ListOffsetsPartition, error: BrokerError) -> ListedOffset:
    return ListedOffset(
        topic=wanted.topic,
        partition=wanted.partition,
        error_code=error.code,
        error_message=error.message,
        offset=-1,
        timestamp_ms=-1,
        leader_epoch=-1,
    )
