from __future__ import annotations

import random
from collections import Counter

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from klamm.partitioner import (
    DefaultPartitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    key_partition,
    murmur2,
)

STICKY_BYTES = 1_000


def default(*, ignore_keys: bool = False, seed: int = 1) -> DefaultPartitioner:
    return DefaultPartitioner(sticky_bytes=STICKY_BYTES, ignore_keys=ignore_keys, rng=random.Random(seed))


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
    partitioner.update(10, [3])

    assert {partitioner.choose(str(n).encode(), 10) for n in range(200)} == set(range(10))


def test_records_without_a_key_stay_on_one_partition_for_a_batch() -> None:
    partitioner = default()
    partitioner.update(100, range(100))

    chosen = [partitioner.choose(None, 100) for _ in range(50)]

    runs = [chosen[start : start + 10] for start in range(0, 50, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert len({run[0] for run in runs}) > 1


def test_the_sticky_partitioner_spreads_records_evenly_over_time() -> None:
    partitioner = default()
    partitioner.update(4, range(4))

    counts = Counter(partitioner.choose(None, STICKY_BYTES) for _ in range(4_000))

    assert all(900 < counts[partition] < 1_100 for partition in range(4))


def test_the_sticky_partitioner_leaves_a_partition_without_a_leader() -> None:
    partitioner = default()
    partitioner.update(2, [0, 1])
    stuck_at = partitioner.choose(None, 1)
    other = 1 - stuck_at

    partitioner.update(2, [other])

    assert partitioner.choose(None, 1) == other


def test_the_sticky_partitioner_stays_if_new_partitions_are_added() -> None:
    partitioner = default()
    partitioner.update(100, range(100))
    stuck_at = partitioner.choose(None, 1)

    partitioner.update(200, range(200))

    assert partitioner.choose(None, 1) == stuck_at


def test_without_any_leader_all_partitions_are_used() -> None:
    for partitioner in (default(), RandomPartitioner(rng=random.Random(1)), RoundRobinPartitioner()):
        partitioner.update(3, [])
        assert {partitioner.choose(None, STICKY_BYTES) for _ in range(100)} == {0, 1, 2}


def test_with_ignore_keys_the_partition_does_not_depend_on_the_key() -> None:
    partitioner = default(ignore_keys=True)
    partitioner.update(100, range(100))

    assert len({partitioner.choose(str(n).encode(), 100) for n in range(10)}) == 1


def test_round_robin_alternates_over_the_available_partitions() -> None:
    partitioner = RoundRobinPartitioner()
    partitioner.update(4, [0, 2, 3])

    assert [partitioner.choose(b"k", 1) for _ in range(4)] == [0, 2, 3, 0]


def test_the_random_partitioner_uses_only_available_partitions() -> None:
    partitioner = RandomPartitioner(rng=random.Random(1))
    partitioner.update(4, [1, 2])

    assert {partitioner.choose(b"k", 1) for _ in range(50)} == {1, 2}
