"""Questions about the partitions this broker leads: ListOffsets, OffsetForLeaderEpoch, DeleteRecords,
DescribeProducers."""

from __future__ import annotations

from typing import Any

from klamm.wire.v1 import broker_pb2 as pb
from klamm.wire.v1.common_pb2 import TopicPartitions
from klamm_broker.kafka.groups import by_topic
from klamm_broker.kafka.messages import Fields, milliseconds
from klamm_broker.kafka.requests import Request
from klamm_broker.rpc.delete_records import DeleteRecordsRpc
from klamm_broker.rpc.describe_producers import DescribeProducersRpc
from klamm_broker.rpc.list_offsets import ListOffsetsRpc
from klamm_broker.rpc.offset_for_leader_epoch import OffsetForLeaderEpochRpc


async def list_offsets(request: Request, wanted: Any, handler: ListOffsetsRpc) -> Fields:
    ask = pb.ListOffsetsRequest(
        isolation_level=getattr(wanted, "isolation_level", 0),
        partitions=[
            pb.ListOffsetsPartition(
                topic=topic.name,
                partition=one.partition_index,
                timestamp_ms=one.timestamp,
                current_leader_epoch=getattr(one, "current_leader_epoch", -1),
            )
            for topic in wanted.topics
            for one in topic.partitions
        ],
    )
    answer = await handler.list_offsets(ask, None)
    return {"topics": by_topic(answer.partitions, _listed_offset)}


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


def _listed_offset(found: pb.ListedOffset) -> Fields:
    return {
        "partition_index": found.partition,
        "error_code": found.error_code,
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
