"""Counts the orders of each customer: reads them from one topic, and writes the newest count to another."""

from collections import Counter
from collections.abc import Iterable

from klamm import Consumer, ConsumerRecord, Producer


class OrderCounter:
    def __init__(self, producer: Producer, target: str) -> None:
        self.counts: Counter[bytes] = Counter()
        self._producer = producer
        self._target = target

    def count(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            customer = record.key or b"nobody"
            self.counts[customer] += 1
            self._producer.send(self._target, b"%d" % self.counts[customer], key=customer)


def run(servers: str, source: str, target: str) -> None:
    """Runs until it is interrupted."""
    with (
        Producer(bootstrap_servers=servers) as producer,
        Consumer(bootstrap_servers=servers, group_id="order-counter", auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe([source])
        counter = OrderCounter(producer, target)
        while True:
            for records in consumer.poll(1_000).values():
                counter.count(records)
