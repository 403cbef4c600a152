"""Tests which records a leader counts as committed, and which requests it refuses."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.records.encoder import encode_batch
from klamm.records.errors import CorruptBatchError
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import ClientAppend
from klamm_broker.replica.leadership import FollowerFetch, IsrChange
from klamm_broker.replica.partition import CommittedIsr, FetchOutcome, Partition
from klamm_broker.replica.replica_selector import rack_aware_selector
from klamm_server.metadata.entities import PartitionImage
from tests.support.log_steps import create_log, open_logs

NAME = TopicPartition("flights", 0)
TOPIC_ID = TopicId(uuid.UUID(int=7))
LAG_TIME_MAX_MS = 1_000
MakePartition = Callable[..., Partition]


@pytest.fixture
def make_partition(tmp_path: Path) -> MakePartition:
    """Returns a function that makes a replica on broker 1 over a real log."""

    def make(brokers: Brokers | None = None, **config: int) -> Partition:
        log = create_log(open_logs(tmp_path), NAME, TOPIC_ID, LogConfig(**config))
        return Partition(
            NAME,
            log,
            topic_id=TOPIC_ID,
            broker_id=1,
            high_watermark=0,
            brokers=brokers or Brokers(),
            lag_time_max_ms=LAG_TIME_MAX_MS,
        )

    return make


class Brokers:
    """A cluster in which all brokers are registered, each under an epoch of ten times its id."""

    def __init__(self) -> None:
        self.ineligible: set[int] = set()

    def broker_epoch(self, broker_id: int) -> int:
        return 10 * broker_id

    def is_eligible(self, broker_id: int) -> bool:
        return broker_id not in self.ineligible


def image(
    *,
    leader: int = 1,
    leader_epoch: int = 0,
    isr: tuple[int, ...] = (1,),
    replicas: tuple[int, ...] = (1, 2, 3),
    partition_epoch: int = 0,
    resigned: tuple[int, ...] = (),
) -> PartitionImage:
    return PartitionImage(
        partition=0,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        resigned_replicas=resigned,
    )


def fetch(partition: Partition, replica: int, offset: int, *, now_ms: int = 0, **changes: int) -> FetchOutcome:
    """Fetches as a follower, correctly except for `changes`."""
    usual = FollowerFetch(
        replica_id=replica,
        broker_epoch=10 * replica,
        session_id=1,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=partition.log.epochs.epoch_for_offset(offset - 1) if offset else -1,
        log_start_offset=0,
    )
    return partition.on_follower_fetch(usual._replace(**changes), now_ms=now_ms)


def isr_change(outcome: FetchOutcome) -> IsrChange:
    assert outcome.effects.isr_change is not None
    return outcome.effects.isr_change


def append(partition: Partition, count: int) -> int:
    """Appends a batch of `count` records. Returns its size in bytes."""
    records = batch(count)
    partition.append(ClientAppend(records), now_ms=0)
    return len(records)


def batch(count: int, *, producer: tuple[int, int, int] = (-1, -1, -1)) -> memoryview:
    """Returns a batch. `producer` is (id, epoch, base sequence)."""
    producer_id, producer_epoch, base_sequence = producer
    records = encode_batch(
        [(0, None, b"v", ())] * count,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return memoryview(records)


def test_a_leader_alone_in_the_isr_commits_every_append(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(), now_ms=0)
    size = append(partition, 3)
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)
    assert partition.bytes.total(read_committed=False) == size


def test_the_slowest_replica_in_sync_holds_the_high_watermark(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2, 3)), now_ms=0)
    append(partition, 5)
    append(partition, 1)
    assert partition.high_watermark == 0
    assert not fetch(partition, 2, 6).effects.high_watermark_moved
    assert fetch(partition, 3, 5).effects.high_watermark_moved
    assert partition.high_watermark == 5
    assert partition.apply(image(isr=(1, 2), partition_epoch=1), now_ms=0).high_watermark_moved
    assert partition.high_watermark == 6


def test_the_high_watermark_does_not_go_back_when_the_isr_grows(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1,)), now_ms=0)
    append(partition, 5)
    partition.apply(image(isr=(1, 2), partition_epoch=1), now_ms=0)
    assert partition.high_watermark == 5
    append(partition, 1)
    assert partition.high_watermark == 5


def test_fetch_positions_from_an_earlier_leader_epoch_do_not_count(make_partition: MakePartition) -> None:
    """The follower may have been truncated in between."""
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    append(partition, 2)
    fetch(partition, 2, 2)
    partition.apply(image(leader=2, leader_epoch=1, isr=(1, 2), partition_epoch=1), now_ms=0)
    partition.apply(image(leader=1, leader_epoch=2, isr=(1, 2), partition_epoch=2), now_ms=0)
    append(partition, 2)
    assert partition.high_watermark == 2
    fetch(partition, 2, 4)
    assert partition.high_watermark == 4


def test_bytes_become_readable_with_the_high_watermark(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    first, second = append(partition, 1), append(partition, 2)
    assert partition.bytes.total(read_committed=False) == 0
    fetch(partition, 2, 1)
    assert partition.bytes.total(read_committed=False) == first
    append(partition, 1)
    fetch(partition, 2, 3)
    assert partition.bytes.total(read_committed=False) == first + second


def test_below_min_isr_nothing_is_committed(make_partition: MakePartition) -> None:
    """The last replica may lose its tail, which no other replica would have (KIP-966)."""
    partition = make_partition(min_insync_replicas=2)
    partition.apply(image(isr=(1,)), now_ms=0)
    append(partition, 3)
    assert partition.high_watermark == 0
    change = isr_change(fetch(partition, 2, 3))
    assert partition.high_watermark == 0
    assert partition.on_isr_committed(change, CommittedIsr(0, 1, (1, 2)), now_ms=0).high_watermark_moved
    assert partition.high_watermark == 3


def test_fewer_replicas_than_min_isr_are_enough_when_there_are_no_more(make_partition: MakePartition) -> None:
    partition = make_partition(min_insync_replicas=2)
    partition.apply(image(isr=(1,), replicas=(1,)), now_ms=0)
    partition.check_min_isr()
    append(partition, 3)
    assert partition.high_watermark == 3


def test_a_follower_joins_the_isr_when_it_has_all_committed_records(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    append(partition, 4)
    fetch(partition, 2, 4)
    append(partition, 1)
    assert fetch(partition, 3, 0).effects.isr_change is None
    change = isr_change(fetch(partition, 3, 4))
    assert [tuple(member) for member in change.members] == [(1, -1), (2, 20), (3, 30)]
    assert (change.leader_epoch, change.partition_epoch) == (0, 0)
    assert fetch(partition, 3, 5).effects.isr_change is None, "one change at a time"


def test_a_follower_joins_the_isr_only_when_it_reaches_the_start_of_the_leader_epoch(
    make_partition: MakePartition,
) -> None:
    """A new leader's high watermark may be far behind the records that its predecessor committed."""
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    append(partition, 4)
    append(partition, 1)
    partition.apply(image(isr=(1, 2), leader_epoch=1, partition_epoch=1), now_ms=0)
    assert fetch(partition, 3, 4).effects.isr_change is None
    assert isr_change(fetch(partition, 3, 5)).isr == (1, 2, 3)


