"""The Producer finds the leader of a partition when the leader has moved, is missing, or does not answer."""

from __future__ import annotations

import threading

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from tests.support.scripted_broker import Answer, ScriptedCluster
from tests.support.scripted_producer import producing
from tests.support.waiting import patience, wait_until


def test_leader_hint_is_followed_without_asking_for_metadata() -> None:
    cluster = ScriptedCluster(broker_count=2)
    with producing(cluster=cluster, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as (producer, _):
        producer.send("t", b"first").result(patience())
        metadata_count = cluster.metadata_count
        cluster.move_leader(TopicPartition("t", 0), 1)
        cluster.produce_answers.append(Answer(leader_hint=(1, 1)))

        producer.send("t", b"second").result(patience())

        assert cluster.values("t") == [b"first", b"second"]
        assert cluster.metadata_count == metadata_count
        assert [seen.broker_id for seen in cluster.produced] == [0, 0, 1]
        # With the epoch, a broker with older metadata can wait until it knows that it leads.
        assert [seen.header.partitions[0].current_leader_epoch for seen in cluster.produced] == [0, 0, 1]


def test_a_moved_leader_is_found_with_a_metadata_request() -> None:
    with producing(cluster=ScriptedCluster(broker_count=2)) as (producer, cluster):
        producer.send("t", b"first").result(patience())
        cluster.move_leader(TopicPartition("t", 0), 1)

        producer.send("t", b"second").result(patience())

        assert cluster.values("t") == [b"first", b"second"]


def test_metadata_with_a_new_leader_ends_the_retry_backoff() -> None:
    """The former leader gives no hint. The client requests metadata at once, which names the new leader."""
    cluster = ScriptedCluster(broker_count=2)
    with producing(cluster=cluster, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as (producer, _):
        producer.send("t", b"first").result(patience())
        cluster.move_leader(TopicPartition("t", 0), 1)

        producer.send("t", b"second").result(patience())

        assert cluster.values("t") == [b"first", b"second"]


def test_the_client_requests_metadata_repeatedly_during_the_retry_backoff() -> None:
    """If the client asked only after each failed attempt, it would find the leader one pause later."""
    cluster = ScriptedCluster(broker_count=2)
    with producing(cluster=cluster, retry_backoff_ms=100, retry_backoff_max_ms=60_000) as (producer, _):
        producer.send("t", b"first").result(patience())
        cluster.usual_answer = Answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        second = producer.send("t", b"second")
        asked_since: dict[int, int] = {}  # the number of attempts -> the number of metadata requests

        def has_asked_in_a_pause() -> bool:
            before = asked_since.setdefault(len(cluster.produced), cluster.metadata_count)
            return cluster.metadata_count >= before + 3

        wait_until(has_asked_in_a_pause)
        cluster.usual_answer = Answer()
        cluster.move_leader(TopicPartition("t", 0), 1)
        second.result(patience())


def test_the_client_requests_metadata_when_the_leader_does_not_answer() -> None:
    """The leader may be frozen, and another one may have been elected."""
    release = threading.Event()
    with producing(request_timeout_ms=300, delivery_timeout_ms=60_000) as (producer, cluster):
        producer.send("t", b"first").result(patience())
        metadata_count = cluster.metadata_count
        cluster.produce_answers.append(Answer(wait_for=release, append=False))

        producer.send("t", b"second").result(patience())
        release.set()

        wait_until(lambda: cluster.metadata_count > metadata_count)


def test_partition_without_leader_waits_for_one() -> None:
    with producing(cluster=ScriptedCluster(broker_count=2)) as (producer, cluster):
        producer.send("t", b"first").result(patience())
        cluster.move_leader(TopicPartition("t", 0), -1)
        future = producer.send("t", b"second")
        with pytest.raises(TimeoutError):
            future.result(0.05)

        cluster.move_leader(TopicPartition("t", 0), 1)

        assert future.result(patience()).offset == 1
