"""Tests that each field of these four calls reaches the handler, and each field of its answers the client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm.wire.v1 import broker_pb2 as pb
from klamm.wire.v1.common_pb2 import TopicPartitions
from klamm_broker.grpc.partitions import PartitionsRpc
from klamm_broker.handlers.delete_records import DeletedRecords, RecordDeletion
from klamm_broker.handlers.describe_producers import PartitionProducers
from klamm_broker.handlers.list_offsets import ListedOffset, OffsetQuery
from klamm_broker.handlers.offset_for_leader_epoch import EpochEndOffset, EpochQuery
from klamm_broker.log.producers.producer_state import ProducerDescription

REQUEST_TIMEOUT_MS = 30_000


class Scripted:
    """A handler that records its calls under the names of its methods, and gives the prepared answers."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.given: list[Any] = []
        self.terms: dict[str, int] = {}

    def list_offsets(self, queries: Iterable[Any], **terms: Any) -> list[Any]:
        self.given, self.terms = [*self.given, *queries], terms
        return self.answers

    def describe(self, name: Any) -> Any:
        self.given.append(name)
        return self.answers[len(self.given) - 1]

    async def finish(self, answers: list[Any]) -> list[Any]:
        return answers

    offsets_for_leader_epochs = list_offsets

    async def delete_records(self, deletions: Iterable[Any], **terms: int) -> list[Any]:
        return self.list_offsets(deletions, **terms)


def rpc(handler: Any) -> PartitionsRpc:
    return PartitionsRpc(handler, handler, handler, handler, request_timeout_ms=REQUEST_TIMEOUT_MS)


def test_list_offsets_passes_every_field_of_the_request_and_the_response() -> None:
    handler = Scripted(
        [
            ListedOffset("flights", 2, offset=5, timestamp_ms=6, leader_epoch=7),
            ListedOffset("w", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no"),
        ]
    )
    asked = pb.ListOffsetsPartition(topic="flights", partition=2, timestamp_ms=-3, current_leader_epoch=4)
    request = pb.ListOffsetsRequest(isolation_level=1, partitions=[asked])
    found = asyncio.run(rpc(handler).list_offsets(request, None)).partitions
    assert handler.given == [OffsetQuery("flights", 2, -3, 4)]
    assert handler.terms["isolation_level"] == 1
    assert list(found) == [
        pb.ListedOffset(topic="flights", partition=2, offset=5, timestamp_ms=6, leader_epoch=7),
        pb.ListedOffset(topic="w", error_code=3, error_message="no", offset=-1, timestamp_ms=-1, leader_epoch=-1),
    ]


def test_offset_for_leader_epoch_passes_every_field_of_the_request_and_the_response() -> None:
    handler = Scripted([EpochEndOffset("flights", 2, leader_epoch=3, end_offset=9)])
    asked = pb.EpochQuery(topic="flights", partition=2, current_leader_epoch=5, leader_epoch=4)
    request = pb.OffsetForLeaderEpochRequest(partitions=[asked])
    found = asyncio.run(rpc(handler).offset_for_leader_epoch(request, None)).partitions
    assert handler.given == [EpochQuery("flights", 2, 5, 4)]
    assert list(found) == [pb.EpochEnd(topic="flights", partition=2, leader_epoch=3, end_offset=9)]


def test_delete_records_passes_every_field_of_the_request_and_the_response() -> None:
    handler = Scripted([DeletedRecords("flights", 2, low_watermark=8)])
    asked = pb.DeleteRecordsPartition(topic="flights", partition=2, before_offset=-1)
    request = pb.DeleteRecordsRequest(timeout_ms=100, partitions=[asked])
    found = asyncio.run(rpc(handler).delete_records(request, None)).partitions
    assert handler.given == [RecordDeletion("flights", 2, -1)]
    assert handler.terms.keys() == {"timeout_ms", "client_host"}
    assert handler.terms["timeout_ms"] == 100
    assert list(found) == [pb.DeletedRecords(topic="flights", partition=2, low_watermark=8)]


def test_describe_producers_passes_every_field_of_the_request_and_the_response() -> None:
    producers = [ProducerDescription(1, 2, 3, 4, 5, 6)]
    handler = Scripted([PartitionProducers("flights", 2, producers=producers), PartitionProducers("flights", 3)])
    request = pb.DescribeProducersRequest(topics=[TopicPartitions(topic="flights", partitions=[2, 3])])
    found = asyncio.run(rpc(handler).describe_producers(request, None)).partitions
    assert handler.given == [TopicPartition("flights", 2), TopicPartition("flights", 3)]
    described = pb.ProducerDescription(
        producer_id=1,
        producer_epoch=2,
        last_sequence=3,
        last_timestamp_ms=4,
        coordinator_epoch=5,
        current_txn_start_offset=6,
    )
    assert list(found) == [
        pb.PartitionProducers(topic="flights", partition=2, producers=[described]),
        pb.PartitionProducers(topic="flights", partition=3),
    ]


def test_delete_records_without_a_timeout_waits_for_the_brokers_timeout() -> None:
    handler = Scripted([])
    for request in (pb.DeleteRecordsRequest(), pb.DeleteRecordsRequest(timeout_ms=0)):
        asyncio.run(rpc(handler).delete_records(request, None))
        waits = 0 if request.HasField("timeout_ms") else REQUEST_TIMEOUT_MS
        assert handler.terms["timeout_ms"] == waits
