"""Tests kill -9 of the whole cluster, repeatedly and under load: acknowledged records keep their offsets.

Four writers produce with acks=all and a consumer group commits as it reads. The cluster is killed at random moments
eight times. Every restart must open its directories. Afterwards the test reads the log from the start and compares it
with every acknowledgement. The log must have all records of each writer, once and in order. A group's committed offset
must never have gone back.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from klamm import Admin, Consumer, KlammError, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from tests.support import seeds
from tests.support.klamm_process import KlammProcess
from tests.support.violation import verdict
from tests.support.waiting import patience

TOPIC = "ledger"
GROUP = "auditors"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(3)]
WRITER_COUNT = 4
KILL_COUNT = 5
SEED = seeds.run_seed()
RERUN = f"TEST_SEED={SEED} python -m pytest tests/integration/cluster/test_kill9.py"


class Ledger:
    """All acknowledged records of all writers. The killer waits here for the next acknowledgements."""

    def __init__(self) -> None:
        self.acked: dict[tuple[int, int], list[bytes]] = {}
        self.count = 0
        self.failed = 0
        self._changed = threading.Condition()

    def record(self, partition: int, offset: int, value: bytes) -> None:
        with self._changed:
            self.acked.setdefault((partition, offset), []).append(value)
            self.count += 1
            self._changed.notify_all()

    def wait_for_more(self, more: int) -> None:
        with self._changed:
            target = self.count + more
            assert self._changed.wait_for(lambda: self.count >= target, patience()), (
                f"writers are stuck at {self.count} acknowledgements, {target} were expected; {RERUN}"
            )


class Commits:
    """The newest acknowledged position of each partition. The killer waits here for the next commit."""

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, int] = {}
        self._count = 0
        self._changed = threading.Condition()

    def record(self, positions: dict[TopicPartition, int]) -> None:
        with self._changed:
            for tp, position in positions.items():
                self._offsets[tp] = max(self._offsets.get(tp, 0), position)
            self._count += 1
            self._changed.notify_all()

    def offsets(self) -> dict[TopicPartition, int]:
        with self._changed:
            return dict(self._offsets)

    def wait_for_one(self) -> None:
        with self._changed:
            seen = self._count
            assert self._changed.wait_for(lambda: self._count > seen, patience()), (
                f"the group commits nothing, {self._offsets} before; {RERUN}"
            )


def write(bootstrap: str, writer: int, ledger: Ledger, stopping: threading.Event) -> None:
    """Produces numbered records, a few at a time, until the test stops."""
    with Producer(bootstrap_servers=bootstrap, acks="all", linger_ms=0, client_id=f"writer-{writer}") as producer:
        number = 0
        while not stopping.is_set():
            sent = []
            for _ in range(20):
                value = b"writer-%d-%08d" % (writer, number)
                sent.append((value, producer.send(TOPIC, value, partition=number % len(PARTITIONS))))
                number += 1
            for value, future in sent:
                metadata = future.result(timeout=patience())
                ledger.record(metadata.partition, metadata.offset, value)


def audit(bootstrap: str, commits: Commits, stopping: threading.Event) -> None:
    """Reads and commits until the test stops. `commits` gets only acknowledged positions."""
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=45_000,
    ) as consumer:
        consumer.subscribe([TOPIC])
        while not stopping.is_set():
            consumer.poll(timeout_ms=200)
            try:
                positions = {tp: consumer.position(tp) for tp in consumer.assignment()}
                consumer.commit({tp: OffsetAndMetadata(position) for tp, position in positions.items()})
            except KlammError:
                continue  # the cluster was down throughout, or the group is rebalancing: nothing was committed
            if positions:
                commits.record(positions)


def stored_offsets(bootstrap: str) -> dict[TopicPartition, int]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        stored = admin.list_group_offsets(GROUP)
        return {tp: each.offset for tp, each in stored.items()}


def read_everything(bootstrap: str) -> Iterator[tuple[int, int, bytes]]:
    with Consumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign(PARTITIONS)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(PARTITIONS)
        while any(consumer.position(tp) < ends[tp] for tp in PARTITIONS):
            for tp, records in consumer.poll(timeout_ms=1_000, max_records=10_000).items():
                for record in records:
                    yield tp.partition, record.offset, record.value


def check_once_and_in_order(log: dict[tuple[int, int], bytes]) -> None:
    """Checks that the log has each writer's numbered records once and in order.

    A writer sends a record again if the cluster is killed between the append and its acknowledgement.
    """
    written: dict[tuple[int, bytes], list[int]] = {}
    for (partition, _), value in sorted(log.items()):
        writer, _, number = value.rpartition(b"-")
        written.setdefault((partition, writer), []).append(int(number))
    assert len(written) == WRITER_COUNT * len(PARTITIONS)
    for (partition, writer), numbers in written.items():
        expected = list(range(partition, max(numbers) + 1, len(PARTITIONS)))
        twice = len(numbers) - len(set(numbers))
        assert numbers == expected, (
            f"{writer!r} in partition {partition}: {twice} records twice, {len(set(expected) - set(numbers))} missing,"
            f" in order: {numbers == sorted(numbers)}; {RERUN}"
        )


@pytest.mark.slow
def test_acknowledged_records_keep_their_offsets_after_kill_9(tmp_path):
    print(f"seed {SEED}; rerun: {RERUN}")
    rng = random.Random(SEED)
    cluster = KlammProcess(tmp_path)
    cluster.start()
    ledger, commits, stopping = Ledger(), Commits(), threading.Event()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, partition_count=len(PARTITIONS))])
    threads = [
        threading.Thread(target=write, args=(cluster.bootstrap, writer, ledger, stopping), name=f"writer-{writer}")
        for writer in range(WRITER_COUNT)
    ]
    threads.append(threading.Thread(target=audit, args=(cluster.bootstrap, commits, stopping), name="auditor"))
    for thread in threads:
        thread.start()
    try:
        for kill in range(KILL_COUNT):
            if kill % 2:
                commits.wait_for_one()  # otherwise a slow machine's group may never commit
            ledger.wait_for_more(rng.randrange(1, 400))
            acknowledged = commits.offsets()
            cluster.kill()
            cluster.start()
            stored = stored_offsets(cluster.bootstrap)
            for tp, offset in acknowledged.items():
                with verdict():
                    assert stored.get(tp, -1) >= offset, f"{tp} was committed at {offset}: {stored}; {RERUN}"
        ledger.wait_for_more(100)
    finally:
        stopping.set()
        for thread in threads:
            thread.join(timeout=patience())
    assert not any(thread.is_alive() for thread in threads)
    log = {(partition, offset): value for partition, offset, value in read_everything(cluster.bootstrap)}
    assert cluster.stop() == 0
    assert ledger.count > KILL_COUNT
    wrong = {place: (values, log.get(place)) for place, values in ledger.acked.items() if values != [log.get(place)]}
    with verdict():
        assert not wrong, f"{len(wrong)} of {ledger.count} acknowledged records are not where their ack said: {RERUN}"
        check_once_and_in_order(log)
