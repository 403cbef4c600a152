"""Tests a follower's reactions to its leader's answers: append, truncate, start again, wait."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.records.encoder import encode_batch
from klamm.records.header import iter_headers
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.replica.follower_partition import LeaderAnswer, LogEpochEnd, NextStep
from klamm_broker.replica.leadership import FollowerFetch
from klamm_broker.replica.partition import Partition
from klamm_server.metadata.entities import PartitionImage
from tests.support.log_steps import create_log, open_logs

TOPIC_ID = TopicId(uuid.UUID(int=7))
LEADER, FOLLOWER = 1, 2
MakeReplica = Callable[..., Partition]


class Brokers:
    def broker_epoch(self, broker_id: int) -> int:
        return broker_id

    def is_eligible(self, broker_id: int) -> bool:
        return True


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    manager = open_logs(tmp_path)
    yield manager
    manager.close(broker_epoch=1)


@pytest.fixture
def make_replica(logs: LogManager) -> MakeReplica:
    """Returns a function that makes a replica over a real log.

    The log has batches of one record with the given epochs.
    """
    number = 0

    def make(broker_id: int, epochs: list[int], *, start: int = 0, high_watermark: int = 0) -> Partition:
        nonlocal number
        number += 1
        name = TopicPartition("flights", number)
        log = create_log(logs, name, TOPIC_ID, LogConfig())
        if start:
            log.truncate_fully_and_start_at(start, now_ms=0)
        for epoch in epochs:
            log.append_as_leader(batch(), leader_epoch=epoch, now_ms=0)
        return Partition(
            name,
            log,
            topic_id=TOPIC_ID,
            broker_id=broker_id,
            high_watermark=high_watermark,
            brokers=Brokers(),
            lag_time_max_ms=1_000,
        )

    return make


def batch() -> memoryview:
    return memoryview(bytes(encode_batch([(0, None, b"v", ())])))


def lead(replica: Partition, epoch: int) -> None:
    replica.apply(image(epoch), now_ms=0)


def image(epoch: int) -> PartitionImage:
    return PartitionImage(
        partition=0,
        replicas=(LEADER, FOLLOWER),
        isr=(LEADER, FOLLOWER),
        leader=LEADER,
        leader_epoch=epoch,
        partition_epoch=epoch,
    )


def answer(replica: Partition, **changes: object) -> LeaderAnswer:
    """Returns the leader's answer to a fetch at the replica's end. The answer has nothing but the `changes`."""
    end_offset = replica.log.log_end_offset
    usual = LeaderAnswer(
        error_code=0,
        fetch_offset=end_offset,
        high_watermark=0,
        log_start_offset=0,
        log_end_offset=end_offset,
        records=b"",
        diverging=None,
    )
    return usual._replace(**changes)


def exchange(leader: Partition, follower: Partition, max_bytes: int = 10**6) -> LeaderAnswer:
    """Fetches once, as a session would. Returns the leader's answer, which the follower has applied."""
    assert follower.following is not None
    leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset = follower.following.position
    fetch = FollowerFetch(FOLLOWER, FOLLOWER, 1, leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset)
    diverging = leader.on_follower_fetch(fetch, now_ms=0).diverging
    records = b"" if diverging else leader.log.reader.read(fetch_offset, max_bytes).records
    said = LeaderAnswer(
        error_code=0,
        fetch_offset=fetch_offset,
        high_watermark=leader.high_watermark,
        log_start_offset=leader.log.log_start_offset,
        log_end_offset=leader.log.log_end_offset,
        records=records,
        diverging=diverging,
    )
    follower.on_leader_answer(said, wall_ms=0)
    return said


def epochs_of(log: PartitionLog) -> list[tuple[int, int]]:
    """Returns offset and epoch of every record."""
    records = log.reader.read(log.log_start_offset, 10**6).records
    return [(header.base_offset, header.partition_leader_epoch) for _, header in iter_headers(records)]


