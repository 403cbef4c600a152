"""Tests which replica is closest to a reader."""

from __future__ import annotations

import pytest

from klamm_broker.replica.replica_selector import ReplicaView, rack_aware_selector, replica_selector

RACKS = {1: "a", 2: "b", 3: "b", 4: ""}
"""Broker 5 is not alive."""
select = rack_aware_selector(RACKS.get)


def view(broker_id: int, *, end_offset: int = 10, caught_up_ms: int = 0) -> ReplicaView:
    """Returns a view of a replica. Broker 1 leads."""
    return ReplicaView(broker_id, broker_id == 1, end_offset, caught_up_ms)


def selected(client_rack: str, *replicas: ReplicaView) -> int | None:
    chosen = select(client_rack, replicas)
    return None if chosen is None else chosen.broker_id


def test_the_leader_is_closest_in_its_own_rack() -> None:
    assert selected("a", view(2), view(1)) == 1


def test_a_follower_is_closest_in_its_rack() -> None:
    assert selected("b", view(1), view(2)) == 2


def test_the_replica_with_the_highest_end_offset_is_chosen_then_the_last_caught_up() -> None:
    assert selected("b", view(1), view(2, end_offset=9), view(3)) == 3
    assert selected("b", view(1), view(2, caught_up_ms=5), view(3, caught_up_ms=4)) == 2
    assert selected("b", view(3), view(2)) == 2, "the same one each time"


@pytest.mark.parametrize("client_rack", ["c", "", "A"])
def test_no_replica_is_closest_to_a_client_in_another_rack(client_rack: str) -> None:
    assert selected(client_rack, view(1), view(2), view(5)) is None


PATHS = {1: "dc1/host1", 2: "dc1/host2", 3: "dc2/host3", 4: "dc2/host4", 5: ""}


@pytest.mark.parametrize(
    ("client_rack", "broker_id"),
    [
        ("dc1/host2", 2),  # the same host comes before the leader
        ("dc1/host9", 1),  # in the same data center, the leader comes first
        ("dc2/host9", 4),  # of two followers in the data center, the one with the highest end offset
        ("dc2/host3", 3),
        ("dc2", 4),
        ("dc3/host1", None),
        ("host1", None),
    ],
)
def test_the_replica_that_shares_most_of_the_clients_path_is_closest(client_rack: str, broker_id: int | None) -> None:
    views = [view(1), view(2), view(3, end_offset=8), view(4, end_offset=9), view(5, end_offset=10)]
    chosen = rack_aware_selector(PATHS.get)(client_rack, views)
    assert (None if chosen is None else chosen.broker_id) == broker_id


@pytest.mark.parametrize(
    ("name", "is_rack_aware"),
    [
        (None, False),
        ("LeaderSelector", False),
        ("org.apache.kafka.common.replica.LeaderSelector", False),
        ("RackAwareReplicaSelector", True),
        ("org.apache.kafka.common.replica.RackAwareReplicaSelector", True),
    ],
)
def test_a_replica_selector_is_chosen_by_its_short_or_java_class_name(name: str | None, is_rack_aware: bool) -> None:
    assert (replica_selector(name, RACKS.get) is not None) is is_rack_aware
