"""Tests both halves of a follower's fetch session: message contents, omitted fields, and late messages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.records.encoder import encode_batch
from klamm.wire.v1.broker_pb2 import (
    ReplicaFetchHeader,
    ReplicaFetchRequest,
    ReplicaPartition,
    ReplicaPosition,
    ReplicatedPartition,
)
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import ClientAppend
from klamm_broker.replica.follower_session import FetchBounds, FollowerSession
from klamm_broker.replica.leadership import IsrChange
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.replica.replica_session import ReplicaSession, SessionAnswer, SessionWatch
from klamm_broker.replica.replication_quota import ReplicationQuota
from klamm_server.metadata.entities import BrokerImage, PartitionImage
from tests.support.log_steps import create_log, open_logs

TOPIC_ID = TopicId(uuid.UUID(int=7))
LEADER, FOLLOWER = 1, 2
ROOM = 10**6


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Observer:
    """An observer that notifies the sessions, as the broker does."""

    def __init__(self) -> None:
        self.watch = SessionWatch()
        self.isr_changes: list[IsrChange] = []

    def on_change(self, topic_partition: TopicPartition) -> None:
        self.watch.on_change(topic_partition)

    def on_append(self, topic_partition: TopicPartition) -> None:
        self.watch.on_append(topic_partition)

    def on_sync_owed(self, partition: Partition) -> None:
        pass

    def on_log_start(self, topic_partition: TopicPartition) -> None:
        self.watch.on_change(topic_partition)

    def on_isr_change(self, partition: Partition, change: IsrChange) -> None:
        self.isr_changes.append(change)

    def on_role(self, partition: Partition) -> None:
        pass

    def on_offline(self, topic_id: bytes, partition: int) -> None:
        pass

    def on_no_space(self, topic_id: bytes, partition: int) -> None:
        pass

    def on_disk_full(self, log_dir: LogDir) -> None:
        pass


class Broker:
    """The replicas of one broker over real logs, and one follower's session."""

    def __init__(self, logs: LogManager, broker_id: int) -> None:
        self.clock = ManualClock()
        self.observer = Observer()
        self.replicas = ReplicaManager(broker_id=broker_id, clock=self.clock, observer=self.observer)
        self.replicas.note_brokers({one: broker_image(one) for one in (LEADER, FOLLOWER)})
        self._logs = logs
        self.rings = 0
        self.session = ReplicaSession(self.replicas, self.observer.watch, self._ring)

    def _ring(self) -> None:
        self.rings += 1

    def host(self, number: int, *, leader_epoch: int = 0, isr: Sequence[int] = (LEADER, FOLLOWER)) -> Partition:
        name = TopicPartition(f"on-{self.replicas.broker_id}", number)
        partition = Partition(
            name,
            create_log(self._logs, name, TOPIC_ID, LogConfig()),
            topic_id=TOPIC_ID,
            broker_id=self.replicas.broker_id,
            high_watermark=0,
            brokers=self.replicas.brokers,
            lag_time_max_ms=1_000,
        )
        self.replicas.host(partition)
        self.elect(partition, leader_epoch, isr=isr)
        return partition

    def elect(
        self, partition: Partition, leader_epoch: int, *, leader: int = LEADER, isr: Sequence[int] = (LEADER, FOLLOWER)
    ) -> None:
        image = PartitionImage(
            partition=partition.topic_partition.partition,
            replicas=(LEADER, FOLLOWER),
            isr=tuple(isr),
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=leader_epoch,
        )
        self.replicas.apply(partition, image)

    def append(self, partition: Partition, count: int = 1) -> int:
        """Appends records. Returns their size in bytes."""
        records = bytes(encode_batch([(0, None, b"v", ())] * count))
        self.replicas.append(partition.topic_partition, ClientAppend(memoryview(records)), acks=1)
        return len(records)

    def ask(self, *positions: ReplicaPosition, forgotten: Sequence[int] = ()) -> None:
        request = ReplicaFetchRequest(
            replica_id=FOLLOWER,
            broker_epoch=FOLLOWER,
            session_id=1,
            positions=positions,
            forgotten=[ReplicaPartition(topic_id=TOPIC_ID.bytes, partition=number) for number in forgotten],
        )
        self.session.on_request(request, now_ms=self.clock.now_ms)

    def locate(self, max_bytes: int = ROOM) -> SessionAnswer:
        return self.session.locate(max_bytes, now_ms=self.clock.now_ms)

    def send(self, answer: SessionAnswer) -> list[ReplicatedPartition]:
        return self.session.sent(answer, now_ms=self.clock.now_ms)

    def answer(self, max_bytes: int = ROOM) -> list[tuple[int, int, int, int]]:
        """Sends the available parts. Returns (partition, error, bytes, high watermark) of each part."""
        return [
            (part.partition, part.error_code, part.records_bytes, part.high_watermark)
            for part in self.send(self.locate(max_bytes))
        ]


