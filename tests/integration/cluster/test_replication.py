"""Tests that three brokers keep the same records while brokers are killed, stopped and frozen."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from klamm import Admin, NewTopic, Producer, TopicPartition
from klamm.admin import PartitionDescription
from klamm.errors import BrokerError, ErrorCode
from klamm.records.header import iter_headers
from tests.support.broker_cluster import BrokerCluster, broker_cluster, describe, live_brokers
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

IMPATIENT = {"replica_lag_time_max_ms": "1500", "broker_session_timeout_ms": "3000"}
"""A follower that is frozen leaves the in-sync set soon, and a leader that is frozen is deposed soon."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with broker_cluster(tmp_path_factory.mktemp("brokers"), **IMPATIENT) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(running: BrokerCluster) -> Iterator[Admin]:
    with running.admin() as made:
        yield made


@pytest.fixture
def cluster(running: BrokerCluster, admin: Admin) -> BrokerCluster:
    """Returns the cluster after all brokers are live, because the test before may have stopped some."""
    running.restore(admin)
    return running


class Topic:
    """A topic of one partition with three replicas, and a producer that waits for all replicas in sync."""

    def __init__(self, cluster: BrokerCluster, admin: Admin, name: str, **configs: str) -> None:
        self.name = name
        self._cluster = cluster
        self._admin = admin
        admin.create_topics(
            [NewTopic(name, 1, 3, configs={key.replace("_", "."): text for key, text in configs.items()})]
        )
        # A frozen leader answers nothing, so only the metadata's age makes the client look for the next leader.
        self._producer = Producer(
            bootstrap_servers=cluster.bootstrap,
            acks="all",
            delivery_timeout_ms=60_000,
            request_timeout_ms=2_000,
            metadata_max_age_ms=500,
        )

    def __enter__(self) -> Topic:
        return self

    def __exit__(self, *exception: object) -> None:
        self._producer.close(timeout=1)

    def send(self, *values: bytes) -> None:
        """Sends the values and waits until all are acknowledged."""
        for future in [self._producer.send(self.name, value, partition=0) for value in values]:
            future.result(patience())

    @property
    def partition(self) -> PartitionDescription:
        return describe(self._admin, self.name).partitions[0]

    def wait_isr(self, isr: set[int]) -> PartitionDescription:
        wait_until(lambda: set(self.partition.isr) == isr, lambda: f"{self.partition}\n{self._cluster.logs()}")
        return self.partition

    def wait_whole(self) -> PartitionDescription:
        """Waits until every broker is in sync."""
        return self.wait_isr(set(self._cluster.brokers))

    def a_follower(self) -> int:
        leader = self.partition.leader
        return next(broker for broker in self._cluster.brokers if broker != leader)

    def wait_equal(self) -> bytes:
        """Waits until every replica has the same bytes, and returns them."""
        brokers = self._cluster.brokers
        wait_until(
            lambda: len({self._cluster.records(broker, self.name) for broker in brokers}) == 1, self._cluster.logs
        )
        return self._cluster.records(1, self.name)


def test_acknowledged_records_survive_the_death_of_the_leader(cluster: BrokerCluster, admin: Admin) -> None:
    with Topic(cluster, admin, "outlives") as topic:
        topic.send(*(b"before %d" % number for number in range(100)))
        first = topic.wait_whole().leader
        cluster.kill(first)
        topic.send(*(b"during %d" % number for number in range(100)))
        assert topic.partition.leader != first
        assert first not in topic.partition.isr
        cluster.brokers[first].start()
        topic.wait_whole()
        topic.send(b"after")
        data = topic.wait_equal()
    with verdict():
        assert all(b"before %d" % number in data and b"during %d" % number in data for number in range(100))


