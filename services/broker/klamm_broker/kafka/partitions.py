"""Questions about the partitions this broker leads: ListOffsets, OffsetForLeaderEpoch, DeleteRecords,
DescribeProducers."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Final

from klamm.errors import ErrorCode
from klamm.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from klamm.wire.v1 import broker_pb2 as pb
from klamm.wire.v1.common_pb2 import TopicPartitions
from klamm_broker.kafka.groups import by_topic
from klamm_broker.kafka.messages import Fields, milliseconds
from klamm_broker.kafka.requests import Request
from klamm_broker.rpc.delete_records import DeleteRecordsRpc
from klamm_broker.rpc.describe_producers import DescribeProducersRpc
from klamm_broker.rpc.list_offsets import ListOffsetsRpc
from klamm_broker.rpc.offset_for_leader_epoch import OffsetForLeaderEpochRpc

_ANSWERED_SINCE: Final = {
    EARLIEST_TIMESTAMP: 1,
    LATEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""From which version of ListOffsets on a timestamp below zero has its meaning (KIP-734, 405, 1005, 1023)."""
_KNOWS_OFFSET_NOT_AVAILABLE: Final = 5
"""Version of ListOffsets (KIP-207)."""


async def list_offsets(request: Request, wanted: Any, handler: ListOffsetsRpc) -> Fields:
    named = Counter((topic.name, one.partition_index) for topic in wanted.topics for one in topic.partitions)
    looked_up, listed = [], []
    for topic in wanted.topics:
        for one in topic.partitions:
            ask = pb.ListOffsetsPartition(
                topic=topic.name,
                partition=one.partition_index,
                timestamp_ms=one.timestamp,
                current_leader_epoch=getattr(one, "current_leader_epoch", -1),
            )
            code = _list_offsets_error(ask, request.version, named)
            if not code:
                looked_up.append(ask)
            listed.append(
                pb.ListedOffset(
                    topic=ask.topic,
                    partition=ask.partition,
                    error_code=code,
                    offset=-1,
                    timestamp_ms=-1,
                    leader_epoch=-1,
                )
            )
    isolation_level = getattr(wanted, "isolation_level", 0)
    asked = pb.ListOffsetsRequest(isolation_level=isolation_level, partitions=looked_up)
    found = iter((await handler.list_offsets(asked, None)).partitions)
    results = [one if one.error_code else next(found) for one in listed]
    return {"topics": by_topic(results, partial(_listed_offset, version=request.version))}


def _list_offsets_error(one: pb.ListOffsetsPartition, version: int, named: Counter[tuple[str, int]]) -> ErrorCode:
    """What Kafka refuses before it looks at the partition."""
    if named[one.topic, one.partition] > 1:
        return ErrorCode.INVALID_REQUEST
    if one.timestamp_ms < 0 and version < _ANSWERED_SINCE.get(one.timestamp_ms, version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


async def offset_for_leader_epoch(request: Request, wanted: Any, handler: OffsetForLeaderEpochRpc) -> Fields:
    ask = pb.OffsetForLeaderEpochRequest(
        partitions=[
            pb.EpochQuery(
                topic=topic.topic,
                partition=one.partition,
                current_leader_epoch=one.current_leader_epoch,
                leader_epoch=one.leader_epoch,
            )
            for topic in wanted.topics
            for one in topic.partitions
        ]
    )
    answer = await handler.offset_for_leader_epoch(ask, None)
    return {"topics": by_topic(answer.partitions, _epoch_end)}


async def delete_records(request: Request, wanted: Any, handler: DeleteRecordsRpc) -> Fields:
    ask = pb.DeleteRecordsRequest(
        timeout_ms=milliseconds(wanted.timeout),
        partitions=[
            pb.DeleteRecordsPartition(topic=topic.name, partition=one.partition_index, before_offset=one.offset)
            for topic in wanted.topics
            for one in topic.partitions
        ],
    )
    answer = await handler.delete_records(ask, None)
    return {"topics": by_topic(answer.partitions, _deleted)}


async def describe_producers(request: Request, wanted: Any, handler: DescribeProducersRpc) -> Fields:
    """Who has written, and whose transactions are open (KIP-664)."""
    ask = pb.DescribeProducersRequest(
        topics=[TopicPartitions(topic=topic.name, partitions=topic.partition_indexes) for topic in wanted.topics]
    )
    answer = await handler.describe_producers(ask, None)
    return {"topics": by_topic(answer.partitions, _producers)}


def _listed_offset(found: pb.ListedOffset, version: int) -> Fields:
    code = found.error_code
    if code == ErrorCode.OFFSET_NOT_AVAILABLE and version < _KNOWS_OFFSET_NOT_AVAILABLE:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return {
        "partition_index": found.partition,
        "error_code": code,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


def _epoch_end(found: pb.EpochEnd) -> Fields:
    return {
        "error_code": found.error_code,
        "partition": found.partition,
        "leader_epoch": found.leader_epoch,
        "end_offset": found.end_offset,
    }


def _producers(found: pb.PartitionProducers) -> Fields:
    return {
        "partition_index": found.partition,
        "error_code": found.error_code,
        "error_message": found.error_message or None,
        "active_producers": [
            {
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "last_sequence": one.last_sequence,
                "last_timestamp": one.last_timestamp_ms,
                "coordinator_epoch": one.coordinator_epoch,
                "current_txn_start_offset": one.current_txn_start_offset,
            }
            for one in found.producers
        ],
    }


def _deleted(result: pb.DeletedRecords) -> Fields:
    return {
        "partition_index": result.partition,
        "low_watermark": result.low_watermark,
        "error_code": result.error_code,
    }
