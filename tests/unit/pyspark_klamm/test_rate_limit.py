"""Tests how much one batch of a stream reads, and when it runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.model import TopicPartition
from pyspark_klamm.rate_limit import TriggerDelay, backlog, limited

partitions = st.builds(TopicPartition, st.sampled_from(["flights", "weather"]), st.integers(0, 5))
stretches = st.dictionaries(partitions, st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), max_size=8)


@given(stretches, st.integers(1, 10**6))
def test_a_batch_reads_up_to_its_limit_and_some_offsets_of_each_partition(stretches, max_offsets):
    start = {tp: begin for tp, (begin, _) in stretches.items()}
    end = {tp: begin + size for tp, (begin, size) in stretches.items()}
    bounded = limited(start, end, max_offsets)
    assert all(start[tp] <= bounded[tp] <= end[tp] for tp in start)
    behind = [tp for tp in start if end[tp] > start[tp]]
    assert all(bounded[tp] > start[tp] for tp in behind)
    total = backlog(start, end)
    small = [tp for tp in behind if (end[tp] - start[tp]) * max_offsets < total]
    assert min(total, max_offsets) <= backlog(start, bounded) <= min(total, max_offsets + len(small))


def test_a_limit_is_shared_in_proportion():
    start = {TopicPartition("t", 0): 0, TopicPartition("t", 1): 100}
    end = {TopicPartition("t", 0): 3_000, TopicPartition("t", 1): 1_100}
    assert limited(start, end, 400) == {TopicPartition("t", 0): 300, TopicPartition("t", 1): 200}


@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (1, 1, 1)])
def test_a_limit_below_the_number_of_partitions_lets_each_partition_go_on(sizes):
    end = {TopicPartition("t", partition): size for partition, size in enumerate(sizes)}
    assert set(limited(dict.fromkeys(end, 0), end, 1).values()) == {1}


def test_a_large_backlog_keeps_its_share_beside_many_small_ones():
    """Spark's Kafka source rounds small shares up to one offset too, even beyond the limit."""
    end = {TopicPartition("t", 0): 900, **{TopicPartition("t", partition): 1 for partition in range(1, 101)}}
    bounded = limited(dict.fromkeys(end, 0), end, 100)
    assert bounded == {**end, TopicPartition("t", 0): 90}


def test_a_partition_that_ends_before_its_start_uses_no_part_of_the_limit():
    start = {TopicPartition("t", 0): 50, TopicPartition("t", 1): 0}
    end = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 40}
    assert limited(start, end, 30)[TopicPartition("t", 1)] == 30


def test_a_batch_waits_until_it_is_large_enough_or_has_waited_long_enough():
    delay = TriggerDelay(min_offsets=10, max_delay_ms=1_000)
    assert delay.wait_ms(1, 500) == 0  # the first one
    assert delay.wait_ms(9, 600) == 900
    assert delay.wait_ms(10, 700) == 0
    assert delay.wait_ms(9, 1_699) == 1
    assert delay.wait_ms(9, 1_700) == 0
    assert delay.wait_ms(9, 1_701) == 999
