"""Tests how many records a group has still to read in the source."""

from __future__ import annotations

import pytest

from klamm.admin.types import GroupLagDescription, PartitionLagDescription
from klamm.model import TopicPartition
from klamm_cli.spread.gather import source_lag
from tests.unit.klamm_cli.spread.spread_facts import facts


def lag(number, topic="orders", **more):
    return PartitionLagDescription(tp=TopicPartition(topic, number), **more)


READ = [lag(0, committed_offset=1_000, lag=0), lag(1, committed_offset=2_000, lag=0)]


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (READ, 0),
        ([*READ, lag(0, "payments", committed_offset=1, lag=99)], 0),
        ([READ[0], lag(1, committed_offset=1_900, lag=100)], 100),
        ([READ[0]], 2_000),
        ([READ[0], lag(1)], 2_000),
        ([READ[0], lag(1, error="no leader")], None),
        ([READ[0], lag(1, committed_offset=2_000)], None),
    ],
)
def test_a_partition_without_an_offset_counts_as_a_whole(partitions, expected):
    group = GroupLagDescription(group_id="billing", time_ms=0, partitions=tuple(partitions))
    assert source_lag(facts(), group) == expected
