"""Tests offsets of transactions: pending until the marker, and decided by their place in the log (KIP-98, KIP-447)."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.group_shard.events import TopicsDeleted
from klamm_coordinator.offsets.messages import EndTransaction
from klamm_coordinator.offsets.store import ShardOffsets
from klamm_coordinator.records.schemas import OffsetCommitValue
from klamm_coordinator.runtime.accounts import Accounts
from klamm_coordinator.runtime.log_write import TxnMarker, TxnProducer
from klamm_server.runtime.byte_shares import unbounded

ONE = TxnProducer(1_000, 0)
TWO = TxnProducer(2_000, 5)
DAY_MS = 24 * 3_600_000


def errors(driver, reply_id):
    return driver.replies[reply_id].errors


def test_a_transactional_offset_is_visible_after_its_transaction_commits(driver):
    driver.commit(7)

    assert errors(driver, driver.txn_commit(42, ONE)) == (ErrorCode.NONE,)

    assert (driver.offset(), driver.unstable(0)) == (7, [0])
    reply_id = driver.end_transaction(ONE, committed=True)
    assert driver.replies[reply_id].error is ErrorCode.NONE
    assert (driver.offset(), driver.unstable()) == (42, [])


def test_an_offset_of_an_aborted_transaction_is_never_visible(driver):
    driver.commit(7)
    driver.txn_commit(42, ONE)

    driver.end_transaction(ONE, committed=False)

    assert (driver.offset(), driver.unstable()) == (7, [])


def test_only_the_partitions_of_the_transaction_are_unstable(driver):
    driver.txn_commit(42, ONE, partition=3)

    assert driver.unstable() == [3]
    assert driver.unstable(0, 1) == []
    assert driver.unstable(3, group_id="another") == []


def test_an_offset_is_unstable_from_the_start_of_its_write(driver):
    driver.auto_ack = False

    driver.txn_commit(42, ONE)

    assert driver.unstable() == [0]
    driver.nack(ErrorCode.MESSAGE_TOO_LARGE)
    assert driver.unstable() == []


def test_a_transactional_write_and_its_marker_are_sent_to_the_log(driver):
    driver.auto_ack = False

    driver.txn_commit(42, ONE)
    driver.end_transaction(ONE, committed=True)

    offsets, marker = driver.unsent
    assert (offsets.producer, offsets.marker, len(offsets.records)) == (ONE, None, 1)
    assert marker.producer == TxnProducer(ONE.producer_id, ONE.epoch + 1)
    assert (marker.marker.committed, marker.marker.coordinator_epoch, marker.records) == (True, 1, ())


def test_pending_offsets_survive_a_crash_of_the_owner(driver):
    driver.txn_commit(42, ONE)
    driver.txn_commit(43, TWO, partition=1)

    driver.crash()

    assert driver.unstable() == [0, 1]
    driver.end_transaction(ONE, committed=True)
    driver.end_transaction(TWO, committed=False)
    driver.crash()
    assert (driver.offset(), driver.offset(partition=1), driver.unstable()) == (42, -1, [])


@pytest.mark.parametrize("committed", [True, False])
def test_a_later_plain_commit_wins_over_a_transactional_offset_for_each_outcome(driver, committed):
    driver.txn_commit(42, ONE)

    driver.commit(50)

    assert (driver.offset(), driver.unstable()) == (50, [0])
    driver.crash()
    assert (driver.offset(), driver.unstable()) == (50, [0])
    driver.end_transaction(ONE, committed=committed)
    assert (driver.offset(), driver.unstable()) == (50, [])


def test_a_transactional_offset_wins_over_an_earlier_plain_commit(driver):
    driver.txn_commit(42, ONE)
    driver.commit(50)
    driver.txn_commit(43, ONE)

    driver.end_transaction(ONE, committed=True)

    assert (driver.offset(), driver.unstable()) == (43, [])


def test_the_later_offset_of_two_transactions_wins_in_any_order_of_their_ends(driver):
    driver.txn_commit(1, ONE)
    driver.txn_commit(2, TWO)

    driver.end_transaction(TWO, committed=True)
    assert (driver.offset(), driver.unstable()) == (2, [0])
    driver.end_transaction(ONE, committed=True)

    assert (driver.offset(), driver.unstable()) == (2, [])


def test_the_offset_of_an_earlier_transaction_is_visible_until_the_later_one_commits(driver):
    driver.txn_commit(1, ONE)
    driver.txn_commit(2, TWO)

    driver.end_transaction(ONE, committed=True)

    assert (driver.offset(), driver.unstable()) == (1, [0])
    driver.end_transaction(TWO, committed=False)
    assert driver.offset() == 1


def test_the_last_of_several_offset_commits_in_one_transaction_wins(driver):
    driver.txn_commit(1, ONE)
    driver.txn_commit(2, ONE)

    driver.end_transaction(ONE, committed=True)

    assert driver.offset() == 2


class TestWhoMay:
    def test_a_member_of_the_current_generation_may_commit_in_a_transaction(self, driver):
        (member,) = driver.stable(1)

        reply_id = driver.txn_commit(42, ONE, generation_id=1, member_id=member)

        assert errors(driver, reply_id) == (ErrorCode.NONE,)

    @pytest.mark.parametrize(
        ("kwargs", "error"),
        [
            ({"member_id": "stranger", "generation_id": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "MEMBER", "generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "MEMBER", "generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation_id": 1, "group_id": "elsewhere"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ],
    )
    def test_an_unknown_member_or_another_generation_may_not_commit_in_a_transaction(self, driver, kwargs, error):
        (member,) = driver.stable(1)
        wanted = {key: member if value == "MEMBER" else value for key, value in kwargs.items()}

        assert errors(driver, driver.txn_commit(42, ONE, **wanted)) == (error,)
        assert driver.unstable() == []

    def test_a_fenced_static_member_may_not_commit_in_a_transaction(self, driver):
        (member,) = driver.stable(0, instances=("i",))

        reply_id = driver.txn_commit(1, ONE, generation_id=1, member_id=member + "x", instance_id="i")

        assert errors(driver, reply_id) == (ErrorCode.FENCED_INSTANCE_ID,)

    def test_a_producer_that_names_no_member_may_commit_in_a_transaction(self, driver):
        driver.stable(1)

        assert errors(driver, driver.txn_commit(42, ONE)) == (ErrorCode.NONE,)

    def test_a_commit_of_an_unverified_transaction_is_refused(self, driver):
        assert errors(driver, driver.commit(42, producer=ONE)) == (ErrorCode.TRANSACTION_ABORTABLE,)
        assert driver.unstable() == []

    def test_a_transaction_is_verified_only_once(self, driver):
        driver.txn_commit(42, ONE)

        assert driver.rules.offsets.transactions.is_open(ONE)
        assert errors(driver, driver.commit(43, producer=ONE)) == (ErrorCode.NONE,)
        assert not driver.rules.offsets.transactions.is_open(TxnProducer(ONE.producer_id, ONE.epoch + 1))

    def test_a_commit_is_refused_if_the_marker_arrived_during_the_verification(self, driver):
        verification = driver.rules.offsets.transactions.begin_verification(ONE)
        driver.auto_ack = False
        driver.end_transaction(ONE, committed=False)

        reply_id = driver.commit(42, producer=ONE, verification=verification)

        assert errors(driver, reply_id) == (ErrorCode.TRANSACTION_ABORTABLE,)
        assert len(driver.unsent) == 1

    def test_a_commit_is_accepted_if_the_marker_of_the_last_transaction_arrives_meanwhile(self, driver):
        following = TxnProducer(ONE.producer_id, ONE.epoch + 1)
        driver.txn_commit(42, ONE)
        verification = driver.rules.offsets.transactions.begin_verification(following)
        driver.end_transaction(ONE, committed=True)

        reply_id = driver.commit(43, producer=following, verification=verification)

        assert errors(driver, reply_id) == (ErrorCode.NONE,)
        assert (driver.offset(), driver.unstable()) == (42, [0])

    def test_a_marker_of_the_same_epoch_ends_the_transaction_of_an_older_client(self, driver):
        verification = driver.rules.offsets.transactions.begin_verification(ONE)
        marker = TxnMarker(committed=False, coordinator_epoch=1, transaction_version=1)
        driver.ask(EndTransaction(reply_id=0, producer=ONE, marker=marker))

        reply_id = driver.commit(42, producer=ONE, verification=verification)

        assert errors(driver, reply_id) == (ErrorCode.TRANSACTION_ABORTABLE,)

    def test_a_commit_after_the_marker_is_refused(self, driver):
        driver.txn_commit(42, ONE)
        driver.end_transaction(ONE, committed=True)

        assert errors(driver, driver.commit(43, producer=ONE)) == (ErrorCode.TRANSACTION_ABORTABLE,)

    def test_a_transaction_is_verified_again_after_the_owner_changed(self, driver):
        driver.txn_commit(42, ONE)
        driver.crash()

        assert not driver.rules.offsets.transactions.is_open(ONE)
        assert errors(driver, driver.txn_commit(43, ONE)) == (ErrorCode.NONE,)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTION_COORDINATOR_FENCED],
)
def test_a_fencing_error_of_the_log_is_returned_to_the_producer_and_for_the_marker(driver, code):
    driver.auto_ack = False
    commit = driver.txn_commit(42, ONE)
    driver.nack(code)
    marker = driver.end_transaction(ONE, committed=True)
    driver.nack(code)

    assert errors(driver, commit) == (code,)
    assert driver.replies[marker].error is code


class TestGroups:
    def test_a_group_exists_while_it_has_pending_offsets(self, driver):
        driver.txn_commit(42, ONE)
        assert driver.state() == "Empty"

        driver.end_transaction(ONE, committed=False)

        assert "orders" not in driver.rules.classic.groups

    def test_pending_offsets_do_not_expire(self, driver):
        driver.commit(7)
        driver.txn_commit(42, ONE)

        driver.advance(8 * DAY_MS)

        assert driver.offset() == 7
        driver.end_transaction(ONE, committed=False)
        driver.advance(DAY_MS)
        assert driver.offset() == -1

    def test_deleting_a_group_deletes_its_pending_offsets(self, driver):
        driver.txn_commit(42, ONE)

        assert errors(driver, driver.delete_groups("orders")) == (ErrorCode.NONE,)
        driver.end_transaction(ONE, committed=True)

        assert driver.offset() == -1
        assert driver.replayed() == driver.rules.state

    def test_deleting_an_offset_deletes_its_pending_offset(self, driver):
        driver.txn_commit(42, ONE)

        assert errors(driver, driver.delete_offsets(("t", 0))) == (ErrorCode.NONE,)
        driver.end_transaction(ONE, committed=True)

        assert driver.offset() == -1

    def test_a_commit_does_not_restore_pending_offsets_of_a_deleted_topic(self, driver):
        driver.txn_commit(42, ONE)

        driver.step(TopicsDeleted(topics=frozenset({"t"})))
        driver.end_transaction(ONE, committed=True)

        assert driver.offset() == -1


# The store must equal the view of a reader that takes the newest decided record of each key from the log.

PRODUCERS = (1, 2, 3)
STEPS = st.one_of(
    st.tuples(st.just("commit"), st.just(-1), st.integers(0, 1)),
    st.tuples(st.just("txn"), st.sampled_from(PRODUCERS), st.integers(0, 1)),
    st.tuples(st.just("delete"), st.just(-1), st.integers(0, 1)),
    st.tuples(st.sampled_from(["end commit", "end abort"]), st.sampled_from(PRODUCERS), st.just(0)),
)


@dataclasses.dataclass
class _Entry:
    partition: int
    offset: int | None
    producer_id: int
    fate: bool | None
    """Committed, aborted, not decided."""


def _newest(log: list[_Entry], partition: int) -> int | None:
    decided = [entry for entry in log if entry.partition == partition and entry.fate]
    return decided[-1].offset if decided else None


@settings(deadline=None, max_examples=200)
@given(st.lists(STEPS, max_size=25))
def test_the_newest_decided_offset_record_wins(steps):
    store, log = ShardOffsets(Accounts(unbounded())), []
    for number, (kind, producer_id, partition) in enumerate(steps):
        tp = TopicPartition("t", partition)
        if kind.startswith("end"):
            committed = kind == "end commit"
            store.end_transaction(producer_id, committed=committed)
            for entry in log:
                if entry.fate is None and entry.producer_id == producer_id:
                    entry.fate = committed
        elif kind == "txn":
            store.pending.add(producer_id, "g", tp, OffsetCommitValue(number, -1, "", 0))
            log.append(_Entry(partition, number, producer_id, None))
        else:
            offset = number if kind == "commit" else None
            store.replay("g", tp, None if offset is None else OffsetCommitValue(number, -1, "", 0))
            log.append(_Entry(partition, offset, -1, True))
            if kind == "delete":
                # A tombstone removes the pending offsets of the partition too, because it makes them useless.
                log = [entry for entry in log if entry.partition != partition or entry.fate is not None]
        for wanted in (0, 1):
            value = store.of_group("g").get(TopicPartition("t", wanted))
            assert (None if value is None else value.offset) == _newest(log, wanted)
            assert store.is_unstable("g", TopicPartition("t", wanted)) == _is_open(log, wanted)
    for producer_id in PRODUCERS:
        store.end_transaction(producer_id, committed=False)
    assert store.pending == ShardOffsets(Accounts(unbounded())).pending


def _is_open(log: list[_Entry], partition: int) -> bool:
    """Returns True if an undecided transaction has an offset in the partition."""
    return any(entry.fate is None for entry in log if entry.partition == partition)
