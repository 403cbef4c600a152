"""Keeps customers' positions: applies the fills of their trades, in order and each once."""

import contextlib
import json
import sys
from dataclasses import asdict, dataclass

from klamm import Admin, Consumer, ConsumerRecord, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from klamm.errors import TopicAlreadyExistsError

FILLS, POSITIONS = "fills", "positions"
PARTITIONS = 6


@dataclass
class Position:
    quantity: int = 0
    average_price: float = 0.0

    def apply(self, quantity: int, price: float) -> None:
        """A fill on the same side changes the average price; one on the other side closes at the old average."""
        total = self.quantity + quantity
        if self.quantity * quantity >= 0 and total:
            self.average_price = (self.average_price * self.quantity + price * quantity) / total
        elif self.quantity * total < 0:
            self.average_price = price  # the position has changed sides
        self.quantity = total


def create_topics(servers: str, fills: str = FILLS, positions: str = POSITIONS) -> None:
    """Both have as many partitions, so a position is in the partition that its fills are in."""
    topics = [
        NewTopic(fills, partition_count=PARTITIONS),
        NewTopic(positions, partition_count=PARTITIONS, configs={"cleanup.policy": "compact"}),
    ]
    with Admin(bootstrap_servers=servers) as admin:
        for topic in topics:
            with contextlib.suppress(TopicAlreadyExistsError):
                admin.create_topics([topic])


def send_fill(
    producer: Producer, account: str, instrument: str, quantity: int, price: float, topic: str = FILLS
) -> None:
    fill = {"quantity": quantity, "price": price}
    producer.send(topic, json.dumps(fill).encode(), key=f"{account}/{instrument}".encode())


class Keeper:
    """Owns all partitions of the fills. For several keepers, read back only the partitions that each was assigned."""

    def __init__(self, servers: str, fills: str = FILLS, positions: str = POSITIONS) -> None:
        self.servers, self.topic = servers, positions
        self.producer = Producer(bootstrap_servers=servers, transactional_id=f"{positions}-keeper")
        self.producer.init_transactions()  # ends what an earlier keeper left open, and shuts it out
        self.positions = self._read_back()
        self.consumer = Consumer(
            bootstrap_servers=servers,
            group_id=f"{positions}-keeper",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self.consumer.subscribe([fills])

    def step(self) -> int:
        """Applies the next fills in one transaction, and returns their number."""
        batches = self.consumer.poll(1_000)
        if not batches:
            return 0
        changed: dict[bytes, Position] = {}
        for records in batches.values():
            for record in records:
                self._apply(record, changed)
        with self.producer.transaction():
            for key, position in changed.items():
                self.producer.send(self.topic, json.dumps(asdict(position)).encode(), key=key)
            offsets = {tp: OffsetAndMetadata(records[-1].offset + 1) for tp, records in batches.items()}
            self.producer.send_offsets_to_transaction(offsets, self.consumer.group_metadata())
        self.positions |= changed
        return sum(map(len, batches.values()))

    def close(self) -> None:
        self.consumer.close()
        self.producer.close()

    def _apply(self, record: ConsumerRecord, changed: dict[bytes, Position]) -> None:
        assert record.key is not None
        assert record.value is not None
        if record.key not in changed:
            changed[record.key] = Position(**asdict(self.positions.get(record.key, Position())))
        changed[record.key].apply(**json.loads(record.value))

    def _read_back(self) -> dict[bytes, Position]:
        found: dict[bytes, Position] = {}
        with Consumer(bootstrap_servers=self.servers, isolation_level="read_committed") as consumer:
            partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(partitions)
            while any(consumer.position(tp) < ends[tp] for tp in partitions):
                for records in consumer.poll(1_000).values():
                    found |= {record.key: Position(**json.loads(record.value)) for record in records}
        return found


if __name__ == "__main__":
    create_topics(sys.argv[1])
    keeper = Keeper(sys.argv[1])
    while True:
        keeper.step()
