"""A producer of librdkafka with acks=0 finds the new leader of its partition, at Klamm and at Apache Kafka.

The old leader lives, so it must close the connection when it refuses records. Otherwise, librdkafka asks for new
metadata only after `topic.metadata.refresh.interval.ms`, five minutes.
"""

from __future__ import annotations

import pathlib

import confluent_kafka
import pytest

from tests.clients.conftest import Cluster
from tests.clients.test_dead_replica import create, reassign, replicas
from tests.support.apache_kafka import ApacheKafka, running_kafka
from tests.support.kafka_wire import KafkaWire
from tests.support.waiting import patience, wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


def test_a_producer_with_acks_0_finds_the_new_leader_at_klamm(cluster: Cluster, name: str) -> None:
    produce_while_the_leader_moves(cluster, name)


def test_a_producer_with_acks_0_finds_the_new_leader_at_kafka(tmp_path: pathlib.Path, name: str) -> None:
    with running_kafka(tmp_path, brokers=2) as kafka:
        produce_while_the_leader_moves(kafka, name)


def produce_while_the_leader_moves(cluster: Cluster | ApacheKafka, topic: str) -> None:
    with KafkaWire(cluster.bootstrap) as wire:
        create(wire, {topic: [1]})
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": 0, "linger.ms": 0})
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "enable.auto.commit": False}
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        try:
            wait_until(lambda: produced_is_read(producer, consumer, topic, b"before"))
            reassign(wire, {topic: [2]})
            wait_until(lambda: replicas(wire, topic) == [2])
            wait_until(lambda: produced_is_read(producer, consumer, topic, b"after"))
        finally:
            consumer.close()


def produced_is_read(
    producer: confluent_kafka.Producer, consumer: confluent_kafka.Consumer, topic: str, value: bytes
) -> bool:
    """Produces a record, and returns True if the consumer has such a record already."""
    producer.produce(topic, value)
    producer.flush(patience())
    message = consumer.poll(0.1)
    return message is not None and message.error() is None and message.value() == value
