"""Tests compacted topics of a real process, as its clients see them, also after kill -9."""

from __future__ import annotations

import pathlib
import random
import time
from collections.abc import Iterator

import pytest

from klamm import Admin, Consumer, ConsumerRecord, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from klamm.admin import ConfigChange, ConfigResource, ConfigResourceType
from klamm.errors import InvalidRecordError
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.reading import read_all
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

STATES = TopicPartition("states", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
SEGMENT_BYTES = 1024**2
SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.io.max.bytes.per.second": "6000000",
    "offsets.topic.num.partitions": "1",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[KlammProcess]:
    with running_cluster(tmp_path, SETTINGS) as cluster:
        yield cluster


def directory(cluster: KlammProcess, tp: TopicPartition) -> pathlib.Path:
    return cluster.data_dir / "broker" / str(tp)


def cleaned_to(cluster: KlammProcess, tp: TopicPartition) -> int:
    """Returns the offset in the cleaner's checkpoint, or 0 if the checkpoint has no row for the partition."""
    path = cluster.data_dir / "broker" / "cleaner-offset-checkpoint"
    rows = [line.split() for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return next((int(offset) for topic, partition, offset in rows if (topic, int(partition)) == tuple(tp)), 0)


def suffixes(cluster: KlammProcess) -> set[str]:
    """Returns the suffixes of the partition's files."""
    return {path.suffix for path in directory(cluster, STATES).iterdir()}


def read_states(cluster: KlammProcess) -> list[ConsumerRecord]:
    return read_all(cluster.bootstrap, [STATES])


class History:
    """All acknowledged records by offset."""

    def __init__(self, cluster: KlammProcess) -> None:
        self._cluster = cluster
        self._rng = random.Random(3)
        self.records: dict[int, tuple[bytes, bytes | None]] = {}
        self._number = 0

    def write(self, count: int) -> None:
        with Producer(bootstrap_servers=self._cluster.bootstrap, linger_ms=5, compression_type="lz4") as producer:
            sent = []
            for _ in range(count):
                self._number += 1
                key = b"key-%d" % self._rng.randrange(300)
                filler = self._rng.randbytes(self._rng.randrange(200, 1_200))
                value = None if self._rng.random() < 0.05 else b"%d:" % self._number + filler
                sent.append((key, value, producer.send(STATES.topic, value, key=key)))
            for key, value, future in sent:
                self.records[future.result(timeout=patience()).offset] = key, value

    def check(self, found: list[ConsumerRecord], cleaned_to: int) -> None:
        """Checks that the records found are acknowledged ones at their offsets, among them the last record of each key.

        Below `cleaned_to`, each key must have one record only.
        """
        with verdict():
            assert all(self.records[record.offset] == (record.key, record.value) for record in found)
            offsets = [record.offset for record in found]
            assert offsets == sorted(set(offsets))
            last = {key: offset for offset, (key, _) in sorted(self.records.items())}
            assert set(last.values()) <= set(offsets)
            below = [record for record in found if record.offset < cleaned_to]
            assert len({record.key for record in below}) == len(below)


@pytest.mark.slow
def test_every_last_value_survives_kills_during_compaction(cluster: KlammProcess) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(STATES.topic, partition_count=1, configs=COMPACTED)])
    history = History(cluster)
    rng = random.Random(7)
    killed_with = set()
    for _ in range(3):
        history.write(3_500)
        wait_until(lambda: ".cleaned" in suffixes(cluster), "nothing is compacted", pause_s=0.005)
        time.sleep(rng.random() * 0.4)  # the kill comes at a random moment of the compaction
        cluster.kill()
        killed_with |= suffixes(cluster)
        cluster.start()
        cleaned = cleaned_to(cluster, STATES)  # the cleaner runs while the test reads
        history.check(read_states(cluster), cleaned)
    assert ".cleaned" in killed_with, "no kill came in the middle of a compaction"
    sealed = max(int(path.stem) for path in directory(cluster, STATES).glob("*.log"))
    wait_until(lambda: cleaned_to(cluster, STATES) >= sealed, "the compaction does not come to an end")
    found = read_states(cluster)
    history.check(found, sealed)
    assert len(found) < len(history.records) / 3
    assert cluster.stop() == 0
    cluster.start()
    history.check(read_states(cluster), sealed)


def test_committed_offsets_survive_the_compaction_of_their_topic(cluster: KlammProcess) -> None:
    groups = ["auditors", "billing"]
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(STATES.topic, partition_count=4)])
    parts = [TopicPartition(STATES.topic, number) for number in range(4)]
    consumers = [
        Consumer(bootstrap_servers=cluster.bootstrap, group_id=group, enable_auto_commit=False) for group in groups
    ]
    with consumers[0], consumers[1]:
        for consumer in consumers:
            consumer.assign(parts)
            consumer.commit({parts[0]: OffsetAndMetadata(1)})
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, OFFSETS.topic)
            changes = [ConfigChange(name, value) for name, value in COMPACTED.items() if name != "cleanup.policy"]
            admin.incremental_alter_configs({resource: changes})
        number = 0
        while not cleaned_to(cluster, OFFSETS):
            number += 1
            assert number < 5_000, "__consumer_offsets is not compacted"
            for consumer in consumers:
                consumer.commit({tp: OffsetAndMetadata(number + tp.partition, metadata="m" * 3_000) for tp in parts})
    assert sum(path.stat().st_size for path in directory(cluster, OFFSETS).glob("*.log")) < number * 20_000
    expected = {tp: number + tp.partition for tp in parts}
    for end in (cluster.kill, cluster.stop):
        end()
        cluster.start()
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            for group in groups:
                stored = admin.list_group_offsets(group)
                with verdict():
                    assert {tp: found.offset for tp, found in stored.items()} == expected


def test_a_compacted_topic_takes_no_record_without_a_key(cluster: KlammProcess) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(STATES.topic, partition_count=1, configs=COMPACTED)])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            with pytest.raises(InvalidRecordError, match="key"):
                producer.send(STATES.topic, b"value").result(timeout=patience())
            assert producer.send(STATES.topic, b"value", key=b"").result(timeout=patience()).offset == 0
            resource = ConfigResource(ConfigResourceType.TOPIC, STATES.topic)
            admin.incremental_alter_configs({resource: [ConfigChange("cleanup.policy", "delete")]})
            assert producer.send(STATES.topic, b"value").result(timeout=patience()).offset == 1