def test_the_high_watermark_waits_for_a_follower_in_a_pending_isr_expansion(make_partition: MakePartition) -> None:
    """The controller may have committed the larger in-sync set already."""
    partition = make_partition()
    partition.apply(image(isr=(1,)), now_ms=0)
    change = isr_change(fetch(partition, 2, 0))
    append(partition, 1)
    assert partition.high_watermark == 0
    assert partition.on_isr_refused(change, ErrorCode.REQUEST_TIMED_OUT).isr_change is change
    append(partition, 1)
    assert partition.high_watermark == 0
    assert not partition.on_isr_refused(change, ErrorCode.INVALID_UPDATE_VERSION).high_watermark_moved
    fetch(partition, 2, 1)
    assert partition.high_watermark == 1


def test_the_high_watermark_waits_for_a_leaving_follower_until_the_isr_change_is_committed(
    make_partition: MakePartition,
) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    fetch(partition, 2, 0)
    append(partition, 3)
    change = partition.check_lag(now_ms=LAG_TIME_MAX_MS + 1).isr_change
    assert change is not None
    assert change.isr == (1,)
    assert partition.high_watermark == 0
    assert partition.on_isr_committed(change, CommittedIsr(0, 1, (1,)), now_ms=0).high_watermark_moved
    assert partition.high_watermark == 3


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refused_isr_change_is_no_longer_pending(make_partition: MakePartition, code: ErrorCode) -> None:
    brokers = Brokers()
    partition = make_partition(brokers)
    partition.apply(image(isr=(1,)), now_ms=0)
    change = isr_change(fetch(partition, 2, 0))
    brokers.ineligible.add(2)
    append(partition, 1)
    assert partition.on_isr_refused(change, code) == (False, False, None)
    assert partition.check_lag(now_ms=0).high_watermark_moved, "it is not joining any more"
    brokers.ineligible.clear()
    assert isr_change(fetch(partition, 2, 1)) is not change


