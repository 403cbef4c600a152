"""sarama, the Go client, against the Kafka listener. `tests/clients/go` has the program that runs it."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.go_programs import SARAMA
from tests.support.violation import require, verdict
from tests.support.waiting import patience, wait_until

pytestmark = [pytest.mark.clients]
COUNT = 300
PARTITIONS = 4
NEWEST = "4.3.1"
"""`MaxVersion` of sarama."""
VERSIONS = ["0.11.0.0", "1.0.0", "2.8.0", "3.6.0", "4.0.0", NEWEST]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BEFORE_ZSTD = ("0.11.0.0", "1.0.0")
"""sarama refuses zstd with a version before 2.1."""
TARGET_WAIT_S = 0.2


def behaviour(text: str) -> pytest.MarkDecorator:
    return pytest.mark.behaviour("sarama", text)


class Program:
    """A run of the Go program. A thread collects the lines that it prints."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.lines: list[dict[str, Any]] = []
        self._log = log
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                SARAMA.command(*arguments), stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._reader = Thread(target=self._read)
        self._reader.start()

    def finish(self) -> list[dict[str, Any]]:
        """Waits until the program ends by itself and returns all its lines. Fails if the program failed."""
        wait_until(lambda: not self.is_running(), self.tail)
        assert self._process.returncode == 0, self.tail()
        self._reader.join()
        return self.lines

    def terminate(self) -> list[dict[str, Any]]:
        """Asks the program to leave its group and to end. Returns all its lines."""
        self._process.terminate()
        return self.finish()

    def kill(self) -> None:
        """Kills the program with SIGKILL, and waits until all that it had printed is read."""
        self._process.kill()
        self._process.wait(patience())
        self._reader.join()

    def owned(self) -> set[int]:
        """Returns the partitions whose claims the member has started and not stopped."""
        owned: set[int] = set()
        for line in list(self.lines):
            if "started" in line:
                owned.add(line["started"])
            elif "stopped" in line:
                owned.discard(line["stopped"])
        return owned

    def values(self) -> list[str]:
        return [line["value"] for line in list(self.lines) if "value" in line]

    def tail(self) -> str:
        return self._log.read_text()[-5_000:]

    def is_running(self) -> bool:
        return self._process.poll() is None

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.lines.append(json.loads(line))


Start = Callable[..., Program]


@pytest.fixture
def start(bootstrap: str, tmp_path: Path) -> Iterator[Start]:
    """Starts the Go program with a command and flags. All programs are killed after the test."""
    with ExitStack() as programs:

        def started(command: str, **flags: object) -> Program:
            log = tmp_path / "sarama.log"
            arguments = [f"-{name}={value}" for name, value in flags.items()]
            program = Program(log, command, f"-bootstrap={bootstrap}", *arguments)
            programs.callback(program.kill)
            return program

        yield started


@pytest.fixture
def make_topic(bootstrap: str, wait_until_known: Callable[[str], None]) -> Callable[..., str]:
    """Creates a topic with three replicas, which every broker knows afterwards."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def make(topic: str, partitions: int = PARTITIONS) -> str:
        admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(patience())
        wait_until_known(topic)
        return topic

    return make


def send(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, key=value)
        producer.poll(0)
    assert producer.flush(patience()) == 0


def read(bootstrap: str, topic: str, isolation_level: str = "read_committed") -> list[Message]:
    """Returns the records up to the high watermarks that the topic has now. Fails if a transaction stays open."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": f"{topic}-reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    ends_reader = Consumer({**config, "isolation.level": "read_uncommitted"})
    reader = Consumer({**config, "isolation.level": isolation_level})
    try:
        numbers = reader.list_topics(topic, patience()).topics[topic].partitions
        ends = {
            number: ends_reader.get_watermark_offsets(TopicPartition(topic, number), patience())[1]
            for number in numbers
        }
        reader.assign([TopicPartition(topic, number, 0) for number in numbers])
        records: list[Message] = []
        positions = dict.fromkeys(ends, 0)

        def poll() -> None:
            for record in reader.consume(1_000, TARGET_WAIT_S):
                if (error := record.error()) is None:
                    records.append(record)
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                positions[record.partition()] = record.offset()

        wait_until(
            lambda: all(positions[number] >= end for number, end in ends.items()),
            lambda: f"{topic} is read up to {positions} of {ends}",
            between=poll,
        )
        return records
    finally:
        reader.close()
        ends_reader.close()


def texts(records: list[Message]) -> list[str]:
    return [record.value().decode() for record in records]


