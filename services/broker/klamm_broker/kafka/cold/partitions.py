"""Answers requests about the partitions that this broker leads: ListOffsets, OffsetForLeaderEpoch, DeleteRecords,
DescribeProducers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any, Final

from klamm.errors import ErrorCode
from klamm.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    TopicPartition,
)
from klamm_broker.handlers.delete_records import DeletedRecords, DeleteRecordsHandler, RecordDeletion
from klamm_broker.handlers.describe_producers import DescribeProducersHandler, PartitionProducers
from klamm_broker.handlers.list_offsets import LateLookup, ListedOffset, ListOffsetsHandler, OffsetQuery
from klamm_broker.handlers.offset_for_leader_epoch import EpochEndOffset, EpochQuery, OffsetForLeaderEpochHandler
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields, milliseconds
from klamm_broker.kafka.cold.groups import by_topic
from klamm_broker.kafka.requests import Request

_ANSWERED_SINCE: Final = {
    EARLIEST_TIMESTAMP: 1,
    LATEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""The first version of ListOffsets with each special timestamp (KIP-734, 405, 1005, 1023)."""
_KNOWS_OFFSET_NOT_AVAILABLE: Final = 5
"""The first version of ListOffsets whose clients know OFFSET_NOT_AVAILABLE (KIP-207)."""


_QUERIES_PER_STEP: Final = 50
"""The queries of a ListOffsets that are looked up in one step. One can take as long as a read from a disk."""
_PARTITIONS_PER_STEP: Final = 500
"""The partitions of a ListOffsets that are read or answered in one step."""


@api(ApiKey.LIST_OFFSETS, Versions(1, 11, flexible=6), rights_of="Broker/ListOffsets")
def list_offsets(
    request: Request, body: Any, handler: ListOffsetsHandler
) -> Generator[None, None, Sequence[ListedOffset | LateLookup]]:
    """Looks up the offsets. Yields after each step."""
    named = Counter((topic.name, partition.partition_index) for topic in body.topics for partition in topic.partitions)
    looked_up, listed = [], []
    for topic in body.topics:
        for partition in topic.partitions:
            ask = OffsetQuery(
                topic.name,
                partition.partition_index,
                partition.timestamp,
                getattr(partition, "current_leader_epoch", -1),
            )
            code = _list_offsets_error(ask, request.version, named)
            if not code:
                looked_up.append(ask)
            listed.append(ListedOffset(ask.topic, ask.partition, code))
            if not len(listed) % _PARTITIONS_PER_STEP:
                yield
    isolation_level = getattr(body, "isolation_level", 0)
    answers = handler.list_offsets(looked_up[:_QUERIES_PER_STEP], isolation_level=isolation_level)
    for first in range(_QUERIES_PER_STEP, len(looked_up), _QUERIES_PER_STEP):
        yield
        answers += handler.list_offsets(looked_up[first : first + _QUERIES_PER_STEP], isolation_level=isolation_level)
    found = iter(answers)
    return [answer if answer.error_code else next(found) for answer in listed]


def listed_fields(results: Sequence[ListedOffset], version: int) -> Generator[None, None, Fields]:
    """Returns the fields of the answer. Yields after each step."""
    fields = []
    for result in results:
        fields.append(_listed_offset(result, version))
        if not len(fields) % _PARTITIONS_PER_STEP:
            yield
    described = iter(fields)
    return {"topics": by_topic(results, lambda _: next(described))}


def _list_offsets_error(query: OffsetQuery, version: int, named: Counter[tuple[str, int]]) -> ErrorCode:
    """Returns the error with which Kafka refuses a query before it reads the partition."""
    if named[query.topic, query.partition] > 1:
        return ErrorCode.INVALID_REQUEST
    if query.timestamp_ms < 0 and version < _ANSWERED_SINCE.get(query.timestamp_ms, version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


@api(ApiKey.OFFSET_FOR_LEADER_EPOCH, Versions(2, 4, flexible=4), rights_of="Broker/OffsetForLeaderEpoch")
async def offset_for_leader_epoch(request: Request, body: Any, handler: OffsetForLeaderEpochHandler) -> Fields:
    ends = handler.offsets_for_leader_epochs(
        EpochQuery(topic.topic, partition.partition, partition.current_leader_epoch, partition.leader_epoch)
        for topic in body.topics
        for partition in topic.partitions
    )
    return {"topics": by_topic(ends, _epoch_end)}


@api(ApiKey.DELETE_RECORDS, Versions(0, 2, flexible=2), rights_of="Broker/DeleteRecords")
async def delete_records(request: Request, body: Any, handler: DeleteRecordsHandler) -> Fields:
    deletions = [
        RecordDeletion(topic.name, partition.partition_index, partition.offset)
        for topic in body.topics
        for partition in topic.partitions
    ]
    deleted = await handler.delete_records(
        deletions, timeout_ms=milliseconds(body.timeout), client_host=lambda: request.client_host
    )
    return {"topics": by_topic(deleted, _deleted)}


@api(ApiKey.DESCRIBE_PRODUCERS, Versions(0, 0, flexible=0), rights_of="Broker/DescribeProducers")
async def describe_producers(request: Request, body: Any, handler: DescribeProducersHandler) -> Fields:
    """Describes the producers that a partition's leader remembers, with their open transactions (KIP-664)."""
    described = handler.describe_producers(
        TopicPartition(topic.name, number) for topic in body.topics for number in topic.partition_indexes
    )
    return {"topics": by_topic(described, _producers)}


def _listed_offset(found: ListedOffset, version: int) -> Fields:
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


def _epoch_end(found: EpochEndOffset) -> Fields:
    return {
        "error_code": found.error_code,
        "partition": found.partition,
        "leader_epoch": found.leader_epoch,
        "end_offset": found.end_offset,
    }


def _producers(found: PartitionProducers) -> Fields:
    return {
        "partition_index": found.partition,
        "error_code": found.error_code,
        "error_message": found.error_message or None,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_ms,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.txn_first_offset,
            }
            for producer in found.producers
        ],
    }


def _deleted(result: DeletedRecords) -> Fields:
    return {
        "partition_index": result.partition,
        "low_watermark": result.low_watermark,
        "error_code": result.error_code,
    }