def test_a_follower_stores_the_leaders_bytes_and_epochs(make_replica: MakeReplica) -> None:
    leader, follower = make_replica(LEADER, [1, 1, 4]), make_replica(FOLLOWER, [])
    for replica in (leader, follower):
        lead(replica, 5)
    exchange(leader, follower)
    assert follower.log.reader.read(0, 10**6).records == leader.log.reader.read(0, 10**6).records
    assert follower.log.epochs.entries == leader.log.epochs.entries
    assert follower.high_watermark == 0
    exchange(leader, follower)
    exchange(leader, follower)
    assert follower.high_watermark == leader.high_watermark == 3


def test_a_follower_serves_readers_after_the_leader_confirmed_its_log(
    make_replica: MakeReplica,
) -> None:
    leader, follower = make_replica(LEADER, [1, 1]), make_replica(FOLLOWER, [1, 0], high_watermark=2)
    for replica in (leader, follower):
        lead(replica, 5)

    def refuses(offset: int) -> bool:
        try:
            follower.check_reader(5, offset, from_follower=True)
        except EXCEPTIONS[ErrorCode.OFFSET_NOT_AVAILABLE]:
            return True
        return False

    assert refuses(0), "records that the leader may not have"
    assert exchange(leader, follower).diverging is not None
    assert refuses(0)
    exchange(leader, follower)
    assert not refuses(0)
    assert not refuses(2)
    assert refuses(3), "the leader may have it by now"


def test_bytes_become_readable_with_the_high_watermark_that_the_leader_sends(make_replica: MakeReplica) -> None:
    leader, follower = make_replica(LEADER, [1, 1]), make_replica(FOLLOWER, [])
    for replica in (leader, follower):
        lead(replica, 5)
    exchange(leader, follower)
    assert follower.bytes.total(read_committed=False) == 0
    exchange(leader, follower)
    exchange(leader, follower)
    assert follower.high_watermark == 2
    assert follower.bytes.total(read_committed=False) == 2 * len(batch())
    assert follower.readable_end_offset(read_committed=False) == 2


def test_records_that_are_cut_never_become_readable(make_replica: MakeReplica) -> None:
    follower = make_replica(FOLLOWER, [])
    lead(follower, 5)
    follower.on_leader_answer(answer(follower, records=batch(), log_end_offset=1), wall_ms=0)
    follower.on_leader_answer(answer(follower, diverging=LogEpochEnd(-1, 0)), wall_ms=0)
    follower.on_leader_answer(answer(follower, records=batch(), log_end_offset=1, high_watermark=1), wall_ms=0)
    assert follower.bytes.total(read_committed=False) == len(batch())


def test_the_high_watermark_stays_within_the_own_log_and_does_not_go_back(make_replica: MakeReplica) -> None:
    follower = make_replica(FOLLOWER, [1, 1], high_watermark=1)
    lead(follower, 1)
    assert follower.on_leader_answer(answer(follower, high_watermark=9), wall_ms=0).high_watermark == 2
    assert follower.on_leader_answer(answer(follower, high_watermark=1), wall_ms=0).high_watermark == 2


def test_a_follower_advances_its_log_start_up_to_its_high_watermark(make_replica: MakeReplica) -> None:
    follower = make_replica(FOLLOWER, [1] * 5)
    lead(follower, 1)
    follower.on_leader_answer(answer(follower, high_watermark=2, log_start_offset=4), wall_ms=0)
    assert follower.log.log_start_offset == 2
    follower.on_leader_answer(answer(follower, high_watermark=5, log_start_offset=4), wall_ms=0)
    assert follower.log.log_start_offset == 4


def test_an_answer_to_another_position_is_dropped(make_replica: MakeReplica) -> None:
    follower = make_replica(FOLLOWER, [1, 1])
    lead(follower, 1)
    late = [
        answer(follower, fetch_offset=1, records=batch(), high_watermark=2),
        answer(follower, fetch_offset=1, diverging=LogEpochEnd(0, 0)),
        answer(follower, fetch_offset=3, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
    for one in late:
        assert follower.on_leader_answer(one, wall_ms=0) == (NextStep.FETCH, 0, None, 0)
    assert follower.log.log_end_offset == 2


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, NextStep.AWAIT_METADATA),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, NextStep.BACK_OFF),
        (ErrorCode.KAFKA_STORAGE_ERROR, NextStep.BACK_OFF),
    ],
)
def test_an_error_from_the_leader_does_not_change_the_followers_log(
    make_replica: MakeReplica, code: ErrorCode, step: NextStep
) -> None:
    follower = make_replica(FOLLOWER, [1, 1], high_watermark=1)
    lead(follower, 1)
    assert follower.on_leader_answer(answer(follower, error_code=code), wall_ms=0) == (step, 1, None, 0)


