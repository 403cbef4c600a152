"""Tests the coordinator's own actions: it notifies partitions, completes, aborts and forgets."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm_coordinator.transaction.messages import EndReply
from klamm_coordinator.transaction.states import TxnState
from tests.support.transaction_driver import FIRST_ID, ID, TIMEOUT_MS, TransactionDriver, partitions, producer


class TestEnds:
    def test_a_completion_that_cannot_be_stored_is_retried(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        driver.auto_markers = False
        driver.end(producer(0), committed=True)
        driver.auto_ack = False
        driver.write_markers()
        driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
        driver.auto_ack = True
        driver.advance(driver.settings.completion_retry_ms)
        assert driver.value().state is TxnState.COMPLETE_COMMIT

    @pytest.mark.parametrize("committed", [True, False])
    def test_the_next_owner_sends_the_markers_of_a_decided_transaction(self, driver, committed):
        driver.init()
        driver.add(producer(0), 1, 2)
        driver.auto_markers = False
        driver.end(producer(0), committed=committed)

        driver.crash()

        (order,) = driver.markers
        assert (order.marker, order.committed, order.partitions) == (producer(1), committed, partitions(1, 2))


class TestTimeOut:
    def open_and_time_out(self, driver: TransactionDriver) -> None:
        driver.init()
        driver.add(producer(0), 1)
        driver.advance(TIMEOUT_MS + driver.settings.abort_check_interval_ms)

    def test_an_open_transaction_is_aborted_after_its_timeout(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        driver.advance(TIMEOUT_MS - 1)
        assert driver.value().state is TxnState.ONGOING
        driver.advance(driver.settings.abort_check_interval_ms)
        assert driver.value().state is TxnState.COMPLETE_ABORT
        assert driver.value().producer == producer(1)

    def test_the_producer_of_a_timed_out_transaction_continues_after_an_abort(self, driver):
        self.open_and_time_out(driver)
        assert driver.add(producer(0), 2) == ErrorCode.TRANSACTION_ABORTABLE
        assert driver.end(producer(0), committed=True).error == ErrorCode.TRANSACTION_ABORTABLE
        assert driver.end(producer(0), committed=False) == EndReply(producer=producer(1))
        assert driver.add(producer(1), 1) == ErrorCode.NONE

    def test_the_producer_of_a_timed_out_transaction_continues_after_a_new_init(self, driver):
        self.open_and_time_out(driver)
        assert driver.init(producer(0)).producer == producer(1)

    def test_the_producer_of_a_timed_out_transaction_is_fenced_by_a_new_producer(self, driver):
        self.open_and_time_out(driver)
        driver.init()
        assert driver.add(producer(0), 2) == ErrorCode.PRODUCER_FENCED
        assert driver.end(producer(0), committed=False).error == ErrorCode.PRODUCER_FENCED
        assert driver.init(producer(0)).error == ErrorCode.PRODUCER_FENCED

    def test_an_old_client_is_fenced_after_its_transaction_timed_out(self, driver):
        self.open_and_time_out(driver)
        assert driver.end(producer(0), committed=False, bump_epoch=False).error == ErrorCode.PRODUCER_FENCED

    def test_a_transaction_that_is_being_ended_is_not_aborted_by_its_timeout(self, driver):
        driver.init()
        driver.add(producer(0), 1)
        driver.auto_ack = False
        ended = driver.ask_end(producer(0), committed=True)
        driver.advance(TIMEOUT_MS + driver.settings.abort_check_interval_ms)
        driver.auto_ack = True
        driver.settle()
        assert ended in driver.replies
        assert driver.value().state is TxnState.COMPLETE_COMMIT


class TestExpiry:
    def test_an_unused_transactional_id_expires(self):
        driver = TransactionDriver(id_expiration_ms=1_000, expiration_check_interval_ms=100)
        driver.init()
        driver.advance(900)
        assert ID in driver.rules.ids.values
        driver.advance(200)
        assert ID not in driver.rules.ids.values
        driver.crash()
        assert driver.init().producer == producer(0, FIRST_ID + 1)

    def test_a_transactional_id_with_an_open_transaction_does_not_expire(self):
        driver = TransactionDriver(id_expiration_ms=1_000, expiration_check_interval_ms=100)
        driver.init()
        driver.add(producer(0), 1)
        driver.advance(5_000)
        assert driver.value().state is TxnState.ONGOING

    def test_a_producer_that_inits_during_the_expiry_gets_a_new_producer_id(self):
        driver = TransactionDriver(id_expiration_ms=1_000, expiration_check_interval_ms=100)
        driver.init()
        driver.auto_ack = False
        driver.advance(1_000)
        asked = driver.ask_init()
        driver.auto_ack = True
        driver.settle()
        assert driver.replies[asked].producer == producer(0, FIRST_ID + 1)
