from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from klamm.cluster.metadata import NO_LEADER, ClusterView, Node, PartitionView, TopicView
from klamm.errors import PartitionerError
from klamm.partitioner import Partitioner, PartitionInfo
from klamm.producer.user_calls import UserCalls
from klamm.producer.user_partitioner import UserPartitioner, partition_infos


def info(number: int) -> PartitionInfo:
    return PartitionInfo(partition=number, leader=1, leader_rack=None, is_available=True)


def choosing(chosen: Any) -> UserPartitioner:
    return UserPartitioner(lambda topic, key, value, partitions: chosen, UserCalls())


class Closing(Partitioner):
    """Counts the calls of `close`, which fails."""

    def __init__(self) -> None:
        self.close_count = 0

    def close(self) -> None:
        self.close_count += 1
        raise OSError("the table of countries is gone")


def test_a_partitioner_sees_the_leaders_and_their_racks() -> None:
    leaders = (1, 2, 3, NO_LEADER)
    partitions = tuple(
        PartitionView(partition=number, leader=leader, leader_epoch=0, replicas=(leader,), isr=(leader,))
        for number, leader in enumerate(leaders)
    )
    view = ClusterView(
        brokers={
            1: Node(node_id=1, host="a", port=1, rack="cn"),
            2: Node(node_id=2, host="b", port=2),
        },
        topics={"t": TopicView(name="t", topic_id=uuid.UUID(int=1), partitions=partitions)},
    )

    assert partition_infos(view, "t") == (
        PartitionInfo(partition=0, leader=1, leader_rack="cn", is_available=True),
        PartitionInfo(partition=1, leader=2, leader_rack=None, is_available=True),
        PartitionInfo(partition=2, leader=3, leader_rack=None, is_available=False),
        PartitionInfo(partition=3, leader=None, leader_rack=None, is_available=False),
    )


def test_a_partitioner_gets_the_record_and_the_partitions() -> None:
    seen: list[tuple[object, ...]] = []

    def last(topic: str, key: Any, value: Any, partitions: Sequence[PartitionInfo]) -> int:
        seen.append((topic, key, value, partitions))
        return partitions[-1].partition

    partitions = (info(0), info(1))

    assert UserPartitioner(last, UserCalls()).choose("t", "k", {"v": 1}, partitions) == 1
    assert seen == [("t", "k", {"v": 1}, partitions)]


def test_none_leaves_the_choice_to_the_default_partitioner() -> None:
    assert choosing(None).choose("t", None, None, (info(0),)) is None


@pytest.mark.parametrize("chosen", [2, -1, True, 1.0, "1"])
def test_a_choice_that_is_no_partition_of_the_topic_is_an_error(chosen: Any) -> None:
    with pytest.raises(PartitionerError, match=f"returned {chosen!r} .* topic 'orders', expected .* from 0 to 1"):
        choosing(chosen).choose("orders", None, None, (info(0), info(1)))


def test_an_exception_of_the_partitioner_becomes_an_error_that_names_the_topic() -> None:
    def fails(topic: str, key: Any, value: Any, partitions: Sequence[PartitionInfo]) -> int:
        raise KeyError("country")

    with pytest.raises(PartitionerError, match=r"topic 'orders': KeyError\('country'\)") as raised:
        UserPartitioner(fails, UserCalls()).choose("orders", None, None, (info(0),))
    assert isinstance(raised.value.__cause__, KeyError)


def test_an_exception_of_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    partitioner = Closing()

    with caplog.at_level(logging.ERROR):
        UserPartitioner(partitioner, UserCalls()).close()

    assert partitioner.close_count == 1
    assert "close failed" in caplog.text