def test_a_response_to_an_older_isr_change_does_not_affect_a_newer_one(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1,)), now_ms=0)
    older = isr_change(fetch(partition, 2, 0))
    partition.on_isr_refused(older, ErrorCode.OPERATION_NOT_ATTEMPTED)
    newer = isr_change(fetch(partition, 2, 0))
    partition.on_isr_refused(older, ErrorCode.OPERATION_NOT_ATTEMPTED)
    partition.on_isr_committed(older, CommittedIsr(0, 1, (1,)), now_ms=0)
    assert partition.is_pending(newer)
    append(partition, 1)
    assert partition.high_watermark == 0


def test_only_a_newer_partition_epoch_ends_a_pending_change(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1,), partition_epoch=5), now_ms=0)
    change = isr_change(fetch(partition, 2, 0))
    for partition_epoch in (4, 5):
        partition.apply(image(isr=(1,), partition_epoch=partition_epoch), now_ms=0)
        assert partition.is_pending(change)
    partition.on_isr_committed(change, CommittedIsr(0, 5, (1,)), now_ms=0)
    assert partition.is_pending(change)
    partition.apply(image(isr=(1, 2), partition_epoch=6), now_ms=0)
    assert not partition.is_pending(change)
    append(partition, 1)
    assert partition.high_watermark == 0


def test_an_image_that_is_older_than_the_controllers_answer_changes_nothing(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    change = isr_change(fetch(partition, 3, 0))
    partition.on_isr_committed(change, CommittedIsr(0, 7, (1, 2, 3)), now_ms=0)
    partition.apply(image(isr=(1, 2), partition_epoch=6), now_ms=0)
    append(partition, 1)
    fetch(partition, 2, 1)
    assert partition.high_watermark == 0, "the third is in sync"


def test_replicas_change_with_an_image_of_the_epoch_that_was_answered(make_partition: MakePartition) -> None:
    """A change of the in-sync set may complete a reassignment, which the answer does not mention."""
    partition = make_partition()
    partition.apply(image(isr=(1, 2), replicas=(1, 2, 3)), now_ms=0)
    change = isr_change(fetch(partition, 3, 0))
    partition.on_isr_committed(change, CommittedIsr(0, 1, (1, 3)), now_ms=0)
    partition.apply(image(isr=(1, 3), replicas=(1, 3), partition_epoch=1), now_ms=0)
    with pytest.raises(EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER], match="broker 2 is not a follower"):
        fetch(partition, 2, 0)


def test_a_fenced_or_restarted_follower_does_not_join_the_isr(make_partition: MakePartition) -> None:
    brokers = Brokers()
    partition = make_partition(brokers)
    partition.apply(image(isr=(1,)), now_ms=0)
    brokers.ineligible.add(2)
    assert fetch(partition, 2, 0).effects.isr_change is None
    assert fetch(partition, 3, 0, broker_epoch=29).effects.isr_change is None
    brokers.ineligible.clear()
    change = partition.check_lag(now_ms=0).isr_change
    assert change is not None
    assert change.isr == (1, 2)


def test_no_follower_joins_the_isr_while_a_member_is_shutting_down(make_partition: MakePartition) -> None:
    """The controller would refuse such a set at every fetch."""
    brokers = Brokers()
    partition = make_partition(brokers)
    partition.apply(image(isr=(1, 2)), now_ms=0)
    brokers.ineligible.add(2)
    assert fetch(partition, 3, 0).effects.isr_change is None
    effects = partition.apply(image(isr=(1,), partition_epoch=1), now_ms=0)
    assert effects.isr_change is not None
    assert effects.isr_change.isr == (1, 3)


