from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import ErrorCode
from klamm_controller.metadata.decision import Refusal
from klamm_controller.metadata.placement import place_replicas
from klamm_server.metadata.entities import BrokerImage


def broker(broker_id: int, rack: str = "", *, fenced: bool = False, stopping: bool = False) -> BrokerImage:
    return BrokerImage(
        broker_id=broker_id,
        broker_epoch=1,
        incarnation_id=b"",
        host="h",
        port=1,
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=stopping,
        log_dir_ids=(),
        static_configs={},
    )


def brokers(*images: BrokerImage) -> dict[int, BrokerImage]:
    return {image.broker_id: image for image in images}


@given(
    racks=st.lists(st.sampled_from("abcd"), min_size=1, max_size=9),
    fenced=st.sets(st.integers(0, 8)),
    partition_count=st.integers(1, 60),
    replication_factor=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_each_placement_prefers_live_brokers_and_distinct_racks_and_spreads_leaders(
    racks, fenced, partition_count, replication_factor, seed
):
    images = brokers(*(broker(i, rack, fenced=i in fenced) for i, rack in enumerate(racks)))
    live = {i for i in images if i not in fenced}
    if replication_factor > len(images) or not live:
        with pytest.raises(Refusal) as refused:
            place_replicas(images, partition_count, replication_factor, random.Random(seed))
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    placed = place_replicas(images, partition_count, replication_factor, random.Random(seed))

    assert placed == place_replicas(images, partition_count, replication_factor, random.Random(seed))
    assert len(placed) == partition_count
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert replicas[0] in live
        assert set(replicas) & live == live or set(replicas) <= live, "fenced ones only when the live do not suffice"
        if set(replicas) <= live:
            reachable = min(replication_factor, len({racks[i] for i in live}))
            assert len({racks[i] for i in replicas}) == reachable, "spread over as many racks as there are"
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[i] for i in live) <= 1


@pytest.mark.parametrize("replication_factor", [1, 2, 3])
def test_over_equal_racks_each_broker_gets_the_same_number_of_replicas(replication_factor):
    images = brokers(*(broker(i, rack) for i, rack in enumerate("aabbcc")))
    placed = place_replicas(images, 60, replication_factor, random.Random(4))
    held = Counter(i for replicas in placed for i in replicas)
    assert set(held.values()) == {10 * replication_factor}


PATHS = st.builds("{}/{}".format, st.sampled_from(["dc1", "dc2", "dc3"]), st.sampled_from(["h1", "h2", "h3"]))


@given(
    racks=st.lists(PATHS | st.sampled_from(["", "plain"]), min_size=1, max_size=12),
    partition_count=st.integers(1, 40),
    replication_factor=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_replicas_share_a_host_only_without_another_and_spread_over_the_largest_domains_first(
    racks, partition_count, replication_factor, seed
):
    images = brokers(*(broker(i, rack) for i, rack in enumerate(racks)))
    replication_factor = min(replication_factor, len(racks))
    placed = place_replicas(images, partition_count, replication_factor, random.Random(seed))
    hosts, largest = set(racks), {rack.split("/")[0] for rack in racks}
    for replicas in placed:
        assert len(set(replicas)) == replication_factor
        on_hosts = Counter(racks[i] for i in replicas)
        assert len(on_hosts) == min(replication_factor, len(hosts)), "no host twice while there are others"
        in_largest = Counter(racks[i].split("/")[0] for i in replicas)
        assert len(in_largest) == min(replication_factor, len(largest)), "as many of the largest domains as there are"
        unused = {rack.split("/")[0] for rack in hosts - on_hosts.keys()}
        assert all(max(in_largest.values()) - in_largest[domain] <= 1 for domain in unused), "evenly over them"


def test_leaders_alternate_over_the_largest_domains_then_over_their_hosts():
    images = brokers(*(broker(i, f"dc{i // 8}/host{i // 2}") for i in range(16)))
    leaders = [images[replicas[0]].rack for replicas in place_replicas(images, 16, 1, random.Random(3))]
    for first in range(0, 16, 2):
        assert {rack.split("/")[0] for rack in leaders[first : first + 2]} == {"dc0", "dc1"}
    assert len(set(leaders[:8])) == len(set(leaders[8:])) == 8, "each host once before any host twice"


@pytest.mark.parametrize("replication_factor", [1, 2, 3])
def test_over_equal_hosts_each_broker_gets_the_same_number_of_replicas(replication_factor):
    images = brokers(*(broker(i, f"dc{i // 4}/host{i // 2}") for i in range(12)))
    placed = place_replicas(images, 120, replication_factor, random.Random(4))
    held = Counter(i for replicas in placed for i in replicas)
    assert max(held.values()) - min(held.values()) <= 0.4 * 10 * replication_factor


def test_more_replicas_than_racks_are_spread_evenly_over_the_racks():
    images = brokers(*(broker(i, "ab"[i % 2]) for i in range(6)))
    for replicas in place_replicas(images, 60, 4, random.Random(4)):
        assert Counter("ab"[i % 2] for i in replicas) == {"a": 2, "b": 2}


def test_followers_of_one_leader_are_spread():
    images = brokers(*(broker(i) for i in range(5)))
    placed = place_replicas(images, 20, 2, random.Random(4))
    followers = {replicas[1] for replicas in placed if replicas[0] == 0}
    assert followers == {1, 2, 3, 4}


def test_a_broker_that_shuts_down_gets_no_replicas():
    images = brokers(broker(1), broker(2, stopping=True))
    assert set(place_replicas(images, 9, 1, random.Random(1))) == {(1,)}
    with pytest.raises(Refusal):
        place_replicas(images, 1, 2, random.Random(1))
