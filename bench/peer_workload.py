"""What one client, confluent-kafka (librdkafka), does to both peers; each function runs in a process of its own.

Records go round-robin over the partitions, as records with keys do. Nothing is compressed. Every record is acknowledged
and counted: a run that loses one fails.
"""

from __future__ import annotations

import multiprocessing
import statistics
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 120
POLLED = 10_000
GROUP = "peers"
STAMP = struct.Struct(">q")

PRODUCER_SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "16k": {"batch.size": 16_384},
    "tuned": {"batch.size": 1_048_576, "batch.num.messages": 100_000, "linger.ms": 20},
}
"""The settings of librdkafka: its defaults (batches of up to 1 MB, 5 ms), the batch size of Java's defaults, and large
batches."""
CONSUMER_SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "16k": {},
    "tuned": {
        "fetch.message.max.bytes": 4_194_304,
        "queued.min.messages": 1_000_000,
        "fetch.queue.backoff.ms": 1,
    },
}


@dataclass(frozen=True, kw_only=True)
class Load:
    """The records of one topic."""

    topic: str
    partitions: int
    size_bytes: int
    count: int
    acks: str
    settings: str
    security: Mapping[str, str] = field(default_factory=dict)
    """The security settings of the client, for librdkafka."""


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the result of `function`, which runs in a fresh interpreter."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def create_topic(
    bootstrap: str, name: str, partitions: int, replicas: int, security: Mapping[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4, **(security or {})})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas)
    admin.create_topics([topic], operation_timeout=30)[name].result(TIMEOUT_S)


def delete_topic(bootstrap: str, name: str, security: Mapping[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4, **(security or {})})
    try:
        admin.delete_topics([name])[name].result(TIMEOUT_S)
    except KafkaException as error:
        # A broker repeats the request if the controller carried it out but could not answer any more.
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise


def make_producer(bootstrap: str, acks: str, settings: dict[str, Any]) -> Producer:
    """Fails the run at the first record that is not acknowledged."""

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        assert error is None, error

    config = {"bootstrap.servers": bootstrap, "acks": acks, "delivery.report.only.error": True, **settings}
    return Producer({**config, "on_delivery": on_delivery})


def produce(bootstrap: str, load: Load) -> float:
    """Returns the seconds from the first `produce` to the last acknowledgement. Connections and metadata exist
    before."""
    producer = make_producer(bootstrap, load.acks, {**PRODUCER_SETTINGS[load.settings], **load.security})
    value = bytes(load.size_bytes)
    for partition in range(load.partitions):
        producer.produce(load.topic, value, partition=partition)
    assert not producer.flush(TIMEOUT_S), "the warm-up was not acknowledged"
    send, partitions, topic = producer.produce, load.partitions, load.topic
    started = time.perf_counter()
    for number in range(load.count):
        while True:
            try:
                send(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.005)
    assert not producer.flush(TIMEOUT_S), "not every record was acknowledged"
    return time.perf_counter() - started


def produce_and_replicate(bootstrap: str, load: Load) -> tuple[float, float]:
    """Returns the result of `produce`, and the seconds until consumers can read every record. With acks=1 this is
    later, because the followers may be behind."""
    watcher = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **load.security})
    partitions = [TopicPartition(load.topic, partition) for partition in range(load.partitions)]

    def readable() -> int:
        return sum(watcher.get_watermark_offsets(partition, TIMEOUT_S, cached=False)[1] for partition in partitions)

    deadline_s = time.perf_counter() + TIMEOUT_S
    while True:
        try:
            readable()
            break
        except KafkaException:
            # The broker may not know all leaders of a new topic yet.
            if time.perf_counter() > deadline_s:
                raise
    took_s = produce(bootstrap, load)
    acknowledged_s = time.perf_counter()
    while readable() < load.count + load.partitions:
        assert time.perf_counter() < acknowledged_s + TIMEOUT_S, f"{readable()} records are readable"
        time.sleep(0.005)
    watcher.close()
    return took_s, took_s + time.perf_counter() - acknowledged_s


def consume(bootstrap: str, load: Load) -> float:
    """Seconds from the assignment of the partitions to the last record. Time from the first record on would reward a
    slow first answer. The run fails if a record is missing."""
    config = {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    consumer = Consumer({**config, **CONSUMER_SETTINGS[load.settings], **load.security})
    wanted = load.count + load.partitions
    seen = 0
    started = time.perf_counter()
    deadline_s = started + TIMEOUT_S
    consumer.assign([TopicPartition(load.topic, partition, 0) for partition in range(load.partitions)])
    while seen < wanted:
        # More than there is would be waited for.
        seen += len(consumer.consume(min(POLLED, wanted - seen), 0.1))
        assert time.perf_counter() < deadline_s, f"{seen} of {wanted} records after {TIMEOUT_S} s"
    took_s = time.perf_counter() - started
    assert seen == wanted, (seen, wanted)
    consumer.close()
    return took_s


def produce_at(bootstrap: str, topic: str, rate: int, seconds: float, settings: dict[str, Any]) -> None:
    """Produces stamped records of 100 bytes at a steady rate. A late one is sent at once."""
    producer = make_producer(bootstrap, "all", settings)
    filler = bytes(100 - STAMP.size)
    started = time.monotonic_ns()
    for number in range(int(rate * seconds)):
        wait_ns = started + number * 1_000_000_000 // rate - time.monotonic_ns()
        if wait_ns > 0:
            producer.poll(0)
            time.sleep(wait_ns / 1e9)
        value = STAMP.pack(time.monotonic_ns()) + filler
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.005)
    assert not producer.flush(TIMEOUT_S)


def latencies(bootstrap: str, topic: str, rate: int, seconds: float, settings: dict[str, Any]) -> dict[str, float]:
    """Returns percentiles in ms from `produce` until the consumer has the record. The first two seconds do not
    count."""
    warm_up_s = 2.0
    sender = multiprocessing.get_context("spawn").Process(
        target=produce_at, args=(bootstrap, topic, rate, seconds + warm_up_s, settings)
    )
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    sender.start()
    total, skipped = int(rate * (seconds + warm_up_s)), int(rate * warm_up_s)
    found: list[float] = []
    seen = 0
    while seen < total:
        # One call must not wait for more than is there.
        messages = [message for message in [consumer.poll(TIMEOUT_S)] if message is not None]
        messages += consumer.consume(1_000, 0)
        now = time.monotonic_ns()
        for message in messages:
            seen += 1
            if seen > skipped:
                found.append((now - STAMP.unpack_from(message.value())[0]) / 1e6)
    sender.join()
    consumer.close()
    assert sender.exitcode == 0, "the producer failed"
    cuts = statistics.quantiles(found, n=1000)
    return {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998]}


def first_produce(bootstrap: str, topic: str, retry_s: float, security: Mapping[str, str] | None = None) -> float:
    """The moment (`time.monotonic`) of the first acknowledgement, for a client that was waiting for the server.
    `security` is how it gets in."""
    settings = {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 20,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 20,
        "topic.metadata.refresh.fast.interval.ms": 20,
        "message.timeout.ms": int(retry_s * 1000),
        "linger.ms": 0,
        "allow.auto.create.topics": True,
        "log_level": 0,
        **(security or {}),
    }
    moments: list[float] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        assert error is None, error
        moments.append(time.monotonic())

    producer = Producer(settings)
    producer.produce(topic, b"first", on_delivery=on_delivery)
    producer.flush(retry_s)
    assert moments, f"nothing was acknowledged within {retry_s} s"
    return moments[0]