def places(records: list[Message]) -> set[tuple[int, int, str]]:
    return {(record.partition(), record.offset(), record.value().decode()) for record in records}


def printed_places(lines: list[dict[str, Any]]) -> set[tuple[int, int, str]]:
    return {(line["partition"], line["offset"], line["value"]) for line in lines}


def committed_offsets(bootstrap: str, group: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {
        topic_partition.partition: topic_partition.offset
        for topic_partition in future.result(patience()).topic_partitions
    }


def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-reader"})
    try:
        return {
            number: reader.get_watermark_offsets(TopicPartition(topic, number), patience())[1]
            for number in range(PARTITIONS)
        }
    finally:
        reader.close()


def wait_until_all_is_committed(bootstrap: str, group: str, topic: str, program: Program) -> None:
    """Waits until the offsets of the group are the ends of the topic. Fails at once if the program has ended."""

    def is_committed() -> bool:
        assert program.is_running(), program.tail()
        return committed_offsets(bootstrap, group) == end_offsets(bootstrap, topic)

    wait_until(is_committed, program.tail, pause_s=0.2)


@behaviour("produces and consumes with every codec, in versions from 0.11 to the newest")
@pytest.mark.parametrize(
    ("version", "codec"),
    [
        (version, codec)
        for version, codec in itertools.product(VERSIONS, CODECS)
        if codec != "zstd" or version not in BEFORE_ZSTD
    ],
)
def test_sarama_produces_and_consumes_with_every_codec_and_version(
    bootstrap: str, name: str, start: Start, make_topic: Callable[..., str], version: str, codec: str
) -> None:
    make_topic(name)
    sent = start("produce", version=version, topic=name, codec=codec, count=COUNT).finish()
    records = read(bootstrap, name)
    with verdict():
        assert sorted(texts(records)) == sorted(f"value-{number}" for number in range(COUNT))
        assert printed_places(sent) == places(records)
    consumed = start("consume", version=version, topic=name).finish()
    with verdict():
        assert len(consumed) == COUNT
        assert printed_places(consumed) == places(records)


@behaviour("produces without duplicates (idempotent)")
@pytest.mark.parametrize("version", ["0.11.0.0", "2.8.0", NEWEST])
def test_idempotent_records_are_there_once_and_in_order(
    bootstrap: str, name: str, start: Start, make_topic: Callable[..., str], version: str
) -> None:
    make_topic(name)
    count = 10 * COUNT
    sent = start("produce", version=version, topic=name, idempotent="true", count=count).finish()
    records = read(bootstrap, name)
    with verdict():
        assert printed_places(sent) == places(records)
        assert len(records) == count
        for partition in range(PARTITIONS):
            numbers = [int(text.removeprefix("value-")) for text in texts(records_of(records, partition))]
            assert numbers == sorted(numbers)


def records_of(records: list[Message], partition: int) -> list[Message]:
    return [record for record in records if record.partition() == partition]


@behaviour("produces in transactions: only committed ones are read with read_committed")
@pytest.mark.parametrize("version", ["0.11.0.0", "2.8.0", NEWEST])
def test_committed_transactions_are_read_and_aborted_ones_are_not(
    bootstrap: str, name: str, start: Start, make_topic: Callable[..., str], version: str
) -> None:
    make_topic(name)
    start("transactions", version=version, topic=name, id=name, count=20).finish()
    committed, everything = read(bootstrap, name), read(bootstrap, name, "read_uncommitted")
    with verdict():
        expected = [(number, f"{number}-{index}") for number in range(10) for index in range(20)]
        assert sorted(texts(everything)) == sorted(value for _, value in expected)
        assert sorted(texts(committed)) == sorted(value for number, value in expected if number % 2 == 0)


@behaviour("reads, processes and writes in transactions, killed in the middle")
@pytest.mark.parametrize(
    ("version", "metadata"), [("0.11.0.0", False), ("2.8.0", False), (NEWEST, False), (NEWEST, True)]
)
def test_records_are_copied_exactly_once_over_a_crash(
    bootstrap: str, name: str, start: Start, make_topic: Callable[..., str], version: str, metadata: bool
) -> None:
    source, target = make_topic(f"{name}-in"), make_topic(f"{name}-out")
    values = [f"value-{number}" for number in range(COUNT)]
    send(bootstrap, source, values)

    def copy() -> Program:
        flags = {"version": version, "topic": source, "target": target, "group": name, "id": name}
        return start("copy", **flags, metadata=str(metadata).lower())

    program = copy()
    wait_for_records(bootstrap, target, COUNT // 3, program)
    program.kill()
    program = copy()
    wait_until_all_is_committed(bootstrap, name, source, program)
    program.terminate()
    copied = texts(read(bootstrap, target))
    require(sorted(copied) == sorted(values), f"differs from one copy of each: {Counter(copied)}")


def wait_for_records(bootstrap: str, topic: str, count: int, program: Program) -> None:
    """Waits until the topic holds at least `count` different committed records."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen: set[str] = set()

    def poll() -> None:
        assert program.is_running(), program.tail()
        for record in reader.consume(1_000, TARGET_WAIT_S):
            assert not record.error(), record.error()
            seen.add(record.value().decode())

    try:
        wait_until(lambda: len(seen) >= count, lambda: f"{len(seen)} of {count}: {program.tail()}", between=poll)
    finally:
        reader.close()


@behaviour("groups rebalance while they consume, and continue after a member is killed")
@pytest.mark.parametrize(
    ("version", "strategy"),
    [
        ("0.11.0.0", "range"),
        ("2.8.0", "roundrobin"),
        ("2.8.0", "sticky"),
        (NEWEST, "range"),
        (NEWEST, "cooperative-sticky"),
    ],
)
def test_a_group_loses_nothing_when_a_member_joins_and_one_is_killed(
    bootstrap: str, name: str, start: Start, make_topic: Callable[..., str], version: str, strategy: str
) -> None:
    make_topic(name)
    sent: list[str] = []

    def send_more() -> None:
        values = [f"value-{number}" for number in range(len(sent), len(sent) + 20)]
        send(bootstrap, name, values)
        sent.extend(values)

    def member() -> Program:
        return start("member", version=version, topic=name, group=name, strategy=strategy)

    def wait_for(is_true: Callable[[], bool]) -> None:
        """Waits while records arrive, so that each rebalance happens under load."""
        wait_until(is_true, lambda: f"{[each.owned() for each in members]}: {members[-1].tail()}", between=send_more)

    everything = set(range(PARTITIONS))
    first = member()
    members = [first]
    wait_for(lambda: first.owned() == everything and len(first.values()) > 0)
    second = member()
    members.append(second)
    half = PARTITIONS // 2
    wait_for(lambda: len(first.owned()) == len(second.owned()) == half and first.owned() | second.owned() == everything)
    wait_for(lambda: len(second.values()) > COUNT)
    first.kill()
    wait_for(lambda: second.owned() == everything)
    send_more()
    wait_until_all_is_committed(bootstrap, name, name, second)
    second.terminate()
    # A new member starts at the committed offsets, so it reads only what is sent now.
    read_before = len(sent)
    send_more()
    third = member()
    members.append(third)
    wait_until_all_is_committed(bootstrap, name, name, third)
    third.terminate()
    with verdict():
        assert sorted(third.values()) == sorted(sent[read_before:])
        assert {*first.values(), *second.values()} == set(sent[:read_before])


@behaviour("administers topics, partitions, configs, groups, offsets and records (ClusterAdmin)")
@pytest.mark.parametrize("version", ["2.8.0", "3.6.0", NEWEST])
def test_sarama_administers_topics_configs_offsets_and_groups(
    bootstrap: str, name: str, start: Start, make_topic: Callable[..., str], version: str
) -> None:
    make_topic(name, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(50):
        producer.produce(name, f"value-{number}", partition=0)
    assert producer.flush(patience()) == 0
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    member.commit(offsets=[TopicPartition(name, 0, 17), TopicPartition(name, 1, 5)], asynchronous=False)
    member.close()
    created = f"{name}-created"
    again, *configs, group, bounds = start("admin", version=version, topic=name, target=created, group=name).finish()
    assert "already exists" in again["created again"]
    assert configs == [
        {"step": "created", "configs": {"retention.ms": "61234"}},
        {"step": "incremental", "configs": {"retention.ms": "61234", "segment.ms": "71234"}},
        {"step": "replaced", "configs": {"max.message.bytes": "81234"}},
    ]
    assert group["state"] == "Empty"
    assert group["offsets"] == {"0": 17, "1": 5}
    assert bounds == {"bounds": {"start": 30, "end": 50}}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (described,) = admin.list_topics(created, patience()).topics.values()
    assert len(described.partitions) == 4
    assert all(len(partition.replicas) == 3 for partition in described.partitions.values())
    assert [record.offset() for record in read(bootstrap, name)] == list(range(30, 50))
    groups = admin.list_consumer_groups().result(patience())
    assert name not in {group.group_id for group in groups.valid}