def test_a_leader_gives_the_reason_why_it_refuses_records(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    leadership = partition.check_leader()
    assert not leadership.refusal(2)
    partition.apply(image(isr=(1,), partition_epoch=1), now_ms=0)
    assert leadership.refusal(2) == "below_min_isr"
    partition.apply(image(isr=(1, 2), partition_epoch=2, resigned=(1, 2)), now_ms=0)
    assert leadership.refusal(2) == "resigned"


def test_a_resigned_replica_does_not_join_the_isr_until_it_resumes(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1,), resigned=(2,)), now_ms=0)
    assert fetch(partition, 2, 0).effects.isr_change is None
    append(partition, 1)
    assert partition.high_watermark == 1, "nobody waits for it"
    fetch(partition, 2, 1)
    effects = partition.apply(image(isr=(1,), partition_epoch=1), now_ms=0)
    assert effects.isr_change is not None
    assert effects.isr_change.isr == (1, 2)


def test_the_high_watermark_does_not_wait_for_a_joining_replica_that_resigned(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 3)), now_ms=0)
    fetch(partition, 3, 0)
    isr_change(fetch(partition, 2, 0))
    append(partition, 1)
    fetch(partition, 3, 1)
    assert partition.high_watermark == 0
    assert partition.apply(image(isr=(1, 3), partition_epoch=1, resigned=(2,)), now_ms=0).high_watermark_moved
    assert partition.high_watermark == 1


def test_a_fetch_of_a_followers_earlier_process_or_session_is_refused(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    append(partition, 2)
    fetch(partition, 2, 0, session_id=7)
    for stale in ({"session_id": 6}, {"broker_epoch": 19, "session_id": 8}):
        with pytest.raises(EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER], match="expected epoch 20, session 7 or later"):
            fetch(partition, 2, 2, **stale)
    assert partition.high_watermark == 0


