"""Kafka Streams against the Kafka listener: groups, transactions, internal topics, changelogs and their restoration."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import java_programs

pytestmark = [pytest.mark.clients]
TIMEOUT_S = 120
WORDS = [f"word{number}" for number in range(50)]
LINES = 2_000


class Application:
    """A run of `WordCount`."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        with log.open("a") as output:
            self._process = subprocess.Popen(
                java_programs.command("clients.WordCount", *arguments), stdout=output, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(TIMEOUT_S)


@pytest.mark.behaviour("Kafka Streams", "stateful word count, exactly_once_v2, killed in the middle")
def test_words_are_counted_exactly_once_over_a_crash(bootstrap: str, name: str, tmp_path: Path) -> None:
    source, target = f"{name}-lines", f"{name}-counts"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(source, 4, 3), NewTopic(target, 2, 3)]).values():
        created.result(TIMEOUT_S)
    rng = random.Random(7)
    lines = [" ".join(rng.choices(WORDS, k=5)) for _ in range(LINES)]
    expected = Counter(word for line in lines for word in line.split())
    producer = Producer({"bootstrap.servers": bootstrap})

    def send(some: list[str]) -> None:
        for number, line in enumerate(some):
            producer.produce(source, line, key=str(number))
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0

    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{name}-reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    reader.subscribe([target])
    counts: dict[str, list[int]] = defaultdict(list)

    def read_until(is_enough: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_enough():
            assert time.monotonic() < deadline_s, (sum(map(len, counts.values())), application.log.read_text()[-5_000:])
            for record in reader.consume(1_000, 0.2):
                assert not record.error(), record.error()
                counts[record.key().decode()].append(int(record.value()))

    def seen() -> int:
        return sum(map(len, counts.values()))

    send(lines[: LINES // 2])
    application = Application(tmp_path / "streams.log", bootstrap, name, source, target, str(tmp_path / "first"))
    try:
        read_until(lambda: seen() > LINES)
        application.kill()
        send(lines[LINES // 2 :])
        # Elsewhere: its state is what the changelog says.
        application = Application(tmp_path / "streams.log", bootstrap, name, source, target, str(tmp_path / "second"))
        read_until(lambda: seen() >= expected.total())
    finally:
        application.kill()
        reader.close()
    assert counts == {word: list(range(1, count + 1)) for word, count in expected.items()}