def test_a_follower_whose_log_ends_before_the_leaders_start_truncates_fully(make_replica: MakeReplica) -> None:
    follower = make_replica(FOLLOWER, [1, 1], high_watermark=2)
    lead(follower, 1)
    out_of_range = answer(
        follower, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=7, log_end_offset=9, high_watermark=9
    )
    update = follower.on_leader_answer(out_of_range, wall_ms=0)
    assert update == (NextStep.FETCH, 7, 2, 0)
    assert (follower.log.log_start_offset, follower.log.log_end_offset, follower.high_watermark) == (7, 7, 7)


def test_an_empty_log_that_starts_after_the_leaders_end_moves_back_to_it(make_replica: MakeReplica) -> None:
    follower = make_replica(FOLLOWER, [], start=7)
    lead(follower, 1)
    out_of_range = answer(follower, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_end_offset=3)
    assert follower.on_leader_answer(out_of_range, wall_ms=0).truncated_from == 7
    assert follower.log.log_end_offset == 3


def test_a_truncation_below_the_high_watermark_is_reported(make_replica: MakeReplica) -> None:
    """A leader can cause such a truncation only after an unclean election."""
    follower = make_replica(FOLLOWER, [1] * 5, high_watermark=4)
    lead(follower, 2)
    update = follower.on_leader_answer(answer(follower, diverging=LogEpochEnd(1, 3)), wall_ms=0)
    assert update == (NextStep.FETCH, 3, 5, 1)
    assert follower.high_watermark == 3


def test_an_inconsistent_divergence_from_the_leader_truncates_nothing(make_replica: MakeReplica) -> None:
    follower = make_replica(FOLLOWER, [1, 1])
    lead(follower, 2)
    update = follower.on_leader_answer(answer(follower, diverging=LogEpochEnd(1, 8)), wall_ms=0)
    assert update.next_step is NextStep.BACK_OFF
    assert follower.log.log_end_offset == 2


def test_logs_after_repeated_unclean_elections_become_equal(make_replica: MakeReplica) -> None:
    """The logs are KIP-279's example.

    Neither has the last epoch of the other, and one look-up does not find the divergence.
    """
    leader, follower = make_replica(LEADER, [1, 1, 3, 3, 5]), make_replica(FOLLOWER, [1, 1, 2, 2, 4, 4])
    for replica in (leader, follower):
        lead(replica, 6)
    answers = 0
    while follower.log.log_end_offset != leader.log.log_end_offset or epochs_of(follower.log) != epochs_of(leader.log):
        exchange(leader, follower)
        answers += 1
        assert answers < 10
    assert epochs_of(follower.log) == [(0, 1), (1, 1), (2, 3), (3, 3), (4, 5)]


epoch_lists = st.lists(st.integers(0, 6), max_size=8).map(sorted)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(common=epoch_lists, own=epoch_lists, others=epoch_lists)
def test_logs_with_any_history_become_equal(
    make_replica: MakeReplica, common: list[int], own: list[int], others: list[int]
) -> None:
    """The records of one epoch and offset are equal in all logs, because each epoch had one leader.

    After the common part, the follower has odd epochs and the leader even ones. The follower truncates no common
    record.
    """
    base = common[-1] + 1 if common else 0
    of_leader = [*common, *(2 * (base + epoch) for epoch in own)]
    of_follower = [*common, *(2 * (base + epoch) + 1 for epoch in others)]
    leader, follower = make_replica(LEADER, of_leader), make_replica(FOLLOWER, of_follower)
    for replica in (leader, follower):
        lead(replica, 1_000)
    for _ in range(len(of_leader) + len(of_follower) + 3):
        exchange(leader, follower, max_bytes=1)
        assert follower.log.log_end_offset >= len(common)
    assert epochs_of(follower.log) == epochs_of(leader.log)
    assert follower.log.epochs.entries == leader.log.epochs.entries
    assert leader.high_watermark == len(of_leader)