def test_records_survive_a_power_failure_of_the_last_leader_if_another_replica_has_them(
    cluster: BrokerCluster, admin: Admin
) -> None:
    """All three brokers are killed by kill -9, the leader last. Only the leader's machine loses the unflushed bytes."""
    with Topic(cluster, admin, "recovered", min_insync_replicas="2") as topic:
        topic.send(*(b"record %d" % number for number in range(20)))
        last = topic.wait_whole().leader
        others = set(cluster.brokers) - {last}
        left = set(cluster.brokers)
        for broker_id in sorted(others):
            cluster.kill(broker_id)
            left.discard(broker_id)
            topic.wait_isr(left)
        cluster.kill(last)
        wait_until(lambda: topic.partition.leader == -1, cluster.logs)
        cluster.lose_records(last, topic.name)
        for broker_id in sorted(others):
            cluster.brokers[broker_id].start()
        wait_until(lambda: others <= set(live_brokers(admin)), cluster.logs)
        assert topic.partition.leader == -1, "the last leader may have records that the others lack"
        cluster.brokers[last].start()
        topic.wait_whole()
        topic.send(b"after")
        data = topic.wait_equal()
    with verdict():
        assert all(b"record %d" % number in data for number in range(20))


def test_a_slow_follower_leaves_the_in_sync_set_and_comes_back(cluster: BrokerCluster, admin: Admin) -> None:
    """The follower's session lasts longer than the test waits, so only the leader can remove it from the set."""
    with Topic(cluster, admin, "slow") as topic:
        topic.send(b"before")
        topic.wait_whole()
        slow = topic.a_follower()
        cluster.brokers[slow].freeze()
        topic.send(*(b"during %d" % number for number in range(100)))
        assert slow not in topic.partition.isr
        cluster.brokers[slow].thaw()
        topic.wait_whole()
        topic.send(b"after")
        assert b"during 99" in topic.wait_equal()


def test_produces_are_refused_until_there_are_enough_in_sync_replicas(cluster: BrokerCluster, admin: Admin) -> None:
    with Topic(cluster, admin, "few", min_insync_replicas="3") as topic:
        topic.send(b"three")
        topic.wait_whole()
        dead = topic.a_follower()
        cluster.kill(dead)
        topic.wait_isr(set(cluster.brokers) - {dead})
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all", retries=0) as impatient:
            with pytest.raises(BrokerError) as refused:
                impatient.send(topic.name, b"two", partition=0).result(patience())
            assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.brokers[dead].start()
        topic.send(b"three again")
        assert set(topic.partition.isr) == set(cluster.brokers)
        assert b"three again" in topic.wait_equal()


def test_records_that_only_a_former_leader_has_are_truncated(cluster: BrokerCluster, admin: Admin) -> None:
    with Topic(cluster, admin, "deposed") as topic:
        topic.send(b"before")
        first = topic.wait_whole().leader
        others = [broker for broker in cluster.brokers if broker != first]
        for broker in others:
            cluster.brokers[broker].freeze()
        with Producer(bootstrap_servers=cluster.brokers[first].address, acks=1) as lonely:
            # The followers' waiting fetches may still get this record from their sockets.
            lonely.send(topic.name, b"on its way", partition=0).result(patience())
            lonely.send(topic.name, b"lost", partition=0).result(patience())
        assert b"lost" in cluster.records(first, topic.name)
        cluster.brokers[first].freeze()
        for broker in others:
            cluster.brokers[broker].thaw()
        wait_until(lambda: topic.partition.leader in others, cluster.logs)
        topic.send(b"kept")
        cluster.brokers[first].thaw()
        topic.wait_whole()
        topic.send(b"after")
        data = topic.wait_equal()
    assert b"kept" in data
    assert b"lost" not in data
    assert len({header.partition_leader_epoch for _, header in iter_headers(data)}) > 1


def test_a_broker_that_stops_hands_over_first(cluster: BrokerCluster, admin: Admin) -> None:
    with Topic(cluster, admin, "stops") as topic:
        topic.send(b"before")
        leader = topic.wait_whole().leader
        assert cluster.brokers[leader].end(signal.SIGTERM) == 0
        assert topic.partition.leader in set(cluster.brokers) - {leader}
        topic.send(b"after")


def test_deleted_records_stay_deleted_under_the_next_leader(cluster: BrokerCluster, admin: Admin) -> None:
    with Topic(cluster, admin, "deleted") as topic:
        topic.send(*(b"%d" % number for number in range(10)))
        leader = topic.wait_whole().leader
        first = TopicPartition(topic.name, 0)
        assert admin.delete_records({first: 7}) == {first: 7}
        cluster.kill(leader)
        topic.send(b"after")
        assert admin.delete_records({first: 0}) == {first: 7}, "the new leader starts there too"
