"""Klamm with confluent-kafka and acks=all, beside a server with a protocol of its own (`peer_logs.Log`)."""

from __future__ import annotations

import functools
import time
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench import peer_workload
from bench.peer_logs import OUTSTANDING, TIMEOUT_S, Pace, age_ms, stamped
from bench.peer_servers import klamm as start

__all__ = [
    "consume",
    "create",
    "delete",
    "first_produce",
    "produce",
    "produce_at",
    "produce_singly",
    "receive",
    "start",
]

POLLED = 10_000
LINGERS_FROM = 5_000
"""Records a second."""
first_produce = peer_workload.first_produce
create = functools.partial(peer_workload.create_topic, partitions=1, replicas=1)
delete = peer_workload.delete_topic


def produce(address: str, log: str, size_bytes: int, count: int) -> float:
    producer = _producer(address, log, {"queue.buffering.max.messages": OUTSTANDING})
    value = bytes(size_bytes)
    started = time.perf_counter()
    for _ in range(count):
        _send(producer, log, value)
    assert not producer.flush(TIMEOUT_S), "not every record was acknowledged"
    return time.perf_counter() - started


def produce_singly(address: str, log: str, size_bytes: int, seconds: float) -> float:
    producer = _producer(address, log, {"linger.ms": 0})
    value = bytes(size_bytes)
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        producer.produce(log, value, partition=0)
        assert not producer.flush(TIMEOUT_S), "the record was not acknowledged"
        count += 1
    return count / (time.perf_counter() - started)


def consume(address: str, log: str, count: int) -> float:
    consumer = _consumer(address, log)
    # And the one that the producer warmed up with.
    seen, wanted = len(consumer.consume(1, TIMEOUT_S)), count + 1
    started = time.perf_counter()
    while seen < wanted:
        # More than there is would be waited for.
        seen += len(consumer.consume(min(POLLED, wanted - seen), 0.1))
        assert time.perf_counter() - started < TIMEOUT_S, f"{seen} of {wanted} records after {TIMEOUT_S} s"
    took_s = time.perf_counter() - started
    consumer.close()
    return took_s


def produce_at(address: str, log: str, rate: int, count: int) -> None:
    # The other clients send all that is due at once; this one sends each record by itself unless it waits a little.
    producer = peer_workload.make_producer(address, "all", {"linger.ms": 0 if rate < LINGERS_FROM else 1})
    pace = Pace(rate)
    for number in range(count):
        if (wait_s := pace.wait_s(number)) > 0:
            producer.poll(0)
            time.sleep(wait_s)
        _send(producer, log, stamped())
    assert not producer.flush(TIMEOUT_S), "not every record was acknowledged"


def receive(address: str, log: str, count: int) -> list[float]:
    consumer = _consumer(address, log)
    found: list[float] = []
    while len(found) < count:
        # One call must not wait for more than is there.
        messages: list[Message] = [one for one in [consumer.poll(TIMEOUT_S)] if one is not None]
        assert messages, f"{len(found)} of {count} records after {TIMEOUT_S} s"
        messages += consumer.consume(1_000, 0)
        now_ns = time.monotonic_ns()
        found += [age_ms(message.value(), now_ns) for message in messages]
    consumer.close()
    return found


def _producer(address: str, log: str, settings: dict[str, Any]) -> Producer:
    """Its connection and metadata are there: one record was acknowledged."""
    producer = peer_workload.make_producer(address, "all", settings)
    producer.produce(log, b"", partition=0)
    assert not producer.flush(TIMEOUT_S), "the warm-up was not acknowledged"
    return producer


def _send(producer: Producer, log: str, value: bytes) -> None:
    while True:
        try:
            producer.produce(log, value, partition=0)
            return
        except BufferError:
            producer.poll(0.005)


def _consumer(address: str, log: str) -> Consumer:
    # It would stop for a second whenever it is well ahead of its reader; the other clients do not.
    settings = {"group.id": "peers", "enable.auto.commit": False, "fetch.queue.backoff.ms": 1}
    consumer = Consumer({"bootstrap.servers": address, **settings})
    consumer.assign([TopicPartition(log, 0, 0)])
    return consumer