def test_a_follower_that_was_recently_caught_up_stays_in_the_isr(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    append(partition, 1)
    fetch(partition, 2, 0, now_ms=100)
    append(partition, 1)
    fetch(partition, 2, 1, now_ms=200)  # has only now what there was at 100
    append(partition, 1)
    assert partition.check_lag(now_ms=100 + LAG_TIME_MAX_MS).isr_change is None
    assert partition.check_lag(now_ms=101 + LAG_TIME_MAX_MS).isr_change is not None


def test_a_silent_follower_of_an_idle_partition_stays_in_the_isr(make_partition: MakePartition) -> None:
    """The follower has everything, and the controller finds out if it is alive."""
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    append(partition, 1)
    fetch(partition, 2, 1, now_ms=0)
    assert partition.check_lag(now_ms=10**9).isr_change is None


def test_the_high_watermark_waits_for_a_follower_that_is_about_to_join_the_isr(make_partition: MakePartition) -> None:
    """Otherwise a single leader under steady writes would always be a little ahead."""
    partition = make_partition()
    partition.apply(image(isr=(1,)), now_ms=0)
    append(partition, 1)
    append(partition, 1)
    assert partition.high_watermark == 2
    fetch(partition, 2, 1, now_ms=0)
    append(partition, 1)
    assert partition.high_watermark == 3, "it is far behind"
    fetch(partition, 2, 2, now_ms=10)
    append(partition, 1)
    assert partition.high_watermark == 3, "it had at 10 what there was at 0"
    assert isr_change(fetch(partition, 2, 3, now_ms=20)).isr == (1, 2)


def test_the_position_of_a_diverging_follower_does_not_count(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    append(partition, 3)
    partition.apply(image(isr=(1, 2), leader_epoch=4, partition_epoch=1), now_ms=0)
    append(partition, 2)
    outcome = fetch(partition, 2, 4, last_fetched_epoch=0)
    assert (outcome.diverging, partition.high_watermark) == ((0, 3), 0)
    assert fetch(partition, 2, 4, last_fetched_epoch=3).diverging == (0, 3)
    assert fetch(partition, 2, 5, last_fetched_epoch=4).diverging is None
    assert partition.high_watermark == 5


def test_a_fetch_out_of_range_is_refused_and_not_answered_as_a_divergence(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    append(partition, 3)
    out_of_range = EXCEPTIONS[ErrorCode.OFFSET_OUT_OF_RANGE]
    with pytest.raises(out_of_range):
        fetch(partition, 2, 4, last_fetched_epoch=-1)
    fetch(partition, 2, 3)
    partition.log.advance_log_start(2, high_watermark=3)
    with pytest.raises(out_of_range):
        fetch(partition, 2, 1)


def test_a_new_leader_reports_no_offsets_until_its_high_watermark_reaches_its_epochs_start(
    make_partition: MakePartition,
) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    append(partition, 3)
    partition.check_high_watermark()
    partition.apply(image(isr=(1, 2), leader_epoch=1, partition_epoch=1), now_ms=0)
    with pytest.raises(EXCEPTIONS[ErrorCode.OFFSET_NOT_AVAILABLE], match="leader epoch 1 began at 3"):
        partition.check_high_watermark()
    fetch(partition, 2, 3)
    partition.check_high_watermark()


def test_the_end_offset_of_an_epoch_is_where_the_next_epoch_begins(make_partition: MakePartition) -> None:
    partition = make_partition()
    for leader_epoch, count in ((2, 3), (4, 1), (7, 0)):
        partition.apply(image(isr=(1,), leader_epoch=leader_epoch, partition_epoch=leader_epoch), now_ms=0)
        if count:
            append(partition, count)
    found = {epoch: tuple(partition.epoch_end(epoch)) for epoch in (2, 3, 4, 5, 7, 8)}
    assert found == {2: (2, 3), 3: (2, 3), 4: (4, 4), 5: (4, 4), 7: (7, 4), 8: (-1, -1)}


def test_a_request_with_a_wrong_leader_epoch_or_to_a_non_leader_is_refused(make_partition: MakePartition) -> None:
    partition = make_partition()
    with pytest.raises(EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]):
        partition.check_leader()
    partition.apply(image(leader_epoch=4), now_ms=0)
    partition.check_leader()
    partition.check_leader(4)
    with pytest.raises(EXCEPTIONS[ErrorCode.FENCED_LEADER_EPOCH], match="leader epoch 3; expected 4"):
        partition.check_leader(3)
    with pytest.raises(EXCEPTIONS[ErrorCode.UNKNOWN_LEADER_EPOCH]):
        partition.check_leader(5)
    partition.resign()
    with pytest.raises(EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]):
        partition.check_leader(4)


def test_a_read_is_checked_against_the_leader_epoch_and_the_requested_replica(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    for from_follower in (False, True):
        partition.check_reader(0, 0, from_follower=from_follower)
        with pytest.raises(EXCEPTIONS[ErrorCode.UNKNOWN_LEADER_EPOCH]):
            partition.check_reader(1, 0, from_follower=from_follower)
    partition.apply(image(leader=2, leader_epoch=1, partition_epoch=1), now_ms=0)
    with pytest.raises(EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]):
        partition.check_reader(1, 0, from_follower=False)
    with pytest.raises(EXCEPTIONS[ErrorCode.FENCED_LEADER_EPOCH]):
        partition.check_reader(0, 0, from_follower=True)
    partition.apply(image(leader=-1, leader_epoch=2, partition_epoch=2), now_ms=0)
    with pytest.raises(EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]):
        partition.check_reader(2, 0, from_follower=True)


def test_the_closest_replica_for_a_read_is_in_sync_and_has_the_offset(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)), now_ms=0)
    append(partition, 3)
    select = rack_aware_selector({1: "a", 2: "b", 3: "c"}.get)

    def closer(offset: int, rack: str) -> int | None:
        assert partition.leadership is not None
        return partition.leadership.closer_replica(offset, partition.log.log_end_offset, rack, select)

    assert closer(0, "b") is None, "it has not fetched under this leader yet"
    fetch(partition, 2, 2, log_start_offset=1)
    fetch(partition, 3, 1)
    assert [closer(offset, "b") for offset in range(4)] == [None, 2, 2, None]
    assert closer(1, "c") is None, "it is not in sync"
    assert closer(1, "a") is None, "which is here"


