"""Opens and closes the clients of a measurement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from klamm import Consumer, Producer, TopicPartition


@contextmanager
def open_producer(settings: Mapping[str, object]) -> Iterator[Producer[Any, Any]]:
    """Yields a producer, and closes it. After an error or a signal, records that are not sent yet are dropped, because
    the topic is about to be deleted."""
    producer: Producer[Any, Any] = Producer(settings)
    try:
        yield producer
    except BaseException:
        producer.close(0)
        raise
    producer.close()


@contextmanager
def open_consumer(settings: Mapping[str, object], topic: str, partitions: int) -> Iterator[Consumer[Any, Any]]:
    """Yields a consumer that reads all partitions of the topic from the beginning, without a group."""
    mine = {"enable.auto.commit": False, "allow.auto.create.topics": False}
    with Consumer({**settings, **mine}) as consumer:
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        yield consumer
