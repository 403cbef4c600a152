"""Reads partitions to their ends. A lost record then shows as a difference, not as a wait for a count that never
comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Message
from confluent_kafka import TopicPartition as KafkaPartition

from klamm import Consumer, ConsumerRecord, TopicPartition
from tests.support.waiting import patience, wait_until

POLL_MS: Final = 1_000


def read_all(servers: str, partitions: Sequence[TopicPartition], **settings: Any) -> list[ConsumerRecord]:
    """Returns the records of the partitions, from their starts to the ends that they have at the call.

    `settings` are the consumer's. Records are in the order in which they came: that of their offsets in a partition."""
    with Consumer(bootstrap_servers=servers, enable_auto_commit=False, **settings) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        return read_to_end(consumer, partitions)


def read_to_end(consumer: Consumer, partitions: Sequence[TopicPartition]) -> list[ConsumerRecord]:
    """Returns the records that the consumer has not read yet, up to the ends that the partitions have at the call.

    A consumer that has subscribed is polled until its group has assigned all `partitions` to it. Raises AssertionError
    after `patience()`, with the positions."""
    ends = consumer.end_offsets(partitions)
    found: list[ConsumerRecord] = []

    def positions() -> dict[TopicPartition, int]:
        return {tp: consumer.position(tp) for tp in consumer.assignment() if tp in ends}

    def is_at_end() -> bool:
        reached = positions()
        return len(reached) == len(ends) and all(reached[tp] >= end for tp, end in ends.items())

    def poll() -> None:
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            found.extend(records)

    wait_until(is_at_end, lambda: f"{positions()} of {ends}", between=poll)
    return found


def read_as_kafka_group(settings: dict[str, Any], group: str, topic: str) -> list[Message]:
    """Returns the topic's records as the only member of a new group reads them with librdkafka.

    It reads up to the ends that the partitions have at the call. `settings` say how it connects. Raises AssertionError
    after `patience()`, with the offsets. No transaction may have written to the topic."""
    consumer = KafkaConsumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        numbers = consumer.list_topics(topic, patience()).topics[topic].partitions
        ends = {
            number: consumer.get_watermark_offsets(KafkaPartition(topic, number), patience())[1] for number in numbers
        }
        consumer.subscribe([topic])
        next_offsets = dict.fromkeys(numbers, 0)
        found: list[Message] = []

        def consume() -> None:
            for message in consumer.consume(500, POLL_MS / 1_000):
                assert message.error() is None, message.error()
                found.append(message)
                next_offsets[message.partition()] = message.offset() + 1

        wait_until(
            lambda: all(next_offsets[number] >= end for number, end in ends.items()),
            lambda: f"read up to {next_offsets} of {ends}",
            between=consume,
        )
        return found
    finally:
        consumer.close()