def test_an_image_with_an_older_leader_epoch_is_an_assertion_error(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(leader_epoch=4), now_ms=0)
    with pytest.raises(AssertionError):
        partition.apply(image(leader_epoch=3), now_ms=0)


def test_appends_below_min_insync_replicas_are_refused(make_partition: MakePartition) -> None:
    partition = make_partition(min_insync_replicas=2)
    partition.apply(image(isr=(1,)), now_ms=0)
    with pytest.raises(EXCEPTIONS[ErrorCode.NOT_ENOUGH_REPLICAS], match=r"min\.insync\.replicas=2"):
        partition.check_min_isr()
    partition.apply(image(isr=(1, 3)), now_ms=0)
    partition.check_min_isr()


def test_an_idempotent_batch_sent_again_is_not_appended_again(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(), now_ms=0)
    first, _ = partition.append(ClientAppend(batch(3, producer=(9, 0, 0))), now_ms=0)
    partition.append(ClientAppend(batch(1, producer=(9, 0, 3))), now_ms=0)
    again, moved = partition.append(ClientAppend(batch(3, producer=(9, 0, 0))), now_ms=0)
    assert (again.base_offset, again.last_offset, moved) == (first.base_offset, first.last_offset, False)
    assert partition.log.log_end_offset == 4


def test_producer_state_survives_a_change_of_the_leader_and_back(make_partition: MakePartition) -> None:
    """The leader's knowledge of producers comes from the log."""
    partition = make_partition()
    partition.apply(image(), now_ms=0)
    partition.append(ClientAppend(batch(2, producer=(9, 5, 0))), now_ms=0)
    partition.apply(image(leader=2, leader_epoch=1, isr=(1, 2)), now_ms=0)
    partition.apply(image(leader=1, leader_epoch=2, isr=(1,)), now_ms=0)
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_PRODUCER_EPOCH]):
        partition.append(ClientAppend(batch(1, producer=(9, 4, 0))), now_ms=0)
    with pytest.raises(EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER], match="sequence 7; expected 2"):
        partition.append(ClientAppend(batch(1, producer=(9, 5, 7))), now_ms=0)
    again, _ = partition.append(ClientAppend(batch(2, producer=(9, 5, 0))), now_ms=0)
    assert again.base_offset == 0
    partition.append(ClientAppend(batch(1, producer=(9, 5, 2))), now_ms=0)
    assert partition.log.log_end_offset == 3


def test_a_refused_append_leaves_no_trace_of_its_producer(make_partition: MakePartition) -> None:
    partition = make_partition(max_message_bytes=100)
    partition.apply(image(), now_ms=0)
    with pytest.raises(EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE]):
        partition.append(ClientAppend(batch(50, producer=(9, 0, 0))), now_ms=0)
    partition.append(ClientAppend(batch(1, producer=(9, 0, 0))), now_ms=0)
    assert partition.log.log_end_offset == 1


@pytest.mark.parametrize("damage", ["an older epoch", "a duplicate"])
def test_a_corrupt_batch_is_refused_before_its_producer_fields_are_used(
    make_partition: MakePartition, damage: str
) -> None:
    partition = make_partition()
    partition.apply(image(), now_ms=0)
    partition.append(ClientAppend(batch(1, producer=(7, 3, 0))), now_ms=0)
    partition.append(ClientAppend(batch(1, producer=(7, 3, 1))), now_ms=0)
    damaged = bytearray(batch(1, producer=(7, 3, 2)))
    if damage == "an older epoch":
        damaged[51:53] = (2).to_bytes(2, "big")
    else:
        damaged[53:57] = (1).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        partition.append(ClientAppend(memoryview(damaged)), now_ms=0)
    assert partition.append(ClientAppend(batch(1, producer=(7, 3, 2))), now_ms=0)[0].base_offset == 2


def test_several_batches_with_a_producer_id_are_refused(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(), now_ms=0)
    two = memoryview(bytes(batch(1, producer=(9, 0, 0))) + bytes(batch(1)))
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_RECORD]):
        partition.append(ClientAppend(two), now_ms=0)
