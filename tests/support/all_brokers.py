"""Waits until every broker knows a change. Each broker answers clients, and the brokers learn about changes at
different times."""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode

from klamm_broker.kafka.api import ApiKey
from tests.support.kafka_wire import KafkaWire
from tests.support.waiting import wait_until


def wait_until_everywhere(bootstrap: str, topic: str, *, exists: bool) -> None:
    """Returns when Metadata of each broker of `bootstrap` has the topic, or none has it any more."""
    expected = ErrorCode.none if exists else ErrorCode.unknown_topic_or_partition
    for broker in bootstrap.split(","):
        with KafkaWire(broker) as wire:
            wait_until(
                partial(_says, wire, topic, expected),
                f"{broker} {'does not know' if exists else 'still has'} {topic}",
            )


def _says(wire: KafkaWire, topic: str, expected: ErrorCode) -> bool:
    asked = {
        "topics": [{"name": topic, "topic_id": None}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    return wire.ask(ApiKey.METADATA, 12, asked).topics[0].error_code is expected
