"""Tests markers that an operator writes: to this broker's partitions, and to groups through their coordinators."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.common_pb2 import PartitionResult, WriteTxnMarkersRequest, WriteTxnMarkersResponse, WrittenTxnMarker
from klamm_broker.handlers.parkers import ClientHost
from klamm_broker.handlers.write_txn_markers import MarkedPartition, MarkerToWrite
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.cold.txn_markers import write_txn_markers
from tests.support.cold_requests import ScriptedCoordinators, answer_of

OFFSETS = "__consumer_offsets"


def written(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Writes the marker to partition 0. Other brokers lead the other partitions, and shard 9 is loading."""
    codes = {0: ErrorCode.NONE, 9: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    answers = [
        WrittenTxnMarker(
            producer_id=marker.producer_id,
            partitions=[
                PartitionResult(
                    topic=topic.topic,
                    partition=number,
                    error_code=codes.get(number, ErrorCode.NOT_LEADER_OR_FOLLOWER),
                )
                for topic in marker.topics
                for number in topic.partitions
            ],
        )
        for marker in request.markers
    ]
    return WriteTxnMarkersResponse(markers=answers)


class ScriptedMarkers:
    """Keeps the markers that it receives."""

    def __init__(self) -> None:
        self.given: list[MarkerToWrite] = []

    async def write_txn_markers(
        self, markers: list[MarkerToWrite], client_host: ClientHost
    ) -> list[list[MarkedPartition]]:
        self.given += markers
        not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return [
            [
                MarkedPartition(*partition, not_leader if partition.partition else ErrorCode.NONE)
                for partition in marker.partitions
            ]
            for marker in markers
        ]


def marker(producer_id: int, epoch: int, **topics: list[int]) -> dict[str, Any]:
    return {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": False,
        "coordinator_epoch": 3,
        "transaction_version": 2,
        "topics": [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()],
    }


@pytest.mark.parametrize("version", [1, 2])
def test_markers_are_written_where_they_belong_and_answered_by_producer(version: int) -> None:
    handler, coordinators = ScriptedMarkers(), ScriptedCoordinators({"write_txn_markers": written})
    handle = partial(write_txn_markers, handler=handler, coordinators=coordinators)
    asked = [marker(7, 4, flights=[0, 1]), marker(7, 4, **{OFFSETS: [0, 9]}), marker(8, 0, flights=[0])]
    answer = asyncio.run(answer_of(handle, ApiKey.WRITE_TXN_MARKERS, version, {"markers": asked}))
    codes = {
        one.producer_id: {
            (topic.name, part.partition_index): int(part.error_code)
            for topic in one.topics
            for part in topic.partitions
        }
        for one in answer.markers
    }
    not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert codes == {
        7: {("flights", 0): 0, ("flights", 1): not_leader, (OFFSETS, 0): 0, (OFFSETS, 9): not_leader},
        8: {("flights", 0): 0},
    }
    here = [one.end[:4] for one in handler.given]
    assert here == [(7, 4, False, 3), (7, 4, False, 3), (8, 0, False, 3)]
    assert {partition.topic for one in handler.given for partition in one.partitions} == {"flights"}
    assert {one.end.transaction_version for one in handler.given} == {2 if version >= 2 else 0}
    shards = [
        (one.topics[0].topic, list(one.topics[0].partitions)) for _, ask in coordinators.asked for one in ask.markers
    ]
    assert shards == [(OFFSETS, [0]), (OFFSETS, [9])]
