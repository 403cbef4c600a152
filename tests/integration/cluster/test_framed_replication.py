"""Tests brokers with Kafka listeners: their followers fetch over these once records flow, or by gRPC if they cannot."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import socket

from klamm import Admin, NewTopic, Producer
from klamm_broker.kafka.api import ApiKey
from tests.support.broker_cluster import BrokerCluster, broker_cluster, describe, read_samples
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

TOPIC = "followed"
VALUE = bytes(50_000)
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
REFUSAL = "API key 10002 is not supported at this listener"


def framed_fetches(cluster: BrokerCluster, broker_id: int) -> float:
    """Returns how many fetches of followers have come to the Kafka listener of a broker."""
    return sum(
        sample.value
        for sample in read_samples(int(cluster.brokers[broker_id].settings["metrics.port"]))
        if sample.labels.get("api") == ApiKey.KLAMM_REPLICA_FETCH.name and sample.name.endswith("_total")
    )


def produce(cluster: BrokerCluster, first: int, count: int) -> None:
    """Produces numbered records, and waits until all replicas in sync have them."""
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all", metadata_max_age_ms=500) as producer:
        sent = [producer.send(TOPIC, b"number %d." % number + VALUE) for number in range(first, first + count)]
        for future in sent:
            future.result(patience())


def wait_whole(cluster: BrokerCluster, admin: Admin) -> int:
    """Waits until all replicas are in sync and have the same bytes. Returns the leader."""
    wait_until(lambda: len(describe(admin, TOPIC).partitions[0].isr) == len(cluster.brokers), cluster.logs)
    wait_until(lambda: len({cluster.records(broker, TOPIC) for broker in cluster.brokers}) == 1, cluster.logs)
    return describe(admin, TOPIC).partitions[0].leader


def test_followers_leave_grpc_and_come_back_after_their_leader_was_killed(tmp_path: pathlib.Path) -> None:
    with (
        broker_cluster(tmp_path, kafka_listeners=["PLAINTEXT://127.0.0.1:0"]) as cluster,
        cluster.admin() as admin,
    ):
        admin.create_topics([NewTopic(TOPIC, 1, 3, configs={"min.insync.replicas": "2"})])
        produce(cluster, 0, 20)
        first = wait_whole(cluster, admin)
        wait_until(lambda: framed_fetches(cluster, first) > 0, cluster.logs)
        produce(cluster, 20, 20)
        cluster.kill(first)
        produce(cluster, 40, 20)
        second = describe(admin, TOPIC).partitions[0].leader
        assert second != first
        wait_until(lambda: framed_fetches(cluster, second) > 0, cluster.logs)
        # Its Kafka listener is at another port now.
        cluster.brokers[first].start()
        produce(cluster, 60, 20)
        wait_whole(cluster, admin)
        cluster.kill(second)
        produce(cluster, 80, 20)
        cluster.brokers[second].start()
        wait_whole(cluster, admin)
        data = cluster.records(first, TOPIC)
    with verdict():
        assert all(b"number %d." % number in data for number in range(100))


def test_followers_that_cannot_connect_to_a_kafka_listener_fetch_by_grpc(tmp_path: pathlib.Path) -> None:
    with (
        broker_cluster(
            tmp_path, brokers=2, kafka_listeners=["PLAINTEXT://127.0.0.1:0"], max_connections="1"
        ) as cluster,
        cluster.admin() as admin,
        contextlib.ExitStack() as only_connections,
    ):
        for broker in admin.describe_cluster().brokers:
            only_connections.enter_context(socket.create_connection((broker.kafka_host, broker.kafka_port)))
        admin.create_topics([NewTopic(TOPIC, 1, 2, configs={"min.insync.replicas": "2"})])
        produce(cluster, 0, 40)
        leader = wait_whole(cluster, admin)
        log = cluster.brokers[leader].log_path
        wait_until(lambda: "refused a connection" in log.read_text(), cluster.logs)
        produce(cluster, 40, 40)
        wait_whole(cluster, admin)
        assert framed_fetches(cluster, leader) == 0
        data = cluster.records(leader, TOPIC)
    with verdict():
        assert all(b"number %d." % number in data for number in range(80))


def test_a_leader_that_refuses_followers_at_its_kafka_listener_is_asked_once(tmp_path: pathlib.Path) -> None:
    """Where there is an authorizer, followers fetch only by gRPC. This follower has none yet."""
    with (
        broker_cluster(tmp_path, brokers=2, kafka_listeners=["PLAINTEXT://127.0.0.1:0"]) as cluster,
        cluster.admin() as admin,
    ):
        leader = cluster.brokers[1]
        leader.end(signal.SIGTERM)
        leader.settings.update({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"})
        cluster.restore(admin)
        admin.create_topics([NewTopic(TOPIC, assignments={0: [1, 2]}, configs={"min.insync.replicas": "2"})])
        produce(cluster, 0, 40)
        wait_until(lambda: REFUSAL in leader.log_path.read_text(), cluster.logs)
        produce(cluster, 40, 40)
        assert wait_whole(cluster, admin) == 1
        data = cluster.records(1, TOPIC)
    with verdict():
        assert leader.log_path.read_text().count(REFUSAL) == 1
        assert all(b"number %d." % number in data for number in range(80))
