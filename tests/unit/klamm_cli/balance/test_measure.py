"""Tests how the load of partitions is computed from the counters of their replicas."""

from __future__ import annotations

from klamm.admin import ReplicaDescription
from klamm.model import TopicPartition
from klamm_cli.balance.load import PartitionLoad
from klamm_cli.balance.measure import partition_loads
from tests.support.status_world import partition, topic

TP = TopicPartition("orders", 0)


def replica(in_bytes: int, out_bytes: int, size_bytes: int = 0) -> ReplicaDescription:
    return ReplicaDescription(
        tp=TP,
        size_bytes=size_bytes,
        log_start_offset=0,
        log_end_offset=0,
        is_future=False,
        offset_lag=0,
        in_bytes=in_bytes,
        out_bytes=out_bytes,
    )


def test_rates_are_the_growth_of_the_counters_of_all_replicas() -> None:
    before = {(1, TP): replica(100, 50), (2, TP): replica(7, 1)}
    after = {(1, TP): replica(300, 90, 1000), (2, TP): replica(7, 21, 900)}
    found = partition_loads({"orders": topic("orders", partition(0))}, before, after, took_s=2.0)
    assert found == {TP: PartitionLoad(replicas=(1, 2, 3), in_bytes=100.0, out_bytes=30.0, size_bytes=1000)}


def test_a_replica_that_was_opened_again_counts_from_zero() -> None:
    before, after = {(1, TP): replica(100, 50)}, {(1, TP): replica(20, 60)}
    found = partition_loads({"orders": topic("orders", partition(0))}, before, after, took_s=2.0)
    assert (found[TP].in_bytes, found[TP].out_bytes) == (10.0, 30.0)


def test_partitions_count_where_they_are_being_moved_and_may_be_unknown_to_brokers() -> None:
    moving = partition(0, replicas=(1, 4, 2), isr=(1, 2), adding_replicas=(4,), removing_replicas=(2,))
    found = partition_loads({"orders": topic("orders", moving)}, {}, {}, took_s=1.0)
    assert found == {TP: PartitionLoad(replicas=(1, 4))}
