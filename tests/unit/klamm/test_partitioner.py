from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from klamm.partitioner import (
    STICKY_BYTES,
    DefaultPartitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    key_partition,
    murmur2,
)


@dataclass
class Queue:
    """The records that wait for a partition, as a built-in partitioner sees them."""

    open: object | None = None
    in_flight: Sequence[object] = ()


def queues(count: int) -> list[Queue]:
    return [Queue() for _ in range(count)]


def default(*, ignore_keys: bool = False, seed: int = 1) -> DefaultPartitioner:
    return DefaultPartitioner(ignore_keys=ignore_keys, rng=random.Random(seed))


def send(partitioner: DefaultPartitioner, topic: list[Queue], size_bytes: int) -> int:
    """Appends a record without a key to the open batch of its partition. Returns the partition."""
    partition = partitioner.choose(None, size_bytes)
    topic[partition].open = topic[partition].open or object()
    return partition


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_values_of_kafkas_own_test(key: bytes, signed: int) -> None:
    """The values are those of `UtilsTest.testMurmur2`."""
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=100))
def test_murmur2_agrees_with_aiokafka(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=100), st.integers(1, 1_000))
def test_a_key_has_the_same_partition_as_in_aiokafka(key: bytes, partition_count: int) -> None:
    expected = (aiokafka_murmur2(key) & 0x7FFFFFFF) % partition_count

    assert key_partition(key, partition_count) == expected


def test_a_key_may_choose_a_partition_without_a_leader() -> None:
    partitioner = default()
    partitioner.update(queues(10), [3])

    assert {partitioner.choose(str(n).encode(), 10) for n in range(200)} == set(range(10))


def test_records_without_a_key_stay_on_one_partition_until_its_batch_closes() -> None:
    partitioner, topic = default(), queues(100)
    partitioner.update(topic, range(100))

    runs = []
    for _ in range(5):
        runs.append({send(partitioner, topic, STICKY_BYTES) for _ in range(10)})
        for queue in topic:
            queue.open = None

    assert all(len(run) == 1 for run in runs)
    assert len(set.union(*runs)) > 1


def test_a_full_batch_that_another_one_follows_ends_the_stay() -> None:
    partitioner, topic = default(), queues(100)
    partitioner.update(topic, range(100))
    first = send(partitioner, topic, 100)
    assert send(partitioner, topic, 100) == first
    topic[first].open = object()

    assert send(partitioner, topic, 100) != first


def test_records_that_each_have_a_batch_of_their_own_are_spread_evenly() -> None:
    partitioner, topic = default(), queues(4)
    partitioner.update(topic, range(4))

    counts: Counter[int] = Counter()
    for _ in range(4_000):
        partition = send(partitioner, topic, 100)
        counts[partition] += 1
        topic[partition].open = None

    assert all(900 < counts[partition] < 1_100 for partition in range(4))


def test_a_partition_with_a_batch_in_flight_gets_no_more_than_its_share() -> None:
    partitioner, topic = default(), queues(4)
    for queue in topic:
        queue.in_flight = [object()]
    partitioner.update(topic, range(4))

    chosen = [send(partitioner, topic, STICKY_BYTES // 16) for _ in range(16_000)]

    runs = [chosen[start : start + 16] for start in range(0, 16_000, 16)]
    assert all(len(set(run)) == 1 for run in runs)
    counts = Counter(chosen)
    assert all(3_400 < counts[partition] < 4_600 for partition in range(4))


def test_a_partition_with_a_batch_in_flight_keeps_the_batch_that_waits() -> None:
    partitioner, topic = default(), queues(100)
    partitioner.update(topic, range(100))
    first = send(partitioner, topic, STICKY_BYTES)
    waiting = topic[first].open
    topic[first].in_flight = [object()]

    assert send(partitioner, topic, 100) != first
    assert topic[first].open is waiting


def test_the_sticky_partitioner_leaves_a_partition_without_a_leader() -> None:
    partitioner, topic = default(), queues(2)
    partitioner.update(topic, [0, 1])
    stuck_at = send(partitioner, topic, 1)
    other = 1 - stuck_at

    partitioner.update(topic, [other])

    assert send(partitioner, topic, 1) == other


def test_the_sticky_partitioner_stays_if_new_partitions_are_added() -> None:
    partitioner, topic = default(), queues(100)
    partitioner.update(topic, range(100))
    stuck_at = send(partitioner, topic, 1)

    topic += queues(100)
    partitioner.update(topic, range(200))

    assert send(partitioner, topic, 1) == stuck_at


def test_without_any_leader_all_partitions_are_used() -> None:
    for partitioner in (default(), RandomPartitioner(rng=random.Random(1)), RoundRobinPartitioner()):
        partitioner.update(queues(3), [])
        assert {partitioner.choose(None, STICKY_BYTES) for _ in range(100)} == {0, 1, 2}


def test_with_ignore_keys_the_partition_does_not_depend_on_the_key() -> None:
    partitioner, topic = default(ignore_keys=True), queues(100)
    partitioner.update(topic, range(100))
    first = partitioner.choose(b"a", 100)
    topic[first].open = object()

    assert {partitioner.choose(str(n).encode(), 100) for n in range(10)} == {first}


def test_round_robin_alternates_over_the_available_partitions() -> None:
    partitioner = RoundRobinPartitioner()
    partitioner.update(queues(4), [0, 2, 3])

    assert [partitioner.choose(b"k", 1) for _ in range(4)] == [0, 2, 3, 0]


def test_the_random_partitioner_uses_only_available_partitions() -> None:
    partitioner = RandomPartitioner(rng=random.Random(1))
    partitioner.update(queues(4), [1, 2])

    assert {partitioner.choose(b"k", 1) for _ in range(50)} == {1, 2}
