"""Tests when a waiting produce, fetch or deletion completes, and with which result."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from klamm.errors import ErrorCode
from klamm_broker.replica.delayed_delete_records import DelayedDeleteRecords, PendingRecordDeletion
from klamm_broker.replica.delayed_fetch import AwaitedPartition, DelayedFetch
from klamm_broker.replica.delayed_produce import DelayedProduce, PendingAppend, PendingSync


@dataclass
class PartitionState:
    """The part of a Partition that waiting operations look at."""

    is_leader: bool = True
    has_leader: bool = True
    leader_epoch: int = 3
    high_watermark: int = 0
    has_min_isr: bool = True
    bytes_total: int = 0
    log_starts: dict[int, int] = field(default_factory=dict)
    log_start_offset: int = 0
    acknowledgeable_offset: int = 0
    failure: str | None = None

    @property
    def bytes(self) -> PartitionState:
        return self

    @property
    def log(self) -> PartitionState:
        return self

    @property
    def flusher(self) -> PartitionState:
        return self

    @property
    def log_dir(self) -> PartitionState:
        return self

    @property
    def leadership(self) -> PartitionState | None:
        return self if self.is_leader else None

    def total(self, *, read_committed: bool) -> int:
        return self.bytes_total

    def low_watermark(self, log_start_offset: int, live_brokers: frozenset[int]) -> int:
        return min(offset for broker, offset in self.log_starts.items() if broker in live_brokers)


class Done:
    """Counts how often an operation reports that it is done."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def produce(*states: PartitionState, required: int = 10) -> tuple[list[PendingAppend], DelayedProduce, Done]:
    appends = [PendingAppend(state, required) for state in states]
    done = Done()
    return appends, DelayedProduce(appends, done), done


def test_a_delayed_produce_completes_when_every_partition_is_committed() -> None:
    one, other = PartitionState(), PartitionState()
    appends, operation, done = produce(one, other)
    one.high_watermark = 10
    assert not operation.try_complete()
    other.high_watermark = 9
    assert not operation.try_complete()
    other.high_watermark = 11
    assert operation.try_complete()
    assert [append.code for append in appends] == [ErrorCode.NONE, ErrorCode.NONE]
    assert done.calls == 1


@pytest.mark.parametrize("change", [{"is_leader": False}, {"leader_epoch": 4}])
def test_records_of_a_lost_leadership_are_not_acknowledged(change: dict[str, int]) -> None:
    """The new leader's high watermark may be beyond these records, but its records may be different ones."""
    state = PartitionState()
    [append], operation, _ = produce(state)
    for name, value in change.items():
        setattr(state, name, value)
    state.high_watermark = 100
    assert operation.try_complete()
    assert append.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_commit_below_min_isr_gets_not_enough_replicas_after_append() -> None:
    state = PartitionState()
    [append], operation, _ = produce(state)
    state.high_watermark, state.has_min_isr = 10, False
    assert operation.try_complete()
    assert append.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_partitions_result_does_not_change_after_it_was_committed() -> None:
    one, other = PartitionState(), PartitionState()
    appends, operation, done = produce(one, other)
    one.high_watermark = 10
    assert not operation.try_complete()
    one.is_leader = False
    operation.on_expiration()
    assert [append.code for append in appends] == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    assert done.calls == 1


def test_a_delayed_produce_ends_when_the_log_directory_fails() -> None:
    state = PartitionState()
    [append], operation, _ = produce(state)
    assert not operation.try_complete()
    state.failure = "fdatasync failed"
    assert operation.try_complete()
    assert append.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_produce_with_acks_1_waits_for_the_sync_and_not_for_the_high_watermark() -> None:
    state, done = PartitionState(has_min_isr=False), Done()
    append = PendingSync(state, 10)
    operation = DelayedProduce([append], done)
    state.high_watermark, state.acknowledgeable_offset = 10, 9
    assert not operation.try_complete()
    state.high_watermark, state.acknowledgeable_offset = 0, 10
    assert operation.try_complete()
    assert (append.code, done.calls) == (ErrorCode.NONE, 1)


def test_a_produce_with_acks_1_that_lost_its_leader_while_it_waited_fails() -> None:
    state = PartitionState()
    append = PendingSync(state, 10)
    state.leader_epoch, state.acknowledgeable_offset = 4, 10
    assert append.settle()
    assert append.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def fetch(*states: PartitionState, missing: int = 100) -> tuple[DelayedFetch, Done]:
    awaited = [AwaitedPartition(state) for state in states]
    done = Done()
    return DelayedFetch(awaited, missing, done), done


def test_a_delayed_fetch_completes_when_min_bytes_have_become_readable() -> None:
    one, other = PartitionState(bytes_total=1_000), PartitionState(bytes_total=7)
    operation, done = fetch(one, other)
    assert not operation.try_complete()
    one.bytes_total += 60
    other.bytes_total += 39
    assert not operation.try_complete()
    other.bytes_total += 1
    assert operation.try_complete()
    assert done.calls == 1


def test_a_delayed_fetch_from_a_follower_completes_when_the_follower_becomes_leader() -> None:
    state = PartitionState(is_leader=False)
    operation, done = fetch(state)
    assert not operation.try_complete()
    state.is_leader = True
    assert operation.try_complete()
    assert done.calls == 1


@pytest.mark.parametrize("change", [{"is_leader": False}, {"leader_epoch": 4}, {"has_leader": False}])
def test_a_delayed_fetch_completes_when_a_partitions_leader_changes(change: dict[str, int]) -> None:
    one, other = PartitionState(), PartitionState()
    operation, done = fetch(one, other)
    for name, value in change.items():
        setattr(other, name, value)
    assert operation.try_complete()
    assert done.calls == 1


def test_a_delayed_fetch_completes_at_its_timeout() -> None:
    operation, done = fetch(PartitionState())
    operation.on_expiration()
    assert done.calls == 1


def deletion(state: PartitionState, live: set[int]) -> tuple[PendingRecordDeletion, DelayedDeleteRecords, Done]:
    pending = PendingRecordDeletion(state, 10, lambda: frozenset(live))
    done = Done()
    return pending, DelayedDeleteRecords([pending], done), done


def test_a_delayed_deletion_completes_when_all_live_replicas_have_the_log_start() -> None:
    live = {1, 2, 3}
    state = PartitionState(log_starts={1: 10, 2: 9, 3: -1})
    pending, operation, done = deletion(state, live)
    assert not operation.try_complete()
    state.log_starts[2] = 11
    assert not operation.try_complete()
    live.discard(3)
    assert operation.try_complete()
    assert (pending.code, pending.low_watermark, done.calls) == (ErrorCode.NONE, 10, 1)


@pytest.mark.parametrize("change", [{"is_leader": False}, {"leader_epoch": 4}])
def test_a_delayed_deletion_fails_when_the_leadership_is_lost(change: dict[str, int]) -> None:
    state = PartitionState(log_starts={1: 10, 2: 0})
    pending, operation, _ = deletion(state, {1, 2})
    assert not operation.try_complete()
    for name, value in change.items():
        setattr(state, name, value)
    state.log_starts[2] = 10
    assert operation.try_complete()
    assert pending.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_delayed_deletion_times_out() -> None:
    pending, operation, done = deletion(PartitionState(log_starts={1: 10, 2: 0}), {1, 2})
    operation.on_expiration()
    assert (pending.code, done.calls) == (ErrorCode.REQUEST_TIMED_OUT, 1)
