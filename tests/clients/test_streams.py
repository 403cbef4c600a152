"""Kafka Streams against the Kafka listener: groups, transactions, internal topics, changelogs and their restoration."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import java_programs
from tests.support.foreign_program import ForeignProgram
from tests.support.waiting import patience, wait_until

pytestmark = [pytest.mark.clients]
WORDS = [f"word{number}" for number in range(50)]
LINES = 2_000


@pytest.mark.behaviour("Kafka Streams", "stateful word count, exactly_once_v2, killed in the middle")
def test_words_are_counted_exactly_once_over_a_crash(bootstrap: str, name: str, tmp_path: Path) -> None:
    source, target = f"{name}-lines", f"{name}-counts"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(source, 4, 3), NewTopic(target, 2, 3)]).values():
        created.result(patience())
    rng = random.Random(7)
    lines = [" ".join(rng.choices(WORDS, k=5)) for _ in range(LINES)]
    expected = Counter(word for line in lines for word in line.split())
    producer = Producer({"bootstrap.servers": bootstrap})

    def send(some: list[str]) -> None:
        for number, line in enumerate(some):
            producer.produce(source, line, key=str(number))
            producer.poll(0)
        assert producer.flush(patience()) == 0

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

    def poll() -> None:
        application.check()
        for record in reader.consume(1_000, 0.2):
            assert not record.error(), record.error()
            counts[record.key().decode()].append(int(record.value()))

    def seen() -> int:
        return sum(map(len, counts.values()))

    def start(state_dir: Path) -> None:
        application.start(java_programs.command("clients.WordCount", bootstrap, name, source, target, str(state_dir)))

    send(lines[: LINES // 2])
    application = ForeignProgram(tmp_path / "streams.log")
    with closing(reader), closing(application):
        start(tmp_path / "first")
        wait_until(lambda: seen() > LINES, application.tail, between=poll)
        application.kill()
        send(lines[LINES // 2 :])
        # The second run has an empty directory, so its state is what the changelog holds.
        start(tmp_path / "second")
        wait_until(lambda: seen() >= expected.total(), application.tail, between=poll)
    assert counts == {word: list(range(1, count + 1)) for word, count in expected.items()}