def broker_image(broker_id: int) -> BrokerImage:
    return BrokerImage(
        broker_id=broker_id,
        broker_epoch=broker_id,
        incarnation_id=bytes(16),
        host="localhost",
        port=1,
        rack="",
        fenced=False,
        in_controlled_shutdown=False,
        log_dir_ids=(),
        static_configs={},
    )


def at(number: int, offset: int, *, leader_epoch: int = 0, last_fetched_epoch: int = 0) -> ReplicaPosition:
    return ReplicaPosition(
        topic_id=TOPIC_ID.bytes,
        partition=number,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch if offset else -1,
        log_start_offset=0,
        max_bytes=ROOM,
    )


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[[int], Broker]]:
    logs = open_logs(tmp_path)
    yield lambda broker_id: Broker(logs, broker_id)
    logs.close(broker_epoch=1)


@pytest.fixture
def leader(make_broker: Callable[[int], Broker]) -> Broker:
    return make_broker(LEADER)


def test_records_are_sent_once_until_the_follower_sends_its_position_again(leader: Broker) -> None:
    partition = leader.host(0)
    size = leader.append(partition)
    leader.ask(at(0, 0))
    assert leader.answer() == [(0, 0, size, 0)]
    leader.append(partition)
    leader.ask()
    assert not leader.session.has_ready
    leader.ask(at(0, 1))
    assert leader.answer() == [(0, 0, size, 1)]


def test_an_unchanged_partition_is_left_out_and_its_next_append_wakes_the_session(leader: Broker) -> None:
    partitions = [leader.host(number) for number in range(3)]
    leader.ask(*(at(number, 0) for number in range(3)))
    assert [part[0] for part in leader.answer()] == [0, 1, 2], "the high watermark is news to a new session"
    leader.ask()
    assert not leader.session.has_ready
    assert not leader.session.has_changes
    assert leader.rings == 0
    size = leader.append(partitions[1])
    assert leader.rings == 1
    assert leader.answer() == [(1, 0, size, 0)]


def test_a_moved_high_watermark_is_sent_but_does_not_complete_the_wait(leader: Broker) -> None:
    partition = leader.host(0)
    leader.append(partition)
    leader.ask(at(0, 0))
    leader.answer()
    leader.ask(at(0, 1))
    assert partition.high_watermark == 1
    assert not leader.session.has_ready
    assert leader.session.has_changes
    assert leader.answer() == [(0, 0, 0, 1)]
    leader.ask()
    assert not leader.session.has_changes


def test_a_moved_high_watermark_is_sent_together_with_new_records(leader: Broker) -> None:
    partition = leader.host(0)
    leader.append(partition)
    leader.ask(at(0, 0))
    leader.answer()
    leader.ask(at(0, 1))
    size = leader.append(partition)
    assert not leader.session.has_changes
    assert leader.answer() == [(0, 0, size, 1)]


