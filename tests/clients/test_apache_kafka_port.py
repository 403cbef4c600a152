"""Tests Klamm's own client at a listener of Apache Kafka. It says at once that the address is wrong."""

from __future__ import annotations

import pytest

from klamm import Admin, Consumer, Producer, TopicPartition
from klamm.errors import WrongListenerError
from tests.support.apache_kafka import ApacheKafka

FOREVER_MS = 3_600_000
TEXT = "it speaks Kafka's protocol; this client connects to the gRPC listener of a Klamm broker"


def test_a_producer(apache_kafka: ApacheKafka) -> None:
    producer = Producer(bootstrap_servers=apache_kafka.bootstrap, max_block_ms=FOREVER_MS)
    with producer, pytest.raises(WrongListenerError, match=TEXT):
        producer.send("t", b"x")


def test_a_consumer(apache_kafka: ApacheKafka) -> None:
    with Consumer(bootstrap_servers=apache_kafka.bootstrap) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(WrongListenerError, match=TEXT):
            consumer.poll(FOREVER_MS)


def test_an_admin(apache_kafka: ApacheKafka) -> None:
    admin = Admin(bootstrap_servers=apache_kafka.bootstrap, default_api_timeout_ms=FOREVER_MS)
    with admin, pytest.raises(WrongListenerError, match=TEXT):
        admin.list_topics()
