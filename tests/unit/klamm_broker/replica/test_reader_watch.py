"""Tests incremental fetches of consumers: they have the answers of fetches that read all partitions each time."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klamm.model import TopicId, TopicPartition
from klamm.records.encoder import encode_batch
from klamm.records.header import read_header
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import ClientAppend, TransactionEnd
from klamm_broker.replica.delayed_fetch import DelayedFetch
from klamm_broker.replica.fetch_reader import FetchCursor, FetchReader, LocatedFetch, PartitionAnswer, ReaderTerms
from klamm_broker.replica.follower_partition import LeaderAnswer
from klamm_broker.replica.leadership import FollowerFetch, IsrChange
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.reader_watch import PartitionKey, ReaderContext, ReaderWatch, WatchedReader
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.metadata.entities import PartitionImage
from tests.support import seeds
from tests.support.log_steps import create_log, open_logs

THIS, OTHER = 1, 2
TOPIC_ID = TopicId(uuid.UUID(int=7))
CONFIG = LogConfig(segment_bytes=300, retention_ms=1)
BATCH = bytes(encode_batch([(0, None, b"v" * 20, ())]))
ROOM = 10**6
WANTED = 100
"""The least bytes of records in an answer without a wait."""
UNCOMMITTED, COMMITTED = ReaderTerms(read_committed=False), ReaderTerms(read_committed=True)
STEPS = 80
SEEDS = [seeds.run_seed() + number for number in range(12)]


class StillClock:
    def wall_ms(self) -> int:
        return 10**12

    def monotonic_ms(self) -> int:
        return 0


class Rig:
    """A broker with replicas of two topics. `happen` changes one of them."""

    def __init__(self, directory: Path, partition_count: int = 4) -> None:
        self.watch = ReaderWatch()
        self.on_full_change: Callable[[TopicPartition], object] = lambda name: None
        self.replicas = ReplicaManager(broker_id=THIS, clock=StillClock(), observer=self)
        self.reader = FetchReader(self.replicas)
        self.logs = open_logs(directory)
        self.partitions = [self._make(TopicPartition("ab"[n % 2], n // 2)) for n in range(partition_count)]
        self.open: dict[TopicPartition, int] = {}
        """The epoch of the open transaction of producer 9, by partition."""
        self.epochs: dict[TopicPartition, int] = {}

    def _make(self, name: TopicPartition) -> Partition:
        partition = Partition(
            name,
            create_log(self.logs, name, TopicId(uuid.UUID(int=ord(name.topic))), CONFIG),
            topic_id=TopicId(uuid.UUID(int=ord(name.topic))),
            broker_id=THIS,
            high_watermark=0,
            brokers=self.replicas.brokers,
            lag_time_max_ms=1_000,
        )
        self.replicas.host(partition)
        self.elect(partition, THIS)
        return partition

    def elect(self, partition: Partition, leader: int, isr: tuple[int, ...] = (THIS,)) -> None:
        epoch = partition.leader_epoch + 1
        self.replicas.apply(
            partition,
            PartitionImage(
                partition=partition.topic_partition.partition,
                replicas=(THIS, OTHER),
                isr=isr,
                leader=leader,
                leader_epoch=epoch,
                partition_epoch=epoch,
            ),
        )

    # Calls of the replica manager, as the broker handles them

    def on_change(self, topic_partition: TopicPartition) -> None:
        self.on_full_change(topic_partition)
        self.watch.on_change(topic_partition)

    def on_append(self, topic_partition: TopicPartition) -> None:
        pass

    def on_log_start(self, topic_partition: TopicPartition) -> None:
        self.watch.on_change(topic_partition)

    def on_isr_change(self, partition: Partition, change: IsrChange) -> None:
        pass

    def on_role(self, partition: Partition) -> None:
        pass

    def on_offline(self, topic_id: bytes, partition: int) -> None:
        pass

    def on_no_space(self, topic_id: bytes, partition: int) -> None:
        pass

    def on_disk_full(self, log_dir: LogDir) -> None:
        pass

    # Events

    def append(self, partition: Partition) -> None:
        if partition.is_leader:
            self.replicas.append(partition.topic_partition, ClientAppend(memoryview(BATCH)), acks=1)
        elif partition.following is not None:
            self._answer(partition, BATCH)

    def _answer(self, partition: Partition, records: bytes = b"") -> None:
        """Applies an answer of the partition's leader, with records or with a later log start."""
        log = partition.log
        end = log.log_end_offset
        if records:
            records = bytes(
                encode_batch([(0, None, b"v" * 20, ())], base_offset=end, partition_leader_epoch=partition.leader_epoch)
            )
        start = log.log_start_offset if records else partition.high_watermark
        answer = LeaderAnswer(0, end, end + bool(records), start, end + bool(records), records, None)
        partition.on_leader_answer(answer, wall_ms=0)
        self.on_change(partition.topic_partition)

    def begin_transaction(self, partition: Partition) -> None:
        name = partition.topic_partition
        if not partition.is_leader or name in self.open:
            return
        epoch = self.open[name] = self.epochs[name] = self.epochs.get(name, -1) + 1
        batch = bytes(
            encode_batch(
                [(0, None, b"v", ())], producer_id=9, producer_epoch=epoch, base_sequence=0, is_transactional=True
            )
        )
        guard = self.replicas.begin_verification(name, read_header(batch))
        self.replicas.append(name, ClientAppend(memoryview(batch), guard), acks=1)

    def end_transaction(self, partition: Partition, *, is_committed: bool) -> None:
        name = partition.topic_partition
        if partition.is_leader and name in self.open:
            epoch = self.open.pop(name)
            self.replicas.append(name, TransactionEnd(9, epoch, is_committed, 0, 1))

    def follow(self, partition: Partition) -> None:
        """The other replica fetches from the end of the log."""
        if not partition.is_leader or not partition.log.log_end_offset:
            return
        log = partition.log
        self.replicas.on_follower_fetch(
            partition,
            FollowerFetch(
                replica_id=OTHER,
                broker_epoch=OTHER,
                session_id=1,
                current_leader_epoch=partition.leader_epoch,
                fetch_offset=log.log_end_offset,
                last_fetched_epoch=log.epochs.latest_epoch,
                log_start_offset=0,
            ),
        )

    def delete_records(self, partition: Partition, rng: random.Random) -> None:
        if partition.is_leader:
            self.replicas.delete_records(partition, rng.randint(0, partition.high_watermark))
        elif partition.following is not None:
            self._answer(partition)

    def retain(self, partition: Partition) -> None:
        if partition.log.retention.apply(now_ms=10**12, high_watermark=partition.high_watermark) is not None:
            self.replicas.on_log_start_moved(partition)

    def remove_and_host_again(self, partition: Partition, *, is_hosted: bool) -> None:
        if self.replicas.get(partition.topic_partition) is partition:
            self.replicas.drop(partition.topic_partition)
        if is_hosted:
            self.replicas.host(partition)
            self.elect(partition, THIS)

    def happen(self, rng: random.Random) -> None:
        """Lets something happen to one of the partitions."""
        partition = rng.choice(self.partitions)
        if self.replicas.get(partition.topic_partition) is not partition:
            self.remove_and_host_again(partition, is_hosted=True)
            return
        event = rng.random()
        if event < 0.35:
            self.append(partition)
        elif event < 0.5:
            self.follow(partition)
        elif event < 0.6:
            self.begin_transaction(partition)
        elif event < 0.7:
            self.end_transaction(partition, is_committed=rng.random() < 0.5)
        elif event < 0.78:
            self.delete_records(partition, rng)
        elif event < 0.86:
            self.retain(partition)
        elif event < 0.97:
            self.elect(partition, rng.choice([THIS, THIS, OTHER, -1]), rng.choice([(THIS,), (THIS, OTHER)]))
        else:
            self.remove_and_host_again(partition, is_hosted=rng.random() < 0.5)

    def heal(self) -> None:
        """Makes this broker the leader of all partitions."""
        for partition in self.partitions:
            if self.replicas.get(partition.topic_partition) is not partition:
                self.remove_and_host_again(partition, is_hosted=True)
            elif not partition.is_leader:
                self.elect(partition, THIS)


