"""A partitioner that a user wrote: what it sees, and how its errors reach the sender."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from klamm.errors import PartitionerError
from klamm.model import TopicPartition
from klamm.partitioner import key_partition
from klamm.producer import AsyncProducer, Partitioner, PartitionInfo
from klamm.records import HEADER_SIZE_BYTES, PackedRecords, encode_batch
from tests.support.scripted_broker import ScriptedCluster
from tests.support.scripted_producer import producing
from tests.support.waiting import patience, wait_until


class ByCountry(Partitioner):
    """Sends the records of a country to a leader in the rack of that name, and all others by their key."""

    def __init__(self) -> None:
        self.seen: list[Sequence[PartitionInfo]] = []
        self.close_count = 0

    def partition(self, topic: str, key: Any, value: Any, partitions: Sequence[PartitionInfo]) -> int | None:
        self.seen.append(partitions)
        nearby = [each.partition for each in partitions if value and each.leader_rack == value["country"]]
        return nearby[-1] if nearby else None

    def close(self) -> None:
        self.close_count += 1
        raise OSError("a partitioner that cannot close")


def two_racks() -> ScriptedCluster:
    cluster = ScriptedCluster(broker_count=2, racks=("cn", "nz"))
    cluster.create_topic("t", 4)
    return cluster


def test_a_partitioner_chooses_by_the_value_and_the_leaders_rack() -> None:
    partitioner = ByCountry()
    with producing(
        0, cluster=two_racks(), partitioner_class=partitioner, key_serializer="string", value_serializer="json"
    ) as (producer, _):
        sent = [
            producer.send("t", {"country": country}, "key").result(patience()).partition
            for country in ("cn", "nz", "de")
        ]

        assert sent == [2, 3, key_partition(b"key", 4)]
        assert [each.leader for each in partitioner.seen[0]] == [0, 1, 0, 1]
        assert producer.send("t", {"country": "cn"}, partition=1).result(patience()).partition == 1
        assert len(partitioner.seen) == 3, "asked although the sender named a partition"
    assert partitioner.close_count == 1


def test_the_partitions_are_made_once_for_each_change_of_the_metadata() -> None:
    partitioner, cluster = ByCountry(), two_racks()
    with producing(0, cluster=cluster, partitioner_class=partitioner, value_serializer="json") as (producer, _):
        producer.send("t", {"country": "cn"}).result(patience())
        for _ in range(20):
            producer.send("t", {"country": "cn"})
        producer.flush(patience())
        assert len({id(each) for each in partitioner.seen}) == 1

        cluster.move_leader(TopicPartition("t", 2), 1)

        def avoids_the_moved_partition() -> bool:
            return producer.send("t", {"country": "cn"}).result(patience()).partition == 0

        wait_until(avoids_the_moved_partition, lambda: f"{partitioner.seen[-1]} at {time.monotonic()}")


def test_a_failing_partitioner_fails_only_its_own_send() -> None:
    def choose(topic: str, key: Any, value: Any, partitions: Sequence[PartitionInfo]) -> int:
        return int(value)

    with producing(2, partitioner_class=choose) as (producer, cluster):
        with pytest.raises(PartitionerError, match=r"failed for a record of topic 't': ValueError"):
            producer.send("t", b"x")
        with pytest.raises(PartitionerError, match=r"returned 2 for a record of topic 't', expected .* from 0 to 1"):
            producer.send("t", b"2")
        assert producer.send("t", b"1").result(patience()).partition == 1
        assert (cluster.values("t", 0), cluster.values("t", 1)) == ([], [b"1"])


def test_packed_records_have_no_key_and_value_for_the_partitioner() -> None:
    seen: list[object] = []

    def choose(topic: str, key: Any, value: Any, partitions: Sequence[PartitionInfo]) -> int:
        seen.append((topic, key, value))
        return 1

    with producing(2, partitioner_class=choose) as (producer, cluster):
        data = encode_batch([(1, b"k", b"v", ())])[HEADER_SIZE_BYTES:]
        records = PackedRecords(data=data, record_count=1, base_timestamp_ms=1, max_timestamp_ms=1)
        producer.send_packed("t", records).result(patience())

        assert cluster.values("t", 1) == [b"v"]
    assert seen == [("t", None, None)]


def test_an_async_producer_asks_the_partitioner_and_closes_it() -> None:
    partitioner = ByCountry()

    async def main() -> None:
        cluster = two_racks()
        async with cluster.serve():
            producer = AsyncProducer(
                bootstrap_servers=cluster.bootstrap,
                linger_ms=0,
                partitioner_class=partitioner,
                key_serializer="string",
                value_serializer="json",
            )
            assert (await producer.send_and_wait("t", {"country": "nz"}, "key")).partition == 3
            assert (await producer.send_and_wait("t", {"country": "de"}, "key")).partition == key_partition(b"key", 4)
            with pytest.raises(PartitionerError, match="topic 't': TypeError"):
                await producer.send("t", 5)
            await producer.close()
            await producer.close()

    asyncio.run(asyncio.wait_for(main(), patience()))
    assert partitioner.close_count == 1
