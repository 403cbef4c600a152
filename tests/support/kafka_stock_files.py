"""The settings of the three files of servers that Apache Kafka 4.4 comes with, in its folder `config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_EVERY_FILE: Final = {
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
_PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"

STOCK_FILES: Final[Mapping[str, Mapping[str, str]]] = {
    "server.properties": {
        **_EVERY_FILE,
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{_PROTOCOLS}",
        "log.dirs": "/tmp/kraft-combined-logs",
    },
    "broker.properties": {
        **_EVERY_FILE,
        "process.roles": "broker",
        "node.id": "2",
        "listeners": "PLAINTEXT://localhost:9092",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{_PROTOCOLS}",
        "log.dirs": "/tmp/kraft-broker-logs",
    },
    "controller.properties": {
        **_EVERY_FILE,
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://:9093",
        "advertised.listeners": "CONTROLLER://localhost:9093",
        "log.dirs": "/tmp/kraft-controller-logs",
    },
}
"""Name and value of each setting, by the name of the file."""


def as_text(settings: Mapping[str, str]) -> str:
    """Returns the settings as the lines of a properties file."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())
