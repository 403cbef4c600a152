"""Tests one shard of transactions: which producers may write, the decisions, and the state after a crash."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm_coordinator.transaction.messages import AddReply, EndReply, InitReply
from klamm_coordinator.transaction.metadata import (
    EPOCH_LAST,
    EPOCH_MAX,
    TransactionMetadata,
)
from klamm_coordinator.transaction.records import TransactionRecord
from klamm_coordinator.transaction.states import TxnState
from klamm_coordinator.transaction_shard.records import encode_shard_record
from tests.support.transaction_driver import ID, TIMEOUT_MS, TransactionDriver, partitions, producer


def driver_with(value: TransactionMetadata, **settings: int) -> TransactionDriver:
    """Returns a driver that has loaded a log with this transaction."""
    driver = TransactionDriver(**settings)
    record = TransactionRecord(ID, value)
    driver.log.append(encode_shard_record(record))
    driver.rules.replay(record)
    driver.crash()
    return driver


def last_epoch(state: TxnState = TxnState.EMPTY, **fields) -> TransactionMetadata:
    """Returns a transaction whose producer id has one epoch left."""
    defaults = {
        "producer_id": 7,
        "producer_epoch": EPOCH_LAST,
        "timeout_ms": TIMEOUT_MS,
        "state": state,
        "last_update_ms": 0,
    }
    return TransactionMetadata(**(defaults | fields))


class TestWithoutTrouble:
    def test_a_first_producer_gets_a_fresh_id_with_epoch_0(self, driver):
        assert driver.init() == InitReply(producer=producer(0))
        assert driver.value().state is TxnState.EMPTY

    def test_a_commit_writes_markers_with_the_next_epoch_that_the_next_transaction_uses(self, driver):
        driver.init()
        driver.auto_markers = False
        assert driver.add(producer(0), 1) == driver.add(producer(0), 2) == ErrorCode.NONE
        assert driver.value().state is TxnState.ONGOING

        assert driver.end(producer(0), committed=True) == EndReply(producer=producer(1))

        assert driver.value().state is TxnState.PREPARE_COMMIT
        order = driver.write_markers()
        driver.settle()
        assert (order.marker, order.committed, order.partitions) == (producer(1), True, partitions(1, 2))
        assert driver.value().state is TxnState.COMPLETE_COMMIT
        assert driver.value().partitions == frozenset()
        assert driver.add(producer(1), 1) == ErrorCode.NONE

    def test_requests_are_answered_only_when_their_records_are_stored(self, driver):
        driver.init()
        driver.auto_ack = False
        added = driver.ask_add(producer(0), 1)
        assert added not in driver.replies
        driver.ack()
        assert driver.replies[added] == AddReply()
        ended = driver.ask_end(producer(0), committed=True)
        assert ended not in driver.replies
        assert driver.markers == []
        driver.ack()
        assert driver.replies[ended] == EndReply(producer=producer(1))

    def test_adding_a_partition_again_makes_no_record(self, driver):
        driver.init()
        driver.add(producer(0), 1, 2)
        count = len(driver.log)
        assert driver.add(producer(0), 2) == ErrorCode.NONE
        assert len(driver.log) == count

    def test_an_end_without_an_epoch_bump_keeps_the_epoch(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        driver.auto_markers = False
        assert driver.end(producer(0), committed=False, bump_epoch=False).producer == producer(0)
        assert driver.end(producer(0), committed=False, bump_epoch=False).error == ErrorCode.NONE
        assert driver.end(producer(0), committed=True, bump_epoch=False).error == ErrorCode.INVALID_TXN_STATE
        assert driver.write_markers().marker == producer(0)
        driver.settle()
        assert driver.end(producer(0), committed=False, bump_epoch=False).error == ErrorCode.NONE
        assert driver.end(producer(0), committed=True, bump_epoch=False).error == ErrorCode.INVALID_TXN_STATE
        assert driver.add(producer(0), 1) == ErrorCode.NONE

    def test_verifying_partitions_adds_none(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        assert driver.verify(producer(0), 1, 2).partitions == (ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
        assert driver.verify(producer(3), 1).error == ErrorCode.PRODUCER_FENCED
        assert driver.value().partitions == partitions(1)

    def test_requests_of_an_uninitialised_transactional_id_are_refused(self, driver):
        assert driver.add(producer(0), 1) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert driver.end(producer(0), committed=True).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert driver.verify(producer(0), 1).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING


class TestRepeatedEnds:
    """Checks the table of Kafka's TransactionCoordinator.endTransaction for KIP-890."""

    @pytest.mark.parametrize("committed", [True, False])
    def test_a_repeated_end_with_the_same_outcome_gets_the_same_answer(self, driver, committed):
        driver.init()
        driver.add(producer(0), 1)
        driver.auto_markers = False
        first = driver.end(producer(0), committed=committed)
        assert driver.end(producer(0), committed=committed) == first
        driver.auto_markers = True
        driver.settle()
        assert driver.end(producer(0), committed=committed) == first

    def test_a_repeated_end_with_the_other_outcome_is_refused(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        driver.end(producer(0), committed=True)
        assert driver.end(producer(0), committed=False).error == ErrorCode.INVALID_TXN_STATE

    def test_a_late_end_does_not_end_the_next_transaction(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        driver.end(producer(0), committed=True)
        driver.add(producer(1), 1)
        assert driver.end(producer(0), committed=True).error == ErrorCode.PRODUCER_FENCED
        assert driver.end(producer(0), committed=False).error == ErrorCode.PRODUCER_FENCED
        assert driver.value().state is TxnState.ONGOING

    def test_an_abort_of_an_empty_transaction_bumps_the_epoch(self, driver):
        driver.init()
        assert driver.end(producer(0), committed=False).producer == producer(1)
        assert driver.end(producer(1), committed=False).producer == producer(2)
        assert driver.add(producer(1), 1) == ErrorCode.TRANSACTION_ABORTABLE

    def test_a_commit_of_an_empty_transaction_is_refused(self, driver):
        driver.init()
        assert driver.end(producer(0), committed=True).error == ErrorCode.INVALID_TXN_STATE


class TestFencing:
    def test_a_new_producer_fences_the_last_one(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        driver.end(producer(0), committed=True)

        assert driver.init().producer == producer(2)

        for epoch in (0, 1):
            assert driver.add(producer(epoch), 1) == ErrorCode.PRODUCER_FENCED
            assert driver.end(producer(epoch), committed=False).error == ErrorCode.PRODUCER_FENCED
            assert driver.init(producer(epoch)).error == ErrorCode.PRODUCER_FENCED

    def test_the_open_transaction_of_the_last_producer_is_aborted_before_the_init_is_answered(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        driver.auto_markers = False

        asked = driver.ask_init()

        assert asked not in driver.replies
        order = driver.write_markers()
        driver.settle()
        assert (order.marker, order.committed) == (producer(1), False)
        assert driver.replies[asked] == InitReply(producer=producer(2))

    def test_the_last_producer_is_fenced_while_its_transaction_is_aborted(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        driver.auto_markers = False
        driver.ask_init()
        assert driver.add(producer(0), 1) == ErrorCode.PRODUCER_FENCED
        assert driver.end(producer(0), committed=False).error == ErrorCode.PRODUCER_FENCED
        assert driver.init(producer(0)).error == ErrorCode.PRODUCER_FENCED

    def test_a_repeated_init_of_a_recovering_producer_gets_the_same_epoch(self, driver):
        driver.init()
        assert driver.init(producer(0)).producer == producer(1)
        assert driver.init(producer(0)).producer == producer(1), "a repeated request"
        assert driver.init(producer(1)).producer == producer(2)
        assert driver.init(producer(0)).error == ErrorCode.PRODUCER_FENCED

    def test_a_repeated_init_gets_the_same_epoch_after_the_coordinator_moved(self, driver):
        driver.init()
        driver.init(producer(0))
        driver.crash()
        assert driver.init(producer(0)).producer == producer(1)

    def test_a_late_init_of_a_former_epoch_does_not_abort_a_newer_transaction(self, driver):
        driver.init()
        driver.init(producer(0))
        driver.add(producer(1), 1)
        assert driver.init(producer(0)).error == ErrorCode.PRODUCER_FENCED
        assert driver.value().state is TxnState.ONGOING

    def test_an_init_of_a_recovering_producer_aborts_its_open_transaction(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        assert driver.init(producer(0)).producer == producer(1)
        assert driver.value().state is TxnState.COMPLETE_ABORT

    def test_a_foreign_producer_id_is_refused(self, driver):
        driver.init()
        assert driver.init(producer(0, 5)).error == ErrorCode.PRODUCER_FENCED
        assert driver.add(producer(0, 5), 1) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


class TestEpochsAreUsedUp:
    def test_after_the_last_epoch_the_next_transaction_has_a_new_producer_id(self):
        driver = driver_with(last_epoch())
        driver.auto_markers = False
        driver.add(producer(EPOCH_LAST, 7), 1)
        ended = driver.end(producer(EPOCH_LAST, 7), committed=True)
        assert ended == EndReply(producer=producer(0))
        assert driver.end(producer(EPOCH_LAST, 7), committed=True) == ended
        assert driver.write_markers().marker == (7, EPOCH_MAX)
        driver.settle()
        assert driver.value().producer == producer(0)
        assert driver.end(producer(EPOCH_LAST, 7), committed=True) == ended
        assert driver.add(producer(0), 1) == ErrorCode.NONE

    def test_after_the_last_epoch_a_new_producer_gets_a_new_producer_id(self):
        driver = driver_with(last_epoch())
        assert driver.init().producer == producer(0)
        assert driver.add(producer(EPOCH_LAST, 7), 1) == ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def test_after_the_last_epoch_a_recovering_producer_gets_a_new_producer_id(self):
        driver = driver_with(last_epoch())
        assert driver.init(producer(EPOCH_LAST, 7)).producer == producer(0)
        assert driver.init(producer(EPOCH_LAST, 7)).producer == producer(0)
        assert driver.init(producer(EPOCH_LAST, 7)).producer == producer(0)

    def test_after_the_last_epoch_a_timed_out_producer_gets_a_new_producer_id(self):
        driver = driver_with(
            last_epoch(TxnState.ONGOING, partitions=partitions(1), start_ms=1), abort_check_interval_ms=10
        )
        driver.advance(10)
        assert driver.value().producer == producer(0)
        assert driver.add(producer(EPOCH_LAST, 7), 1) == ErrorCode.TRANSACTION_ABORTABLE
        assert driver.end(producer(EPOCH_LAST, 7), committed=False).producer == producer(0)

    def test_without_free_producer_ids_requests_get_coordinator_not_available(self):
        driver = driver_with(last_epoch(TxnState.ONGOING, partitions=partitions(1), start_ms=1), producer_ids=0)
        assert driver.end(producer(EPOCH_LAST, 7), committed=True).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.init().error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        driver.advance(driver.settings.abort_check_interval_ms)
        assert driver.value().state is TxnState.ONGOING
        driver.producer_ids.add(range(9, 10))
        assert driver.end(producer(EPOCH_LAST, 7), committed=True).producer == (9, 0)


class TestTheLog:
    def test_a_refused_append_changes_nothing(self, driver):
        driver.init()
        driver.auto_ack = False
        asked = driver.ask_add(producer(0), 1)
        driver.nack(ErrorCode.MESSAGE_TOO_LARGE)
        assert driver.replies[asked].error == ErrorCode.UNKNOWN_SERVER_ERROR
        assert driver.value().state is TxnState.EMPTY

    def test_an_abort_that_cannot_be_stored_fails_the_init_that_waits_for_it(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        driver.auto_ack = False
        asked = driver.ask_init()
        driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert driver.replies[asked].error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.value().state is TxnState.ONGOING

    def test_an_append_after_its_timeout_is_still_applied(self, driver):
        driver.init()
        driver.auto_ack = False
        asked = driver.ask_add(producer(0), 1)
        driver.advance(driver.settings.append_timeout_ms)
        assert driver.replies[asked].error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        driver.ack()
        assert driver.value().state is TxnState.ONGOING

    def test_a_transaction_whose_end_was_not_stored_stays_open_after_a_crash(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        driver.auto_ack = False
        driver.ask_end(producer(0), committed=True)
        driver.crash()
        assert driver.value().state is TxnState.ONGOING
        driver.auto_ack = True
        assert driver.end(producer(0), committed=False).producer == producer(1)


def test_the_number_of_transactional_ids_is_bounded():
    driver = TransactionDriver(id_count_max=1)
    driver.init()
    assert driver.init(transactional_id="other").error == ErrorCode.POLICY_VIOLATION
    assert driver.init().error == ErrorCode.NONE
