"""Reads the files of Klamm's broker and coordinator with Kafka's own storage and DumpLogSegments, and compares them
with Klamm's admin.

After kill -9, Kafka recovers the logs itself. After a clean stop, it reads indexes and snapshots too.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klamm import Admin, Consumer, LedgerId, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from klamm.admin import GroupDescription, ProducerState, TransactionDescription
from klamm.model import LATEST_TIMESTAMP
from klamm_coordinator.ledger.records import LEDGER_KEY_VERSION
from klamm_coordinator.records.released_hold_schema import KEY_VERSION as RELEASED_HOLD_KEY_VERSION
from tests.support import java_programs
from tests.support.klamm_process import KlammProcess

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

JAVA_TIMEOUT_S = 300
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
DATA, COMPACTED = "data", "compacted"
GROUP, OPEN, DONE = "readers", "open", "done"
HELD, GONE = "held", "gone"
LEDGER = LedgerId("orders", "query")
PART = LEDGER.part(0, 0)
PARTITIONS = [TopicPartition(DATA, 0), TopicPartition(DATA, 1), TopicPartition(COMPACTED, 0)]
TIMEOUT_MS = 900_000
Record = tuple[int, str | None, str | None]
"""Offset, key, value."""


class Answers(NamedTuple):
    """The answers of Klamm's admin and consumer, just before the cluster was killed."""

    group: GroupDescription
    offsets: dict[TopicPartition, OffsetAndMetadata]
    transactions: dict[str, TransactionDescription]
    producers: dict[TopicPartition, tuple[ProducerState, ...]]
    end_offsets: dict[TopicPartition, int]
    stable_offsets: dict[TopicPartition, int]
    aborted: dict[TopicPartition, set[int]]
    """The first offset of each aborted transaction."""
    records: dict[TopicPartition, list[Record]]


class Disk(NamedTuple):
    answers: Answers
    killed: Path
    """A copy of the broker's directory after a kill -9."""
    stopped: Path
    """The broker's directory after a start and a clean stop."""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    directory = tmp_path_factory.mktemp("files")
    cluster = KlammProcess(directory, {"log.cleaner.backoff.ms": "200", "log.index.interval.bytes": "1024"})
    cluster.start()
    try:
        with contextlib.ExitStack() as clients:
            answers = work(cluster.bootstrap, clients)
            cluster.kill()
        shutil.copytree(cluster.data_dir / "broker", directory / "killed")
        cluster.start()
        assert cluster.stop() == 0
    finally:
        if cluster.running:
            cluster.kill()
    yield Disk(answers, directory / "killed", cluster.data_dir / "broker")
    shutil.rmtree(directory, ignore_errors=True)


