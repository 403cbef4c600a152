"""Tests how long a partition is read from the follower that its leader named."""

from __future__ import annotations

from klamm.consumer.fetch.read_replicas import ReadReplicas
from klamm.model import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LEADER, FOLLOWER = 1, 2
EPOCH = 7


def preferring() -> ReadReplicas:
    """Returns replicas where A has been read from the follower since 100 s."""
    replicas = ReadReplicas(lease_s=300)
    replicas.prefer(A, FOLLOWER, EPOCH, 100)
    return replicas


def test_the_leader_is_read_until_it_names_a_preferred_replica() -> None:
    replicas = preferring()
    assert replicas.node_for(A, LEADER, EPOCH, 399) == FOLLOWER
    assert replicas.node_for(B, LEADER, EPOCH, 100) == LEADER


def test_a_preferred_replica_expires_and_the_leader_is_read_again() -> None:
    replicas = preferring()
    assert replicas.node_for(A, LEADER, EPOCH, 400) == LEADER
    assert replicas.node_for(A, LEADER, EPOCH, 100) == LEADER, "for good"


def test_a_preferred_replica_of_the_former_leader_is_not_used() -> None:
    replicas = preferring()
    assert replicas.node_for(A, 3, EPOCH + 1, 100) == 3
    assert not replicas.fall_back(A, 200)


def test_after_a_fall_back_the_fetch_asks_for_the_leaders_data_for_a_short_time() -> None:
    replicas = preferring()
    assert not replicas.needs_leader([A, B], 100)
    assert replicas.fall_back(A, 110)
    assert replicas.node_for(A, LEADER, EPOCH, 100) == LEADER
    assert replicas.needs_leader([A, B], 109)
    assert not replicas.needs_leader([B], 109)
    assert not replicas.needs_leader([A, B], 110)


def test_fall_back_returns_true_only_the_first_time() -> None:
    replicas = preferring()
    assert replicas.fall_back(A, 110)
    assert not replicas.fall_back(A, 110)


def test_a_fall_back_of_one_partition_does_not_affect_a_partition_read_from_the_follower() -> None:
    replicas = preferring()
    replicas.prefer(B, FOLLOWER, EPOCH, 100)
    assert replicas.fall_back(A, 110)
    assert not replicas.needs_leader([A, B], 105)


def test_the_preferred_replica_of_an_unassigned_partition_is_forgotten() -> None:
    replicas = preferring()
    replicas.keep_only(frozenset([B]))
    assert replicas.node_for(A, LEADER, EPOCH, 100) == LEADER
