"""Ships the lines of log files into a topic, each once."""

import contextlib
import sys
import time
from pathlib import Path

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.errors import TopicAlreadyExistsError

CHUNK_BYTES = 1 << 20
PAUSE_S = 0.5


class Shipper:
    def __init__(self, servers: str, topic: str, files: list[Path]) -> None:
        self._topic, self._files = topic, files
        self._kept = TopicPartition(f"{topic}-places", 0)
        with Admin(bootstrap_servers=servers) as admin, contextlib.suppress(TopicAlreadyExistsError):
            configs = {"cleanup.policy": "compact"}
            admin.create_topics([NewTopic(self._kept.topic, partition_count=1, configs=configs)])
        self._producer = Producer(
            bootstrap_servers=servers, transactional_id=f"{topic}-shipper", compression_type="zstd"
        )
        self._producer.init_transactions()
        self._places = self._read_back(servers)

    def step(self) -> int:
        """Ships the new lines of the files, and returns the number of lines."""
        return sum(map(self._ship, self._files))

    def close(self) -> None:
        self._producer.close()

    def _ship(self, file: Path) -> int:
        place = self._places.get(file.name, 0)
        with file.open("rb") as opened:
            if file.stat().st_size < place:
                place = 0  # rotated
            opened.seek(place)
            data = opened.read(CHUNK_BYTES)
        end = data.rfind(b"\n") + 1  # a line without its end is still being written
        if not end:
            return 0
        lines = data[: end - 1].split(b"\n")
        with self._producer.transaction():
            for line in lines:
                self._producer.send(self._topic, line, key=file.name.encode())
            self._producer.send(self._kept.topic, b"%d" % (place + end), key=file.name.encode(), partition=0)
        self._places[file.name] = place + end
        return len(lines)

    def _read_back(self, servers: str) -> dict[str, int]:
        places: dict[str, int] = {}
        with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            consumer.assign([self._kept])
            consumer.seek_to_beginning()
            end = consumer.end_offsets([self._kept])[self._kept]
            while consumer.position(self._kept) < end:
                for records in consumer.poll(1_000).values():
                    places |= {record.key.decode(): int(record.value) for record in records}
        return places


if __name__ == "__main__":
    shipper = Shipper(sys.argv[1], sys.argv[2], [Path(name) for name in sys.argv[3:]])
    while True:
        if not shipper.step():
            time.sleep(PAUSE_S)
