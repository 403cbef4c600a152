"""Tests OffsetForLeaderEpoch over several leaders, of which some refuse, or are older than the records read."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace

import pytest

from klamm.cluster.client import KlammClient
from klamm.cluster.epoch_finder import EpochFinder
from klamm.cluster.metadata import ClusterView, Node, PartitionView, TopicView
from klamm.config import ClientConfig
from klamm.errors import ErrorCode, FencedLeaderEpochError, KlammError, UnknownLeaderEpochError
from klamm.model import TopicPartition
from klamm.offsets import EpochEnd
from klamm.wire.v1 import broker_pb2

TPS = [TopicPartition("t", number) for number in range(3)]
LEADER_EPOCH = 4


class Client(KlammClient):
    """A client that sees broker n lead partition n.

    A partition answers with its code in `codes`, or with the end offset 10 times its number.
    """

    def __init__(self, codes: dict[int, ErrorCode]) -> None:
        super().__init__(ClientConfig.parse())
        self.codes = codes
        self.asked: dict[int, dict[int, int]] = {}
        views = tuple(
            PartitionView(partition=number, leader=number, leader_epoch=LEADER_EPOCH, replicas=(number,), isr=(number,))
            for number in range(3)
        )
        self.cluster = ClusterView(
            brokers={number: Node(node_id=number, host="h", port=1) for number in range(3)},
            topics={"t": TopicView(name="t", topic_id=uuid.UUID(int=1), partitions=views)},
        )

    def broker(self, node_id: int):
        async def offset_for_leader_epoch(request):
            self.asked[node_id] = {partition.partition: partition.leader_epoch for partition in request.partitions}
            ends = [self._answer(partition) for partition in request.partitions]
            return broker_pb2.OffsetForLeaderEpochResponse(partitions=ends)

        return SimpleNamespace(offset_for_leader_epoch=offset_for_leader_epoch)

    def _answer(self, asked) -> broker_pb2.EpochEnd:
        assert asked.current_leader_epoch == LEADER_EPOCH
        return broker_pb2.EpochEnd(
            topic="t",
            partition=asked.partition,
            error_code=self.codes.get(asked.partition, ErrorCode.NONE),
            leader_epoch=asked.leader_epoch,
            end_offset=10 * asked.partition,
        )


def ask(epochs: list[int], codes: dict[int, ErrorCode] | None = None):
    """Asks for the ends of these epochs. Returns the requests, the ends found and the error raised."""

    async def main():
        client = Client(codes or {})
        found: dict[TopicPartition, EpochEnd] = {}
        try:
            await EpochFinder(client).ask_once(dict(zip(TPS, epochs, strict=False)), found)
        except KlammError as error:
            return client.asked, found, error
        return client.asked, found, None

    return asyncio.run(main())


def test_each_leader_is_asked_for_the_epochs_of_its_partitions() -> None:
    asked, found, error = ask([1, 2, 3])
    assert error is None
    assert asked == {0: {0: 1}, 1: {1: 2}, 2: {2: 3}}
    assert found == {tp: EpochEnd(tp.partition + 1, 10 * tp.partition, LEADER_EPOCH) for tp in TPS}


def test_the_other_leaders_answers_are_kept_when_one_leader_refuses() -> None:
    _, found, error = ask([1, 2, 3], {1: ErrorCode.FENCED_LEADER_EPOCH})
    assert isinstance(error, FencedLeaderEpochError)
    assert set(found) == {TPS[0], TPS[2]}


@pytest.mark.parametrize("epoch", [LEADER_EPOCH, LEADER_EPOCH + 1])
def test_a_leader_with_an_older_epoch_than_the_records_read_is_not_asked(epoch: int) -> None:
    """This leader would answer that it does not know the epoch, which looks like a truncated log."""
    asked, found, error = ask([1, epoch])
    if epoch > LEADER_EPOCH:
        assert isinstance(error, UnknownLeaderEpochError)
        assert error.retriable
        assert (set(asked), set(found)) == ({0}, {TPS[0]})
    else:
        assert error is None
        assert set(found) == {TPS[0], TPS[1]}
