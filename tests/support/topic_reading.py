"""Reads the content of topics from their beginning to their end."""

from __future__ import annotations

from typing import Literal

from klamm import Admin, Consumer, ConsumerRecord, TopicPartition
from tests.support.waiting import wait_until

IsolationLevel = Literal["read_committed", "read_uncommitted"]


def read_topics(
    bootstrap: str,
    *topics: str,
    isolation_level: IsolationLevel = "read_committed",
    past_open: bool = True,
) -> list[ConsumerRecord]:
    """Returns the topics' records, by topic, partition and offset. Raises AssertionError if a transaction stays open.

    If `past_open` is true, it waits for the end of transactions that are open at the call. Otherwise it reads up to the
    first open transaction."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        described = admin.describe_topics(topics)
    tps = [TopicPartition(topic, partition.partition) for topic in topics for partition in described[topic].partitions]
    found: list[ConsumerRecord] = []
    with Consumer(bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level=isolation_level) as consumer:
        ends = _high_watermarks(bootstrap, tps) if past_open else consumer.end_offsets(tps)
        consumer.assign(tps)
        consumer.seek_to_beginning()

        def poll() -> None:
            for records in consumer.poll(timeout_ms=200, max_records=5_000).values():
                found.extend(records)

        def open_ends() -> dict[TopicPartition, int]:
            return {tp: end for tp, end in ends.items() if consumer.position(tp) < end}

        wait_until(lambda: not open_ends(), lambda: f"something stays open before {open_ends()}", between=poll)
    return sorted(found, key=lambda each: (each.topic, each.partition, each.offset))


def _high_watermarks(bootstrap: str, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_uncommitted") as consumer:
        return dict(consumer.end_offsets(tps))
