"""Tests that clients get the addresses of the listener that they connected to, for gRPC and Kafka in one process."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from klamm import Admin
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.ports import free_ports
from tests.support.waiting import patience

INSIDE, OUTSIDE = "127.0.0.1", "localhost"
"""Two names of this machine. Each listener has its own, so that a test can tell the listeners apart."""


class TwoNetworks:
    """A `klamm up` with two listeners of each protocol."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.grpc, self.grpc_out, self.kafka, self.kafka_out = free_ports(range(4))
        self.settings = {
            "listeners": (
                f"INTERNAL://{INSIDE}:{self.grpc},GRPC_OUT://{INSIDE}:{self.grpc_out},"
                f"KAFKA://{INSIDE}:{self.kafka},KAFKA_OUT://{INSIDE}:{self.kafka_out}"
            ),
            "advertised.listeners": f"GRPC_OUT://{OUTSIDE}:{self.grpc_out},KAFKA_OUT://{OUTSIDE}:{self.kafka_out}",
            "listener.security.protocol.map": "INTERNAL:GRPC,GRPC_OUT:GRPC,KAFKA_OUT:PLAINTEXT",
        }
        self.directory = directory


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNetworks]:
    made = TwoNetworks(tmp_path_factory.mktemp("listeners"))
    cluster: KlammProcess
    with running_cluster(made.directory, made.settings, port=made.grpc) as cluster:
        assert cluster.running
        yield made


@pytest.mark.parametrize("outside", [False, True])
def test_a_kafka_client_gets_the_addresses_of_the_listener_it_connected_to(
    networks: TwoNetworks, outside: bool
) -> None:
    host, port = (OUTSIDE, networks.kafka_out) if outside else (INSIDE, networks.kafka)
    settings = {"bootstrap.servers": f"{INSIDE}:{port}"}
    topic = f"kafka-{outside}".lower()
    producer = Producer(settings)
    producer.produce(topic, b"value")
    assert producer.flush(patience()) == 0
    admin = AdminClient(settings)
    told = admin.list_topics(topic, timeout=patience())
    assert [(broker.host, broker.port) for broker in told.brokers.values()] == [(host, port)]
    described = admin.describe_cluster().result(patience())
    assert [(node.host, node.port) for node in described.nodes] == [(host, port)]
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **group})
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, patience())
    assert message.value() == b"value"
    consumer.close()
    (found,) = [
        consumer_group.result(patience()) for consumer_group in admin.describe_consumer_groups([topic]).values()
    ]
    assert (found.coordinator.host, found.coordinator.port) == (host, port)


@pytest.mark.parametrize("outside", [False, True])
def test_a_grpc_client_gets_the_addresses_of_the_listener_it_connected_to(networks: TwoNetworks, outside: bool) -> None:
    host, port = (OUTSIDE, networks.grpc_out) if outside else (INSIDE, networks.grpc)
    with Admin(bootstrap_servers=f"{INSIDE}:{port}") as admin:
        described = admin.describe_cluster()
    everybody = [*described.controllers, *described.brokers, *described.coordinators]
    assert [(one.host, one.port) for one in everybody] == 3 * [(host, port)]
