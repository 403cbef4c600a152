"""Quix Streams against the Kafka listener: it keeps state in a changelog topic and writes in transactions.

`tests/clients/quix` has the application."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import quix_environment
from tests.support.foreign_program import ForeignProgram
from tests.support.violation import require
from tests.support.waiting import patience, wait_until

pytestmark = [pytest.mark.clients]
SCRIPT = Path(__file__).parent / "quix" / "count_keys.py"
SOURCE_PARTITIONS = 4
TARGET_PARTITIONS = 2
KEYS = [f"key{number}" for number in range(50)]
RECORDS = 20_000
POLL_S = 0.2


def command(bootstrap: str, name: str, source: str, target: str, state_dir: Path) -> list[str]:
    return quix_environment.command(SCRIPT, bootstrap, name, source, target, str(state_dir))


@pytest.mark.behaviour("Quix Streams", "stateful count of each key, exactly-once, killed in the middle")
def test_keys_are_counted_exactly_once_over_a_crash(
    bootstrap: str, name: str, tmp_path: Path, wait_until_known: Callable[[str], None]
) -> None:
    source, target = f"{name}-records", f"{name}-counts"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics(
        [NewTopic(source, SOURCE_PARTITIONS, 3), NewTopic(target, TARGET_PARTITIONS, 3)]
    ).values():
        created.result(patience())
    wait_until_known(source)
    wait_until_known(target)
    keys = random.Random(7).choices(KEYS, k=RECORDS)
    producer = Producer({"bootstrap.servers": bootstrap})
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": f"{name}-reader",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    counts: dict[str, list[int]] = defaultdict(list)

    def send(some: list[str]) -> None:
        for key in some:
            producer.produce(source, "value", key=key)
            producer.poll(0)
        assert producer.flush(patience()) == 0

    def seen() -> int:
        return sum(map(len, counts.values()))

    def is_committed() -> bool:
        application.check()
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]).values()
        offsets = {
            topic_partition.partition: topic_partition.offset
            for topic_partition in future.result(patience()).topic_partitions
        }
        return offsets == {
            partition: reader.get_watermark_offsets(TopicPartition(source, partition), patience())[1]
            for partition in range(SOURCE_PARTITIONS)
        }

    application = ForeignProgram(tmp_path / "quix.log")
    with closing(Consumer(config)) as reader, closing(application):
        reader.assign([TopicPartition(target, partition, 0) for partition in range(TARGET_PARTITIONS)])

        def poll() -> None:
            application.check()
            for record in reader.consume(1_000, POLL_S):
                assert not record.error(), record.error()
                counts[record.key().decode()].append(int(record.value()))

        send(keys[: RECORDS // 2])
        application.start(command(bootstrap, name, source, target, tmp_path / "first"))
        wait_until(lambda: seen() > RECORDS // 10, application.tail, between=poll)
        application.kill()
        print(f"killed when {seen()} of {RECORDS // 2} counts were committed")
        send(keys[RECORDS // 2 :])
        # The second run has an empty directory, so its state is what the changelog holds.
        application.start(command(bootstrap, name, source, target, tmp_path / "second"))
        wait_until(is_committed, application.tail, between=poll)
        # All records were processed, so the target has all counts up to its present ends.
        ends = {
            partition: reader.get_watermark_offsets(TopicPartition(target, partition), patience())[1]
            for partition in range(TARGET_PARTITIONS)
        }
        wait_until(
            lambda: all(each.offset >= ends[each.partition] for each in reader.position(reader.assignment())),
            lambda: f"read {seen()} counts up to {reader.position(reader.assignment())} of {ends}",
            between=poll,
        )
    topics = admin.list_topics(timeout=patience()).topics
    changelogs = [topic for topic in topics if topic.startswith(f"changelog__{name}--")]
    assert len(changelogs) == 1, f"expected one changelog of {name} in {sorted(topics)}"
    expected = {key: list(range(1, count + 1)) for key, count in Counter(keys).items()}
    wrong = {key: counts.get(key) for key in expected if counts.get(key) != expected[key]}
    require(counts == expected, f"counts differ from 1..n: {wrong}")
