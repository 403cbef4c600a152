"""Counts words from one topic into another, each word of each line once."""

import sys
from collections import Counter

from klamm import Consumer, OffsetAndMetadata, Producer, TopicPartition


class WordCount:
    def __init__(self, servers: str, source: str, target: str) -> None:
        self._target = TopicPartition(target, 0)
        self._producer = Producer(bootstrap_servers=servers, transactional_id=f"{target}-counter")
        self._producer.init_transactions()
        self.counts = self._read_back(servers)
        self._consumer = Consumer(
            bootstrap_servers=servers,
            group_id=f"{target}-counter",
            group_instance_id="counter",  # a successor takes the place of one that was killed, at once
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        self._consumer.subscribe([source])

    def step(self) -> int:
        """Counts the next lines, and returns their number."""
        batches = self._consumer.poll(1_000)
        lines = [record.value or b"" for records in batches.values() for record in records]
        if not lines:
            return 0
        words = Counter(word for line in lines for word in line.split())
        with self._producer.transaction():
            for word, count in words.items():
                self._producer.send(self._target.topic, b"%d" % (self.counts[word] + count), key=word, partition=0)
            offsets = {tp: OffsetAndMetadata(records[-1].offset + 1) for tp, records in batches.items()}
            self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
        self.counts += words
        return len(lines)

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()

    def _read_back(self, servers: str) -> Counter[bytes]:
        counts: Counter[bytes] = Counter()
        with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            consumer.assign([self._target])
            consumer.seek_to_beginning()
            end = consumer.end_offsets([self._target])[self._target]
            while consumer.position(self._target) < end:
                for records in consumer.poll(1_000).values():
                    counts.update({record.key: int(record.value) - counts[record.key] for record in records})
        return counts


if __name__ == "__main__":
    counter = WordCount(*sys.argv[1:])
    while True:
        counter.step()
