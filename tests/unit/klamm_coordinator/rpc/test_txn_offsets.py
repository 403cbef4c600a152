"""Tests that a coordinator writes few of very many transaction markers at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

from klamm.errors import ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.wire.v1.common_pb2 import TopicPartitions, TxnMarker, WriteTxnMarkersRequest
from klamm_coordinator.offsets.messages import EndTransactionReply
from klamm_coordinator.rpc.txn_offsets import MARKERS_AT_ONCE, TxnOffsetsRpc

NOTHING: Any = None


class CountingShards:
    """Shards that end transactions after some turns, and count how many they end at the same time."""

    def __init__(self) -> None:
        self.running = self.most = 0

    def of_number(self, number: int) -> CountingShards:
        return self

    async def ask(self, message: Any) -> EndTransactionReply:
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(3):
            await asyncio.sleep(0)
        self.running -= 1
        code = ErrorCode.INVALID_PRODUCER_EPOCH if message(1).producer.producer_id == 7 else ErrorCode.NONE
        return EndTransactionReply(error=code)


def test_few_of_very_many_markers_are_written_at_the_same_time() -> None:
    shards: Any = CountingShards()
    numbers = list(range(MARKERS_AT_ONCE))
    request = WriteTxnMarkersRequest(
        markers=[
            TxnMarker(
                producer_id=producer_id,
                committed=True,
                topics=[
                    TopicPartitions(topic=GROUP_METADATA_TOPIC, partitions=numbers),
                    TopicPartitions(topic="t", partitions=[0]),
                ],
            )
            for producer_id in (5, 7, 9)
        ]
    )
    answer = asyncio.run(TxnOffsetsRpc(shards, NOTHING, NOTHING).write_txn_markers(request, NOTHING))
    assert shards.most == MARKERS_AT_ONCE
    assert [marker.producer_id for marker in answer.markers] == [5, 7, 9]
    for marker in answer.markers:
        code = ErrorCode.INVALID_PRODUCER_EPOCH if marker.producer_id == 7 else ErrorCode.NONE
        *written, refused = marker.partitions
        assert [each.partition for each in written] == numbers
        assert {each.error_code for each in written} == {code}
        assert (refused.topic, refused.error_code) == ("t", ErrorCode.INVALID_REQUEST)