def test_a_partition_without_room_in_the_answer_comes_first_in_the_next_one(leader: Broker) -> None:
    partitions = [leader.host(number) for number in range(3)]
    size = max([leader.append(partition) for partition in partitions])
    leader.ask(*(at(number, 0) for number in range(3)))
    assert [part[0] for part in leader.answer(size)] == [0]
    leader.append(partitions[0])
    leader.ask(at(0, 1))
    assert [part[0] for part in leader.answer(2 * size)] == [1, 2]
    leader.ask(at(1, 1), at(2, 1))
    assert leader.answer(size)[0][:3] == (0, 0, size)


def test_a_first_batch_that_is_larger_than_the_bounds_is_sent(leader: Broker) -> None:
    size = leader.append(leader.host(0), 100)
    position = at(0, 0)
    position.max_bytes = 1
    leader.ask(position)
    assert leader.answer(1) == [(0, 0, size, 0)]


def test_a_position_ahead_of_the_metadata_waits_for_them(leader: Broker) -> None:
    partition = leader.host(0)
    leader.ask(at(0, 0, leader_epoch=1), at(9, 0, leader_epoch=1))
    assert not leader.session.has_ready
    leader.elect(partition, 1)
    size = leader.append(partition)
    assert leader.rings == 0
    leader.observer.watch.on_image()
    assert leader.rings == 1
    assert leader.answer() == [(0, 0, size, 0)]
    leader.append(leader.host(9, leader_epoch=1))
    leader.observer.watch.on_image()
    assert leader.answer() == [(9, 0, size, 0)]


def test_a_position_under_an_older_epoch_is_refused_and_leaves_the_session(leader: Broker) -> None:
    partition = leader.host(0, leader_epoch=3)
    leader.ask(at(0, 0, leader_epoch=2))
    assert leader.locate().is_urgent
    assert leader.answer() == [(0, ErrorCode.FENCED_LEADER_EPOCH, 0, 0)]
    leader.append(partition)
    assert leader.rings == 0


@pytest.mark.parametrize("new_leader", [LEADER, FOLLOWER])
def test_a_lost_leadership_is_answered_at_once(leader: Broker, new_leader: int) -> None:
    partition = leader.host(0)
    leader.ask(at(0, 0))
    leader.answer()
    leader.ask()
    leader.elect(partition, 1, leader=new_leader)
    assert leader.rings == 1
    found = leader.locate()
    assert found.is_urgent
    assert leader.answer()[0][1] == ErrorCode.FENCED_LEADER_EPOCH
    assert leader.answer() == []


def test_records_located_before_a_lost_leadership_are_stale(leader: Broker) -> None:
    partition = leader.host(0)
    leader.append(partition)
    leader.ask(at(0, 0))
    found = leader.locate()
    assert not leader.session.is_stale(found)
    leader.elect(partition, 1)
    assert leader.session.is_stale(found)


def test_an_out_of_range_answer_has_the_leaders_log_start_and_log_end(leader: Broker) -> None:
    partition = leader.host(0, isr=(LEADER,))
    for _ in range(3):
        leader.append(partition)
    leader.replicas.delete_records(partition, 2)
    leader.ask(at(0, 1))
    (part,) = leader.send(leader.locate())
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (part.fetch_offset, part.log_start_offset, part.log_end_offset) == (1, 2, 3)


def test_a_new_log_start_is_sent_to_the_follower(leader: Broker) -> None:
    partition = leader.host(0, isr=(LEADER,))
    leader.append(partition)
    leader.ask(at(0, 1))
    leader.answer()
    leader.replicas.delete_records(partition, 1)
    assert leader.session.has_changes
    (part,) = leader.send(leader.locate())
    assert part.log_start_offset == 1


def test_a_forgotten_partition_is_no_longer_in_answers(leader: Broker) -> None:
    partition = leader.host(0)
    leader.ask(at(0, 0), at(5, 0, leader_epoch=8))
    leader.ask(forgotten=[0, 5])
    leader.append(partition)
    leader.observer.watch.on_image()
    assert leader.answer() == []
    assert leader.rings == 0


