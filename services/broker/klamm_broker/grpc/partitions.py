"""Answers requests over gRPC about the partitions that this broker leads: ListOffsets, OffsetForLeaderEpoch,
DeleteRecords, DescribeProducers."""

from __future__ import annotations

from klamm.model import TopicPartition
from klamm.wire.calls import CallContext
from klamm.wire.v1 import broker_pb2 as pb
from klamm_broker.grpc.client_hosts import client_host
from klamm_broker.handlers.delete_records import DeletedRecords, DeleteRecordsHandler, RecordDeletion
from klamm_broker.handlers.describe_producers import DescribeProducersHandler, PartitionProducers
from klamm_broker.handlers.list_offsets import LateLookup, ListedOffset, ListOffsetsHandler, OffsetQuery
from klamm_broker.handlers.offset_for_leader_epoch import EpochEndOffset, EpochQuery, OffsetForLeaderEpochHandler
from klamm_broker.handlers.turns import TURN_PARTITIONS_MAX, end_long_turn
from klamm_broker.log.segment.check_budget import CheckBudget
from klamm_server.rpc.absent_fields import given, or_unknown
from klamm_server.runtime.sliced_work import map_in_slices


class PartitionsRpc:
    """Handles ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers. `request_timeout_ms` is the
    time-out of a deletion that names none."""

    def __init__(
        self,
        offsets: ListOffsetsHandler,
        epochs: OffsetForLeaderEpochHandler,
        deletions: DeleteRecordsHandler,
        producers: DescribeProducersHandler,
        *,
        request_timeout_ms: int,
    ) -> None:
        self._offsets = offsets
        self._epochs = epochs
        self._deletions = deletions
        self._producers = producers
        self._request_timeout_ms = request_timeout_ms

    async def list_offsets(self, request: pb.ListOffsetsRequest, context: object) -> pb.ListOffsetsResponse:
        budget = CheckBudget()
        begun: list[ListedOffset | LateLookup] = []
        for start in range(0, len(request.partitions) or 1, TURN_PARTITIONS_MAX):
            queries = (
                OffsetQuery(
                    partition.topic,
                    partition.partition,
                    partition.timestamp_ms,
                    or_unknown(partition, "current_leader_epoch"),
                )
                for partition in request.partitions[start : start + TURN_PARTITIONS_MAX]
            )
            begun += self._offsets.list_offsets(queries, isolation_level=request.isolation_level, budget=budget)
            await end_long_turn(request.partitions)
        listed = await self._offsets.finish(begun)
        return pb.ListOffsetsResponse(partitions=await map_in_slices(_listed, listed))

    async def offset_for_leader_epoch(
        self, request: pb.OffsetForLeaderEpochRequest, context: object
    ) -> pb.OffsetForLeaderEpochResponse:
        ends = self._epochs.offsets_for_leader_epochs(
            EpochQuery(
                partition.topic,
                partition.partition,
                or_unknown(partition, "current_leader_epoch"),
                partition.leader_epoch,
            )
            for partition in request.partitions
        )
        return pb.OffsetForLeaderEpochResponse(partitions=await map_in_slices(_epoch_end, ends))

    async def delete_records(self, request: pb.DeleteRecordsRequest, context: CallContext) -> pb.DeleteRecordsResponse:
        deletions = [
            RecordDeletion(partition.topic, partition.partition, partition.before_offset)
            for partition in request.partitions
        ]
        timeout_ms = given(request, "timeout_ms", self._request_timeout_ms)
        deleted = await self._deletions.delete_records(
            deletions, timeout_ms=timeout_ms, client_host=client_host(context)
        )
        return pb.DeleteRecordsResponse(partitions=await map_in_slices(_deleted, deleted))

    async def describe_producers(
        self, request: pb.DescribeProducersRequest, context: object
    ) -> pb.DescribeProducersResponse:
        named = (TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions)
        described = await map_in_slices(self._producers.describe, named)
        return pb.DescribeProducersResponse(partitions=await map_in_slices(_producers, described))


def _listed(listed: ListedOffset) -> pb.ListedOffset:
    # One request may need thousands of them, and unpacking is fast.
    topic, partition, error_code, error_message, offset, timestamp_ms, leader_epoch = listed
    return pb.ListedOffset(
        topic=topic,
        partition=partition,
        error_code=error_code,
        error_message=error_message,
        offset=offset,
        timestamp_ms=timestamp_ms,
        leader_epoch=leader_epoch,
    )


def _epoch_end(epoch_end: EpochEndOffset) -> pb.EpochEnd:
    return pb.EpochEnd(**epoch_end._asdict())


def _deleted(deleted: DeletedRecords) -> pb.DeletedRecords:
    return pb.DeletedRecords(**deleted._asdict())


def _producers(described: PartitionProducers) -> pb.PartitionProducers:
    return pb.PartitionProducers(
        topic=described.topic,
        partition=described.partition,
        error_code=described.error_code,
        error_message=described.error_message,
        producers=[
            pb.ProducerDescription(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp_ms=producer.last_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
            for producer in described.producers
        ],
    )
