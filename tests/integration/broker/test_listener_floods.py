"""Tests clients that use up shared resources: the clients of one listener do not harm those of another."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import struct

import psutil

from klamm_broker.kafka.api import ApiKey
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import running_cluster

ANNOUNCED_BYTES = 100_000_000
GROWTH_MAX_BYTES = 60 * 1024**2
API_VERSIONS = {"client_software_name": "flood", "client_software_version": "1"}


def test_300_connections_that_announce_100_mb_each_take_no_memory_before_they_send_it(tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path) as cluster, contextlib.ExitStack() as silent:
        host, _, port = cluster.kafka_bootstrap.rpartition(":")
        with KafkaWire(cluster.kafka_bootstrap) as client:
            client.ask(ApiKey.API_VERSIONS, 3, API_VERSIONS)
            memory = psutil.Process(cluster.pid).memory_info
            before_bytes = memory().rss
            for number in range(300):
                connection = silent.enter_context(socket.create_connection((host, int(port))))
                # Half of the connections send the beginning of the body too.
                connection.sendall(struct.pack(">i", ANNOUNCED_BYTES) + bytes(1_000 * (number % 2)))
            # This connection is the last one, because connections are accepted and read in order.
            with KafkaWire(cluster.kafka_bootstrap) as last:
                last.ask(ApiKey.API_VERSIONS, 3, API_VERSIONS)
            client.ask(ApiKey.API_VERSIONS, 3, API_VERSIONS)
            assert memory().rss - before_bytes < GROWTH_MAX_BYTES