def work(bootstrap: str, clients: contextlib.ExitStack) -> Answers:
    """Plain, idempotent and transactional records, a group with a member, a transaction that stays open."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        segments = {"segment.bytes": "1048576", "index.interval.bytes": "1024"}
        admin.create_topics([NewTopic(DATA, 2, configs=segments), NewTopic(COMPACTED, 1, configs=segments | compact)])
        produce_in_all_codecs(bootstrap)
        produce_to_compact(bootstrap)
        consumer = Consumer(
            bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
        )
        clients.callback(consumer.close, 0, leave=False)
        consumer.subscribe([DATA])
        while not consumer.poll(500):
            pass
        consumer.commit()
        aborted = run_transactions(bootstrap, consumer)
        producer = Producer(bootstrap_servers=bootstrap, transactional_id=OPEN, transaction_timeout_ms=TIMEOUT_MS)
        clients.callback(producer.close, 0)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(DATA, b"open", partition=1).result()
        prepare_part(admin, bootstrap)
        delete_holding_group(admin, bootstrap)
        return ask(admin, aborted, {tp: read(bootstrap, tp) for tp in PARTITIONS})


def produce_in_all_codecs(bootstrap: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with Producer(bootstrap_servers=bootstrap, compression_type=codec, enable_idempotence=codec != "gzip") as made:
            for number in range(1500):
                value = "".join(chr(33 + number * place % 89) for place in range(1000))
                made.send(DATA, value.encode(), b"%d" % number, headers=[("name", b"value"), ("null", None)])
                if number % 100 == 0:
                    made.flush()


def produce_to_compact(bootstrap: str) -> None:
    """Produces several segments. Returns when the cleaner has cleaned them."""
    partition, count = TopicPartition(COMPACTED, 0), 400
    with Producer(bootstrap_servers=bootstrap, compression_type="lz4") as producer:
        for number in range(count):
            value = None if number % 7 == 0 else random.Random(number).randbytes(5_000).hex().encode()
            producer.send(COMPACTED, value, b"%d" % (number % 20), partition=0)
            if number % 10 == 0:
                producer.flush()
    while len(read(bootstrap, partition)) > count / 2:
        pass


def run_transactions(bootstrap: str, consumer: Consumer) -> dict[TopicPartition, set[int]]:
    """Runs transactions, of which every third is aborted. The last one commits an offset. Returns the first offsets of
    the aborted ones."""
    aborted: dict[TopicPartition, set[int]] = {tp: set() for tp in PARTITIONS}
    with Producer(bootstrap_servers=bootstrap, transactional_id=DONE) as producer:
        producer.init_transactions()
        for number in range(10):
            producer.begin_transaction()
            sent = [producer.send(DATA, b"of a transaction", partition=one % 2) for one in range(20)]
            firsts = {TopicPartition(DATA, one): sent[one].result().offset for one in (0, 1)}
            if number % 3:
                producer.commit_transaction()
                continue
            for tp, offset in firsts.items():
                aborted[tp].add(offset)
            producer.abort_transaction()
        producer.begin_transaction()
        offset = OffsetAndMetadata(17, metadata="in a transaction")
        producer.send_offsets_to_transaction({TopicPartition(DATA, 0): offset}, consumer.group_metadata())
        producer.commit_transaction()
    return aborted


def prepare_part(admin: Admin, bootstrap: str) -> None:
    """Prepares a transaction with a batch ledger, which Kafka does not know."""
    assert admin.register_run(LEDGER, "run", 0)
    with Producer(bootstrap_servers=bootstrap, transactional_id=PART) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(DATA, b"prepared", partition=1)
        assert producer.prepare_transaction("run", 0) is not None


def delete_holding_group(admin: Admin, bootstrap: str) -> None:
    """Deletes a group for which retention waits. Klamm stores a record about it, of a kind that Kafka does not know."""
    held = TopicPartition(HELD, 0)
    admin.create_topics([NewTopic(HELD, 1, configs={"retention.hold.groups": GONE})])
    with Consumer(bootstrap_servers=bootstrap, group_id=GONE, enable_auto_commit=False) as consumer:
        consumer.assign([held])
        consumer.commit({held: OffsetAndMetadata(0)})
    admin.delete_groups([GONE])


def read(bootstrap: str, tp: TopicPartition) -> list[Record]:
    """All that counts for a reader who takes uncommitted records, too."""
    records: list[Record] = []
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            for of_partition in consumer.poll(200).values():
                records += [(one.offset, text(one.key), text(one.value)) for one in of_partition]
    return records


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def ask(admin: Admin, aborted: dict[TopicPartition, set[int]], records: dict[TopicPartition, list[Record]]) -> Answers:
    latest = dict.fromkeys(PARTITIONS, LATEST_TIMESTAMP)
    ends = admin.list_offsets(latest)
    stable = admin.list_offsets(latest, read_committed=True)
    return Answers(
        group=admin.describe_groups([GROUP])[GROUP],
        offsets=admin.list_group_offsets(GROUP),
        transactions=admin.describe_transactions([OPEN, DONE, PART]),
        producers=admin.describe_producers(PARTITIONS),
        end_offsets={tp: end.offset for tp, end in ends.items()},
        stable_offsets={tp: one.offset for tp, one in stable.items()},
        aborted=aborted,
        records=records,
    )


# Kafka's broker opens the directories


def opened_by_kafka(how: str, directory: Path, copy: Path) -> dict[TopicPartition, dict[str, Any]]:
    for tp in PARTITIONS:
        shutil.copytree(directory / str(tp), copy / str(tp))
    lines = java("klamm.OpenLogs", how, *(str(copy / str(tp)) for tp in PARTITIONS))
    return dict(zip(PARTITIONS, map(json.loads, lines), strict=True))


@pytest.mark.parametrize("how", ["unclean", "clean"])
def test_kafkas_broker_opens_klamms_logs_with_the_same_offsets_epochs_and_producers(
    disk: Disk, how: str, tmp_path: Path
) -> None:
    answers = disk.answers
    for tp, log in opened_by_kafka(how, disk.killed if how == "unclean" else disk.stopped, tmp_path).items():
        assert log["partition"] == str(tp)
        assert log["start_offset"] == 0
        assert log["end_offset"] == answers.end_offsets[tp]
        assert log["last_stable_offset"] == answers.stable_offsets[tp]
        assert log["epochs"] in ([[0, 0]], [[0, 0], [1, answers.end_offsets[tp]]])
        assert {first for _, first, _ in log["aborted"]} == answers.aborted[tp]
        assert producers_of(log["producers"]) == {facts(producer) for producer in answers.producers[tp]}
    assert len(log["segments"]) > 1, "nothing was rolled"
    assert answers.stable_offsets[TopicPartition(DATA, 1)] < answers.end_offsets[TopicPartition(DATA, 1)]


def facts(one: ProducerState) -> tuple[int, ...]:
    """Returns the facts of a producer without its time. Kafka uses the times of records, and Klamm the times of their
    arrival."""
    return (
        one.producer_id,
        one.producer_epoch,
        one.last_sequence,
        one.coordinator_epoch,
        one.current_txn_start_offset,
    )


def producers_of(described: list[dict[str, int]]) -> set[tuple[int, ...]]:
    return {facts(ProducerState(**one)) for one in described}


# DumpLogSegments


def java(main_class: str, *arguments: str) -> list[str]:
    """Runs a Java program, and returns its output lines. DumpLogSegments prints errors about unexpected data there
    too."""
    done = subprocess.run(
        java_programs.command(main_class, *arguments, jvm=[*java_programs.JVM, QUIET]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=JAVA_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:]
    # A JVM notes that it has read JDK_JAVA_OPTIONS.
    return [line for line in done.stdout.splitlines() if not line.startswith("NOTE: Picked up")]


def dump(files: list[Path], *options: str) -> list[str]:
    assert files
    return java("org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files)))


_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) CreateTime: \d+ keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+)"
    r" sequence: -?\d+ headerKeys: \[(?P<headers>.*?)\](?: key: (?P<key>\S+))?(?: payload: (?P<payload>.*))?"
)


@pytest.mark.parametrize("tp", PARTITIONS, ids=str)
def test_kafkas_dump_tool_prints_the_records_that_a_consumer_gets(disk: Disk, tp: TopicPartition) -> None:
    lines = dump(sorted((disk.stopped / str(tp)).glob("*.log")), "--print-data-log")
    # The tool complains of every segment but the first ("-1 is followed by"), and of what compaction removes.
    gap = re.compile(r"  \d+ is followed by \d+" if tp.topic == DATA else "$^")
    assert [line for line in lines if "isvalid: false" in line or gap.match(line)] == []
    found = [_RECORD.match(line) for line in lines if line.startswith("| offset") and "endTxnMarker" not in line]
    records = [(int(one["offset"]), one["key"], one["payload"]) for one in found if one is not None]
    assert len(records) == len(found)
    expected = disk.answers.records[tp]
    if tp.topic == COMPACTED:
        assert {key: value for _, key, value in records} == {key: value for _, key, value in expected}
    else:
        assert records == expected
    assert {one["headers"] for one in found if one is not None} == (
        {""} if tp.topic == COMPACTED else {"", "name,null"}
    )


@pytest.mark.parametrize("tp", PARTITIONS, ids=str)
def test_kafkas_dump_tool_finds_no_mismatch_between_indexes_and_logs(disk: Disk, tp: TopicPartition) -> None:
    files = {kind: sorted((disk.stopped / str(tp)).glob(f"*.{kind}")) for kind in ("index", "timeindex", "txnindex")}
    sane = dump(files["index"] + files["timeindex"], "--index-sanity-check")
    # Compaction leaves a segment without records, and it no entries.
    sane = [line for line in sane if line.endswith(("passed sanity check.", "is empty."))]
    assert len(sane) == len(files["index"] + files["timeindex"])
    lines = dump([file for of_kind in files.values() for file in of_kind])
    assert [line for line in lines if "ismatch" in line or "out of order" in line] == []
    assert sum(line.startswith("offset:") for line in lines) > 0
    assert sum(line.startswith("timestamp:") for line in lines) > 0
    aborted = {int(one[1]) for line in lines if (one := re.search(r"firstOffset: (\d+)", line))}
    assert aborted == disk.answers.aborted[tp]


def test_kafkas_dump_tool_reads_the_producer_snapshots(disk: Disk) -> None:
    for tp in PARTITIONS:
        latest = max((disk.stopped / str(tp)).glob("*.snapshot"))
        assert int(latest.stem) == disk.answers.end_offsets[tp]
        found = [_snapshot_facts(line) for line in dump([latest]) if line.startswith("producerId")]
        assert set(found) == {facts(producer) for producer in disk.answers.producers[tp]}
        assert len(found) == len(set(found))


def _snapshot_facts(line: str) -> tuple[int, ...]:
    value = dict(re.findall(r"(\w+): (\S+)", line))
    first = re.search(r"OptionalLong\[(\d+)\]", value["currentTxnFirstOffset"])
    return (
        int(value["producerId"]),
        int(value["producerEpoch"]),
        int(value.get("lastSequence", -1)),
        int(value["coordinatorEpoch"]),
        -1 if first is None else int(first[1]),
    )


_STATE = re.compile(r"\| offset: .* key: (?P<key>\{.*?\}) payload: (?P<value>.*)")


def dump_shards(directory: Path, topic: str, option: str) -> list[str]:
    return dump(sorted(file for file in directory.glob(f"{topic}-*/*.log") if file.stat().st_size), option)


def last_values(lines: list[str]) -> dict[str, Any]:
    """Returns the last value of each key as Kafka decodes it. All of them are committed here."""
    found = {}
    for line in lines:
        if match := _STATE.match(line):
            found[match["key"]] = None if match["value"] == "<DELETE>" else json.loads(match["value"])["data"]
    return found


def test_kafkas_dump_tool_reads_the_stored_groups_and_offsets(disk: Disk) -> None:
    lines, stored = dump_shards(disk.stopped, "__consumer_offsets", "--offsets-decoder"), {}
    assert any(f"Unknown record type {RELEASED_HOLD_KEY_VERSION} " in line for line in lines), "Kafka passes over it"
    for key, value in last_values(lines).items():
        stored[tuple(json.loads(key)["data"].values())] = value
    group, answers = stored[GROUP,], disk.answers
    assert (group["generation"], group["leader"], group["protocol"]) == (
        answers.group.generation_id,
        answers.group.leader,
        answers.group.assignor,
    )
    assert group["protocolType"] == "consumer"
    ((ours, theirs),) = zip(answers.group.members, group["members"], strict=True)
    assert (ours.member_id, ours.client_id, ours.client_host, ours.group_instance_id) == (
        theirs["memberId"],
        theirs["clientId"],
        theirs["clientHost"],
        theirs["groupInstanceId"],
    )
    assert theirs["subscription"]["topics"] == list(ours.topics)
    assert _partitions(theirs["assignment"]["assignedPartitions"], "partitions") == set(ours.assignment)
    offsets = {TopicPartition(*key[1:]): value for key, value in stored.items() if key[0] == GROUP and len(key) == 3}
    assert {
        tp: OffsetAndMetadata(offset["offset"], metadata=offset["metadata"], leader_epoch=offset["leaderEpoch"])
        for tp, offset in offsets.items()
    } == answers.offsets
    assert answers.offsets[TopicPartition(DATA, 0)].metadata == "in a transaction"


def test_kafkas_dump_tool_reads_the_stored_transactions(disk: Disk) -> None:
    lines, stored = dump_shards(disk.stopped, "__transaction_state", "--transaction-log-decoder"), {}
    for key, value in last_values(lines).items():
        stored[json.loads(key)["data"]["transactionalId"]] = value
    for name, ours in disk.answers.transactions.items():
        theirs = stored[name]
        assert (ours.producer_id, ours.producer_epoch, ours.transaction_timeout_ms) == (
            theirs["producerId"],
            theirs["producerEpoch"],
            theirs["transactionTimeoutMs"],
        )
        assert ours.state == theirs["transactionStatus"]
        assert _partitions(theirs["transactionPartitions"], "partitionIds") == set(ours.partitions)
    assert disk.answers.transactions[OPEN].state == disk.answers.transactions[PART].state == "Ongoing"
    assert disk.answers.transactions[PART].prepared_ms > 0
    assert sum(f"Unknown record type {LEDGER_KEY_VERSION} " in line for line in lines) == 1, "Kafka passes over ledgers"


def _partitions(topics: list[dict[str, Any]], field: str) -> set[TopicPartition]:
    return {TopicPartition(topic["topic"], number) for topic in topics for number in topic[field]}
