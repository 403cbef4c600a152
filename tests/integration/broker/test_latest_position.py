"""The latest offset is the one from when a consumer's ListOffsets arrived: a consumer misses no later record."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from klamm import Admin, NewTopic, Producer
from klamm.model import LATEST_TIMESTAMP
from klamm.records.encoder import encode_batch
from klamm_broker.kafka.api import ApiKey
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.waiting import patience, wait_until

TOPIC = "flights"
LIST_OFFSETS_VERSION, PRODUCE_VERSION = 5, 8
LATEST = {
    "replica_id": -1,
    "isolation_level": 0,
    "topics": [
        {
            "name": TOPIC,
            "partitions": [{"partition_index": 0, "timestamp": LATEST_TIMESTAMP, "current_leader_epoch": -1}],
        }
    ],
}
PRODUCE = {
    "transactional_id": None,
    "acks": -1,
    "timeout": 30_000,
    "topic_data": [
        {"name": TOPIC, "partition_data": [{"index": 0, "records": bytes(encode_batch([(1, None, b"v", ())]))}]}
    ],
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KlammProcess]:
    with running_cluster(tmp_path) as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
        with Producer(bootstrap_servers=running.bootstrap) as producer:
            producer.send(TOPIC, b"the partition has a leader").result(patience())
        yield running


def test_a_position_is_looked_up_before_records_that_arrive_after_its_request(cluster: KlammProcess) -> None:
    """Both requests wait in their sockets when the broker reads again, as they do when its event loop was busy."""
    with KafkaWire(cluster.kafka_bootstrap) as consumer, KafkaWire(cluster.kafka_bootstrap) as producer:

        def latest() -> int:
            (topic,) = consumer.receive(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION).topics
            offset: int = topic.partitions[0].offset
            return offset

        for end_offset in range(1, 7):
            # The broker loads kio for the first of these. After each of them, its poller no longer has the producer's
            # connection in the list of sockets to read.
            consumer.send(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, LATEST)
            assert latest() == end_offset
            os.kill(cluster.pid, signal.SIGSTOP)
            try:
                wait_until(lambda: psutil.Process(cluster.pid).status() == psutil.STATUS_STOPPED)
                consumer.send(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, LATEST)
                producer.send(ApiKey.PRODUCE, PRODUCE_VERSION, PRODUCE)
            finally:
                os.kill(cluster.pid, signal.SIGCONT)
            assert latest() == end_offset
            producer.receive(ApiKey.PRODUCE, PRODUCE_VERSION)
