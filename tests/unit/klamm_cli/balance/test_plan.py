"""Tests the plans that balance a cluster."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from klamm.model import TopicPartition
from klamm_cli.balance.load import Load, PartitionLoad, broker_loads
from klamm_cli.balance.plan import TOLERANCE, deviation, domain_counts, plan_balance, worst_deviation

MB = 1_000_000


def cluster(seed, brokers, domains, partition_count, size, skew):
    """Returns partitions at random brokers, with few large ones among them, and the racks of the brokers."""
    rng = random.Random(seed)
    racks = {broker_id: f"dc{broker_id % 2}/host{broker_id % domains}" if domains else "" for broker_id in brokers}
    size = min(size, len(brokers))
    partitions = {
        TopicPartition("t", number): PartitionLoad(
            replicas=tuple(rng.sample(brokers, size)),
            in_bytes=rng.paretovariate(skew) * MB,
            out_bytes=rng.paretovariate(skew) * MB * rng.randrange(3),
            size_bytes=int(rng.paretovariate(skew) * 1000 * MB),
        )
        for number in range(partition_count)
    }
    return partitions, racks


CLUSTERS = st.builds(
    cluster,
    st.integers(0, 10_000),
    st.integers(1, 7).map(lambda count: list(range(1, count + 1))),
    st.sampled_from([0, 2, 3, 5]),
    st.integers(0, 40),
    st.integers(1, 3),
    st.sampled_from([0.8, 1.5, 5.0]),
)


@given(CLUSTERS, st.booleans())
def test_a_plan_keeps_the_replication_factor_and_is_deterministic_and_final(world, is_short_of_one):
    partitions, racks = world
    targets = sorted(racks)[is_short_of_one:]
    plan = plan_balance(partitions, racks, targets=targets)
    assert plan == plan_balance(dict(reversed(partitions.items())), racks, targets=targets)
    for tp, replicas in plan.moves.items():
        before = partitions[tp].replicas
        assert len(set(replicas)) == len(replicas) == len(before)
        assert set(replicas) - set(before) <= set(targets), "replicas move to targets only"
        assert set(before) - set(replicas) <= set(targets), "replicas on other brokers stay"
    assert plan_balance(plan.after(partitions), racks, targets=targets).moves == {}


@given(CLUSTERS)
def test_a_plan_never_makes_the_balance_worse(world):
    partitions, racks = world
    racks = dict.fromkeys(racks, "")
    after = plan_balance(partitions, racks, targets=racks).after(partitions)
    assert deviation(after, racks) <= deviation(partitions, racks) + 1e-9
    assert worst_deviation(after, racks) <= max(worst_deviation(partitions, racks), TOLERANCE) + 1e-9


@given(CLUSTERS)
def test_a_plan_puts_no_two_replicas_on_one_host_while_there_are_others(world):
    partitions, racks = world
    after = plan_balance(partitions, racks, targets=racks).after(partitions)
    hosts, largest = set(racks.values()), {rack.split("/")[0] for rack in racks.values()}
    for tp, each in after.items():
        counts = domain_counts(each.replicas, racks)
        assert counts >= domain_counts(partitions[tp].replicas, racks)
        assert counts[:2] == (min(len(each.replicas), len(hosts)), min(len(each.replicas), len(largest)))


def even(count, brokers, **load):
    """Returns equal partitions, of which each of `brokers` leads the same number."""
    return {
        TopicPartition("t", number): PartitionLoad(
            replicas=(brokers[number % len(brokers)], brokers[(number + 1) % len(brokers)]), **load
        )
        for number in range(count)
    }


def test_a_balanced_cluster_gets_an_empty_plan():
    partitions = even(30, [1, 2, 3], in_bytes=5.0 * MB, out_bytes=9.0 * MB, size_bytes=100 * MB)
    assert plan_balance(partitions, dict.fromkeys([1, 2, 3], ""), targets=[1, 2, 3]).moves == {}


def test_leaders_move_without_a_copy_if_that_is_enough():
    partitions = {
        TopicPartition("t", number): PartitionLoad(
            replicas=(1, 2 + number % 2), in_bytes=0.01 * MB, out_bytes=10.0 * MB, size_bytes=100 * MB
        )
        for number in range(12)
    }
    partitions |= {
        TopicPartition("u", number): PartitionLoad(replicas=(2, 3), in_bytes=0.01 * MB, size_bytes=100 * MB)
        for number in range(6)
    }
    racks = dict.fromkeys([1, 2, 3], "")
    before = broker_loads(partitions, racks)
    plan = plan_balance(partitions, racks, targets=racks, tolerance=0.3)
    after = broker_loads(plan.after(partitions), racks)
    assert plan.copied_bytes == 0
    assert (before[1].out_bytes, before[2].out_bytes) == (120.12 * MB, 0.06 * MB)
    assert max(load.out_bytes for load in after.values()) < 55 * MB


def test_partitions_are_spread_over_added_brokers_and_little_is_copied():
    partitions = even(60, [1, 2, 3], in_bytes=1.0 * MB, out_bytes=1.0 * MB, size_bytes=100 * MB)
    racks = dict.fromkeys([1, 2, 3, 4], "")
    plan = plan_balance(partitions, racks, targets=racks)
    after = broker_loads(plan.after(partitions), racks)
    fair = 60 * 2 * 100 * MB / 4
    assert all(abs(load.size_bytes - fair) <= 0.11 * fair for load in after.values())
    assert plan.copied_bytes <= fair, "no byte moves between the old brokers"


def test_partitions_without_load_are_spread_by_their_number():
    partitions = {TopicPartition("t", number): PartitionLoad(replicas=(1,)) for number in range(20)}
    after = plan_balance(partitions, {1: "", 2: ""}, targets=[1, 2]).after(partitions)
    assert 9 <= sum(each.replicas == (1,) for each in after.values()) <= 11


def test_replicas_of_one_host_leave_it_when_another_host_is_added():
    racks = {1: "dc1/a", 2: "dc1/a", 3: "dc1/b", 4: "dc1/b"}
    partitions = even(8, [1, 2], in_bytes=1.0 * MB, size_bytes=10 * MB)
    after = plan_balance(partitions, racks, targets=racks).after(partitions)
    assert all(len({racks[broker_id] for broker_id in each.replicas}) == 2 for each in after.values())


def test_the_load_of_a_leader_has_what_it_sends_to_its_followers():
    partitions = {TopicPartition("t", 0): PartitionLoad(replicas=(1, 2, 3), in_bytes=5.0, out_bytes=7.0, size_bytes=11)}
    assert broker_loads(partitions, [1, 2]) == {1: Load(5.0, 17.0, 11), 2: Load(5.0, 0.0, 11)}
