"""Tests ListOffsets over several leaders, of which some are wrong, missing or slow."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace

import pytest

from klamm.cluster.client import KlammClient
from klamm.cluster.metadata import ClusterView, Node, PartitionView, TopicView
from klamm.cluster.offset_finder import READ_COMMITTED, OffsetFinder
from klamm.config import ClientConfig
from klamm.errors import ErrorCode, LeaderNotAvailableError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from klamm.model import LATEST_TIMESTAMP, TopicPartition
from klamm.offsets import OffsetAndTimestamp
from klamm.wire.v1 import broker_pb2

TPS = [TopicPartition("t", number) for number in range(3)]


class Client(KlammClient):
    """A client that sees broker n lead partition n.

    A partition answers with each of its `codes`, then with the offset 10 times its number.
    """

    def __init__(self, codes: dict[int, list[ErrorCode]] | None = None, leaderless: int | None = None) -> None:
        super().__init__(ClientConfig.parse(retry_backoff_ms=0, retry_backoff_max_ms=0))
        self.codes = codes or {}
        self.leaderless = leaderless
        self.asked: list[list[int]] = []
        self.isolation_levels: set[int] = set()

    async def refresh_metadata(self, topics=None) -> ClusterView:
        views = tuple(
            PartitionView(
                partition=number,
                leader=-1 if number == self.leaderless else number,
                leader_epoch=4,
                replicas=(number,),
                isr=(number,),
            )
            for number in range(3)
        )
        self.cluster = ClusterView(
            brokers={number: Node(node_id=number, host="h", port=1) for number in range(3)},
            topics={"t": TopicView(name="t", topic_id=uuid.UUID(int=1), partitions=views)},
            topic_errors={"gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        )
        return self.cluster

    def broker(self, node_id: int):
        async def list_offsets(request):
            self.isolation_levels.add(request.isolation_level)
            self.asked.append([partition.partition for partition in request.partitions])
            return broker_pb2.ListOffsetsResponse(
                partitions=[self._answer(partition) for partition in request.partitions]
            )

        return SimpleNamespace(list_offsets=list_offsets)

    def _answer(self, asked) -> broker_pb2.ListedOffset:
        assert asked.current_leader_epoch == 4
        assert asked.timestamp_ms == LATEST_TIMESTAMP
        codes = self.codes.get(asked.partition)
        code = codes.pop(0) if codes else ErrorCode.NONE
        return broker_pb2.ListedOffset(
            topic="t",
            partition=asked.partition,
            error_code=code,
            offset=10 * asked.partition,
            timestamp_ms=-1,
            leader_epoch=4,
        )


def find(make, wanted=TPS, timeout_ms: int = 5_000, isolation_level: int = 0):
    async def main():
        client = make()
        finder = OffsetFinder(client, isolation_level)
        return client, await finder.find(dict.fromkeys(wanted, LATEST_TIMESTAMP), timeout_ms=timeout_ms)

    return asyncio.run(main())


def test_each_leader_is_asked_for_the_offsets_of_its_partitions():
    client, found = find(Client, isolation_level=READ_COMMITTED)
    assert found == {tp: OffsetAndTimestamp(10 * tp.partition, -1, 4) for tp in TPS}
    assert sorted(client.asked) == [[0], [1], [2]]
    assert client.isolation_levels == {READ_COMMITTED}


def test_only_the_partitions_that_failed_are_retried():
    client, found = find(lambda: Client({1: [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE]}))
    assert set(found) == set(TPS)
    assert sorted(client.asked) == [[0], [1], [1], [1], [2]]


def test_a_fatal_error_is_raised_and_names_the_partition():
    with pytest.raises(TopicAuthorizationFailedError, match="t-1"):
        find(lambda: Client({1: [ErrorCode.TOPIC_AUTHORIZATION_FAILED]}))


@pytest.mark.parametrize(
    ("tp", "error"),
    [
        (TopicPartition("t", 2), LeaderNotAvailableError),
        (TopicPartition("t", 9), UnknownTopicOrPartitionError),
        (TopicPartition("gone", 0), UnknownTopicOrPartitionError),
    ],
)
def test_a_timeout_raises_the_reason_and_names_the_partition(tp, error):
    with pytest.raises(error, match=tp.topic):
        find(lambda: Client(leaderless=2), wanted=[tp], timeout_ms=30)


def test_a_partition_without_a_leader_does_not_delay_the_others():
    async def main():
        client, found = Client(leaderless=1), {}
        with pytest.raises(LeaderNotAvailableError, match="t-1"):
            await OffsetFinder(client).ask_once(dict.fromkeys(TPS, LATEST_TIMESTAMP), found)
        return found

    assert set(asyncio.run(main())) == {TPS[0], TPS[2]}