def test_a_silent_follower_is_caught_up_as_of_its_last_request(leader: Broker) -> None:
    """The follower had everything at each of its requests, but does not repeat its positions."""
    partition = leader.host(0)
    leader.ask(at(0, 0))
    leader.answer()
    leader.clock.now_ms = 5_000
    leader.ask()
    leader.append(partition)
    leader.clock.now_ms = 6_000
    leader.replicas.check_lag()
    assert leader.observer.isr_changes == []
    leader.clock.now_ms = 6_001
    leader.replicas.check_lag()
    assert [change.isr for change in leader.observer.isr_changes] == [(LEADER,)]


def test_a_follower_whose_session_ended_leaves_the_isr_after_its_last_requests_lag_time(leader: Broker) -> None:
    partition = leader.host(0)
    leader.ask(at(0, 0))
    leader.clock.now_ms = 5_000
    leader.ask()
    leader.session.close()
    leader.append(partition)
    leader.clock.now_ms = 6_000
    leader.replicas.check_lag()
    assert leader.observer.isr_changes == []
    leader.clock.now_ms = 6_001
    leader.replicas.check_lag()
    assert leader.observer.isr_changes


# The follower's half


def follower_session(quota: ReplicationQuota | None = None) -> FollowerSession:
    bounds = FetchBounds(max_wait_ms=500, min_bytes=1, max_bytes=ROOM, partition_max_bytes=ROOM)
    return FollowerSession(replica_id=FOLLOWER, session_id=3, bounds=bounds, quota=quota or ReplicationQuota())


def named(session: FollowerSession) -> list[tuple[int, int, int]]:
    """Returns partitions, epochs and offsets of the next request."""
    request = session.next_request(broker_epoch=FOLLOWER, now_ms=0)
    return [
        (position.partition, position.current_leader_epoch, position.fetch_offset) for position in request.positions
    ]


def header_about(*numbers: int) -> ReplicaFetchHeader:
    parts = [{"topic_id": TOPIC_ID.bytes, "partition": number} for number in numbers]
    return ReplicaFetchHeader(partitions=parts)


def told(session: FollowerSession, *numbers: int) -> list[int]:
    """Returns the partitions that an answer about these numbers concerns."""
    answers = session.on_answer(header_about(*numbers), [memoryview(b"")] * len(numbers))
    return [partition.topic_partition.partition for partition, _ in answers]


@pytest.fixture
def follower(make_broker: Callable[[int], Broker]) -> Broker:
    return make_broker(FOLLOWER)


def test_a_follower_sends_only_changed_positions(follower: Broker) -> None:
    one, other = follower.host(0), follower.host(1)
    session = follower_session()
    session.add(one)
    session.add(other)
    assert named(session) == [(0, 0, 0), (1, 0, 0)]
    assert not session.may_send
    assert told(session, 0, 1) == [0, 1]
    session.request_if_moved(one)
    assert named(session) == []
    assert told(session) == []
    one.log.append_as_follower(bytes(encode_batch([(0, None, b"v", ())])), leader_epoch=9, now_ms=0)
    session.request_if_moved(one)
    assert named(session) == [(0, 0, 1)]


def test_an_added_partition_allows_one_more_request_before_the_answer(follower: Broker) -> None:
    session = follower_session()
    session.add(follower.host(0))
    assert named(session) == [(0, 0, 0)]
    session.add(follower.host(1))
    assert session.may_send
    assert named(session) == [(1, 0, 0)]
    session.add(follower.host(2))
    assert not session.may_send
    assert told(session, 0) == [0]
    assert named(session) == [(2, 0, 0)]


def test_an_answer_to_a_request_before_the_partition_was_added_again_is_dropped(follower: Broker) -> None:
    """The answer may belong to another leader epoch with the same offset."""
    partition = follower.host(0)
    session = follower_session()
    session.add(partition)
    assert named(session) == [(0, 0, 0)]
    follower.elect(partition, 1)
    session.add(partition)
    assert named(session) == [(0, 1, 0)]
    assert told(session, 0) == []
    assert told(session, 0) == [0]