class FullWalk:
    """The naive twin of a session: it reads all its partitions in each fetch."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.cursors: dict[PartitionKey, FetchCursor] = {}
        self._told: dict[PartitionKey, tuple[int, int]] = {}
        self.wait: DelayedFetch | None = None

    def take(self, key: PartitionKey, cursor: FetchCursor) -> None:
        self.cursors[key] = cursor

    def forget(self, key: PartitionKey) -> None:
        del self.cursors[key]
        self._told.pop(key, None)

    def locate(self, max_bytes: int, terms: ReaderTerms, refused: frozenset[str]) -> LocatedFetch:
        return self._rig.reader.locate(list(self.cursors.values()), max_bytes, terms, refused, wanted_bytes=WANTED)

    def select(self, answers: list[PartitionAnswer]) -> list[PartitionAnswer]:
        selected = []
        for key, answer in zip(tuple(self.cursors), answers, strict=True):
            offsets = (answer.high_watermark, answer.log_start_offset)
            if answer.error_code or answer.records_bytes or self._told.get(key) != offsets:
                selected.append(answer)
            self._told[key] = (-2, -2) if answer.error_code else offsets
            if answer.records_bytes:
                self.cursors[key] = self.cursors.pop(key)
        return selected


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.logs.close(broker_epoch=1)


class Pair:
    """A session and its naive twin, with one client."""

    def __init__(self, rig: Rig, rng: random.Random) -> None:
        self.rig, self.rng = rig, rng
        self.session, self.twin = WatchedReader(rig.watch), FullWalk(rig)
        self.terms = UNCOMMITTED
        self.refused: frozenset[str] = frozenset()
        self.read_count = self.full_count = 0
        for partition in rig.partitions:
            self.take(partition.topic_partition, 0)

    def take(self, name: TopicPartition, offset: int) -> None:
        for one in (self.session, self.twin):
            one.take((name.topic, name.partition), FetchCursor(name, offset, 200))

    def change_request(self) -> None:
        """The client changes the partitions, or the options, or an administrator changes its rights."""
        rng = self.rng
        name = rng.choice(self.rig.partitions).topic_partition
        key = (name.topic, name.partition)
        event = rng.random()
        if event < 0.1 and key in self.twin.cursors and len(self.twin.cursors) > 1:
            self.session.forget(key)
            self.twin.forget(key)
        elif event < 0.25:
            partition = self.rig.replicas.get(name)
            self.take(name, 0 if partition is None else rng.randint(0, partition.log.log_end_offset + 1))
        elif event < 0.3:
            self.terms = ReaderTerms(rng.random() < 0.5, rng.choice(["", "rack"]))
        elif event < 0.35:
            self.refused = rng.choice([frozenset(), frozenset("a")])

    def fetch(self) -> None:
        self.change_request()
        max_bytes = self.rng.choice([ROOM, ROOM, 300, 0])
        turn = ReaderContext(self.session)
        found, expected = self.locate(turn, max_bytes)
        if not expected.is_urgent and expected.size_bytes < WANTED:
            self.wait(turn, found, expected, WANTED - expected.size_bytes)
            found, expected = self.locate(turn, max_bytes)
        if self.rng.random() < 0.2:
            self.rig.happen(self.rng)  # between two turns of the event loop
        answers = turn.select(found.answers)
        assert answers == self.twin.select(expected.answers)
        self.session.check_invariants()
        for answer in answers:
            if answer.records_bytes:
                cursor = self.twin.cursors[answer.topic_partition.topic, answer.topic_partition.partition]
                self.take(answer.topic_partition, min(cursor.offset + 1, answer.high_watermark))

    def locate(self, turn: ReaderContext, max_bytes: int) -> tuple[LocatedFetch, LocatedFetch]:
        cursors = turn.cursors(self.terms, self.refused)
        found = self.rig.reader.locate(cursors, max_bytes, self.terms, self.refused, wanted_bytes=WANTED)
        expected = self.twin.locate(max_bytes, self.terms, self.refused)
        assert (found.is_urgent, found.size_bytes) == (expected.is_urgent, expected.size_bytes)
        self.read_count += len(found.answers)
        self.full_count += len(expected.answers)
        return found, expected

    def wait(self, turn: ReaderContext, found: LocatedFetch, expected: LocatedFetch, missing_bytes: int) -> None:
        """Waits while things happen. Both fetches complete at the same event."""
        done: list[str] = []
        waits = (
            turn.begin_wait(found.awaited, missing_bytes, lambda: done.append("session")),
            DelayedFetch(expected.awaited, missing_bytes, lambda: done.append("twin")),
        )
        self.rig.on_full_change = lambda name: "twin" in done or waits[1].try_complete()
        for _ in range(self.rng.randint(0, 6)):
            self.rig.happen(self.rng)
            assert sorted(done) in ([], ["session", "twin"])
            if done:
                break
        self.rig.on_full_change = lambda name: None
        turn.end_wait(waits[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_has_the_answers_of_fetches_that_read_all_its_partitions(rig: Rig, seed: int) -> None:
    print(f"seed {seed}; again with TEST_SEED={seed}")
    rng = random.Random(seed)
    pair = Pair(rig, rng)
    for _ in range(STEPS):
        pair.fetch()
        for _ in range(rng.choice([0, 0, 1, 3])):
            rig.happen(rng)
        if rng.random() < 0.3:
            rig.heal()
            pair.refused = frozenset()
    assert pair.read_count < pair.full_count


def fetched(rig: Rig, reader: WatchedReader, terms: ReaderTerms = UNCOMMITTED) -> tuple[list[str], list[str]]:
    """Fetches once. Returns the partitions that were read, and those that the answer has."""
    turn = ReaderContext(reader)
    found = rig.reader.locate(turn.cursors(terms), ROOM, terms, wanted_bytes=WANTED)
    read = [str(answer.topic_partition) for answer in found.answers]
    return read, [str(one.topic_partition) for one in turn.select(found.answers)]


def reader_of(rig: Rig) -> WatchedReader:
    reader = WatchedReader(rig.watch)
    for partition in rig.partitions:
        name = partition.topic_partition
        reader.take((name.topic, name.partition), FetchCursor(name, 0, ROOM))
    return reader


def test_partitions_without_changes_are_not_read_again(rig: Rig) -> None:
    reader = reader_of(rig)
    everything = [str(partition.topic_partition) for partition in rig.partitions]
    assert fetched(rig, reader) == (everything, everything)
    assert fetched(rig, reader) == ([], [])
    rig.append(rig.partitions[2])
    assert fetched(rig, reader) == ([everything[2]], [everything[2]])
    assert fetched(rig, reader) == ([everything[2]], [everything[2]]), "the client did not send another position"


def test_other_options_of_the_fetch_read_all_partitions_again(rig: Rig) -> None:
    reader = reader_of(rig)
    fetched(rig, reader)
    read, told = fetched(rig, reader, COMMITTED)
    assert (len(read), told) == (4, [])


def test_a_change_between_the_read_and_the_answer_is_in_the_next_answer(rig: Rig) -> None:
    reader = reader_of(rig)
    turn = ReaderContext(reader)
    found = rig.reader.locate(turn.cursors(UNCOMMITTED), ROOM, UNCOMMITTED, wanted_bytes=WANTED)
    rig.append(rig.partitions[1])
    turn.select(found.answers)
    name = str(rig.partitions[1].topic_partition)
    assert fetched(rig, reader) == ([name], [name])


def test_a_change_between_the_read_and_the_wait_completes_the_wait(rig: Rig) -> None:
    reader = reader_of(rig)
    fetched(rig, reader)
    turn = ReaderContext(reader)
    found = rig.reader.locate(turn.cursors(UNCOMMITTED), ROOM, UNCOMMITTED, wanted_bytes=WANTED)
    rig.append(rig.partitions[1])
    assert turn.begin_wait(found.awaited, 1, lambda: None).try_complete()


def test_a_wait_completes_with_the_change_that_brings_enough_bytes(rig: Rig) -> None:
    reader = reader_of(rig)
    fetched(rig, reader)
    turn = ReaderContext(reader)
    found = rig.reader.locate(turn.cursors(UNCOMMITTED), ROOM, UNCOMMITTED, wanted_bytes=WANTED)
    done: list[bool] = []
    turn.begin_wait(found.awaited, 2 * len(BATCH), lambda: done.append(True))
    rig.append(rig.partitions[1])
    assert not done
    rig.append(rig.partitions[2])
    assert done == [True]
    rig.append(rig.partitions[3])
    assert done == [True]


def test_the_end_of_a_session_completes_its_waits_and_leaves_nothing_watched(rig: Rig) -> None:
    reader = reader_of(rig)
    fetched(rig, reader)
    turn = ReaderContext(reader)
    done: list[bool] = []
    turn.begin_wait([], 1, lambda: done.append(True))
    reader.close()
    assert done == [True]
    assert rig.watch._partitions == {}


def test_a_partition_with_another_name_is_watched_under_it(rig: Rig) -> None:
    reader = WatchedReader(rig.watch)
    name = rig.partitions[0].topic_partition
    reader.take((b"id", 0), FetchCursor(TopicPartition("?", 0), 0, ROOM))
    fetched(rig, reader)
    (one,) = reader.partitions.values()
    reader.rename(one, name)
    assert fetched(rig, reader) == ([str(name)], [str(name)])
    assert fetched(rig, reader) == ([], [])
    rig.append(rig.partitions[0])
    assert fetched(rig, reader) == ([str(name)], [str(name)])
