"""Tests a consumer that survives kill -9 of the whole cluster: it reconnects and loses no record."""

from __future__ import annotations

import threading

import pytest

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.errors import WakeupError
from tests.support.broker_harness import LONG_MS
from tests.support.klamm_process import running_cluster
from tests.support.reading import read_to_end
from tests.support.violation import require
from tests.support.waiting import patience, wait_until

TOPIC = "survivor"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(2)]
PATIENT = {"default_api_timeout_ms": LONG_MS}
"""The settings of a consumer whose poll would outlast the test if it did not keep to its own time."""


def produce(bootstrap: str, first: int, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        futures = [producer.send(TOPIC, b"%d" % number) for number in range(first, first + count)]
        for future in futures:
            future.result(timeout=patience())


def read_all_of(consumer: Consumer, seen: set[int], count: int) -> None:
    """Reads what the consumer has not read yet. Raises Violation unless it has `seen` all numbers below `count`."""
    seen.update(int(record.value) for record in read_to_end(consumer, PARTITIONS))
    require(seen == set(range(count)), f"{len(seen)} of {count} numbers, without {sorted(set(range(count)) - seen)}")


def test_group_and_assigned_consumers_continue_after_cluster_restarts(tmp_path):
    with running_cluster(tmp_path) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, partition_count=2)])
        config = {
            "bootstrap_servers": cluster.bootstrap,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 20_000,
        }
        with Consumer(**config) as by_hand, Consumer(**config, group_id="group") as member:
            by_hand.assign(PARTITIONS)
            member.subscribe([TOPIC])
            produce(cluster.bootstrap, 0, 500)
            seen_by_hand, seen_by_member = set(), set()
            read_all_of(by_hand, seen_by_hand, 500)
            read_all_of(member, seen_by_member, 500)
            member.commit()
            for restart in range(1, 3):
                cluster.kill()
                by_hand.poll(timeout_ms=300)
                member.poll(timeout_ms=300)
                cluster.start()
                produce(cluster.bootstrap, 500 * restart, 500)
                read_all_of(by_hand, seen_by_hand, 500 * (restart + 1))
                read_all_of(member, seen_by_member, 500 * (restart + 1))
            member.commit()
            stored = member.committed(member.assignment())
            assert sum(each.offset for each in stored.values()) == 1_500


def test_poll_times_out_and_wakes_up_while_a_commit_before_a_rebalance_finds_no_broker(tmp_path):
    with running_cluster(tmp_path) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, partition_count=2), NewTopic("another", partition_count=1)])
        config = {"bootstrap_servers": cluster.bootstrap, "auto_offset_reset": "earliest", "group_id": "group"}
        with Consumer(**config, **PATIENT, auto_commit_interval_ms=600_000) as consumer:
            consumer.subscribe([TOPIC])
            produce(cluster.bootstrap, 0, 100)
            seen: set[int] = set()
            read_all_of(consumer, seen, 100)
            cluster.kill()
            consumer.subscribe([TOPIC, "another"])
            consumer.poll(timeout_ms=200)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                consumer.poll(timeout_ms=LONG_MS)
            cluster.start()

            def poll() -> None:
                assert consumer.poll(timeout_ms=200) == {}, "what had been read was committed before the rebalance"

            wait_until(lambda: len(consumer.assignment()) == 3, between=poll)
            stored = consumer.committed(consumer.assignment())
            assert sum(each.offset for each in stored.values() if each) == 100


def test_poll_times_out_and_wakes_up_while_a_pattern_subscription_finds_no_broker():
    with Consumer(bootstrap_servers="localhost:1", group_id="group", **PATIENT) as consumer:
        consumer.subscribe(pattern="p")
        consumer.poll(timeout_ms=200)
        waker = threading.Timer(0.2, consumer.wakeup)
        waker.start()
        with pytest.raises(WakeupError):
            consumer.poll(timeout_ms=LONG_MS)
        waker.join()
