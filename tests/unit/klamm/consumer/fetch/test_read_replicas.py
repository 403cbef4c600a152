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


def test_the_leader_is_read_from_until_it_names_another() -> None:
    replicas = preferring()
    assert replicas.node_for(A, LEADER, EPOCH, 399) == FOLLOWER
    assert replicas.node_for(B, LEADER, EPOCH, 100) == LEADER


def test_after_its_time_the_leader_is_asked_again() -> None:
    replicas = preferring()
    assert replicas.node_for(A, LEADER, EPOCH, 400) == LEADER
    assert replicas.node_for(A, LEADER, EPOCH, 100) == LEADER, "for good"


def test_another_leader_has_not_named_anybody() -> None:
    replicas = preferring()
    assert replicas.node_for(A, 3, EPOCH + 1, 100) == 3
    assert not replicas.fall_back(A, 200)


def test_who_fell_back_is_served_by_the_leader_for_a_moment() -> None:
    replicas = preferring()
    assert not replicas.needs_leader([A, B], 100)
    assert replicas.fall_back(A, 110)
    assert replicas.node_for(A, LEADER, EPOCH, 100) == LEADER
    assert replicas.needs_leader([A, B], 109)
    assert not replicas.needs_leader([B], 109)
    assert not replicas.needs_leader([A, B], 110)


def test_falling_back_is_news_once() -> None:
    replicas = preferring()
    assert replicas.fall_back(A, 110)
    assert not replicas.fall_back(A, 110)


def test_a_follower_is_not_asked_as_a_leader_for_the_sake_of_another_partition() -> None:
    replicas = preferring()
    replicas.prefer(B, FOLLOWER, EPOCH, 100)
    assert replicas.fall_back(A, 110)
    assert not replicas.needs_leader([A, B], 105)


def test_what_is_not_assigned_any_more_is_forgotten() -> None:
    replicas = preferring()
    replicas.keep_only(frozenset([B]))
    assert replicas.node_for(A, LEADER, EPOCH, 100) == LEADER