def test_a_partition_that_is_no_longer_followed_is_sent_as_forgotten(follower: Broker) -> None:
    partition = follower.host(0)
    session = follower_session()
    session.add(partition)
    named(session)
    session.remove(partition)
    request = session.next_request(broker_epoch=FOLLOWER, now_ms=0)
    assert [one.partition for one in request.forgotten] == [0]
    assert told(session, 0) == []
    session.request_again(partition)
    assert told(session) == []
    assert named(session) == []


def test_locating_an_answer_does_not_change_the_session_until_it_is_sent(leader: Broker) -> None:
    size = leader.append(leader.host(0))
    leader.ask(at(0, 0))
    found: SessionAnswer = leader.locate()
    assert leader.session.has_ready, "looking changes nothing"
    assert (found.size_bytes, len(found.slices)) == (size, 1)
    leader.send(found)
    assert not leader.session.has_ready


# Throttling


def throttle(leader: Broker, limit: int, *numbers: int) -> None:
    leader.replicas.quotas.leader.configure(limit, {f"on-{LEADER}": frozenset(numbers)})


def test_records_of_a_throttled_replica_out_of_sync_are_held_until_the_quota_is_free(leader: Broker) -> None:
    throttled, other = leader.host(0, isr=(LEADER,)), leader.host(1, isr=(LEADER,))
    throttle(leader, 100, 0)
    # The partition is too far behind to join the in-sync set.
    size = leader.append(throttled, 20)
    leader.append(throttled, 20)
    leader.append(other, 1)
    leader.ask(at(0, 0), at(1, 0))
    (first, *_) = leader.answer()
    assert first[0] == 0
    assert first[2] >= size > 100
    leader.append(other, 1)
    leader.ask(at(0, 20), at(1, 1))
    assert [number for number, *_ in leader.answer()] == [1], "the others go on"
    found = leader.locate()
    assert (found.size_bytes, len(found.held)) == (0, 1)
    assert leader.session.has_ready
    free_ms = leader.session.resume_at_ms(leader.clock.now_ms)
    assert free_ms > leader.clock.now_ms
    leader.clock.now_ms = free_ms - 1
    assert leader.answer() == []
    leader.clock.now_ms = free_ms
    assert [(number, bytes_) for number, _, bytes_, _ in leader.answer()] == [(0, size)]


def test_a_throttled_replica_in_sync_is_not_held(leader: Broker) -> None:
    partition = leader.host(0)
    throttle(leader, 0, 0)
    for offset in range(2):
        size = leader.append(partition)
        leader.ask(at(0, offset))
        assert [bytes_ for _, _, bytes_, _ in leader.answer()] == [size]
    assert leader.replicas.quotas.leader.copied_bytes == 2 * size


def test_a_throttled_replica_still_gets_a_new_log_start_and_a_lost_leadership(leader: Broker) -> None:
    partition = leader.host(0, isr=(LEADER,))
    throttle(leader, 0, 0)
    leader.replicas.quotas.leader.record(partition.topic_partition, 1, 0)
    leader.append(partition, 5)
    leader.append(partition, 5)
    leader.ask(at(0, 0))
    assert [bytes_ for _, _, bytes_, _ in leader.answer()] == [0], "where the leader stands is no record"
    leader.replicas.delete_records(partition, 5)
    (part,) = leader.send(leader.locate())
    assert (part.log_start_offset, part.records_bytes) == (5, 0)
    assert leader.answer() == []
    leader.elect(partition, 1, leader=FOLLOWER)
    assert leader.answer()[0][1] == ErrorCode.FENCED_LEADER_EPOCH


def test_a_follower_requests_at_most_its_quota_for_a_throttled_partition(follower: Broker) -> None:
    quota = ReplicationQuota()
    quota.configure(50, {f"on-{FOLLOWER}": frozenset({0})})
    session = follower_session(quota)
    session.add(follower.host(0))
    session.add(follower.host(1))
    request = session.next_request(broker_epoch=FOLLOWER, now_ms=0)
    assert [position.max_bytes < 1_000 for position in request.positions] == [True, False]
    assert request.positions[0].max_bytes == 50
