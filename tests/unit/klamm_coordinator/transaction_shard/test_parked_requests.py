"""Tests requests that wait for an operation in progress."""

from __future__ import annotations

from klamm.errors import ErrorCode
from tests.support.transaction_driver import TransactionDriver, partitions, producer


def test_the_next_transaction_begins_when_the_last_one_is_complete(driver):
    driver.init()
    driver.add(producer(0), 1)
    driver.auto_markers = False
    driver.end(producer(0), committed=True)
    added = [driver.ask_add(producer(1), number) for number in (1, 2, 3)]
    assert not driver.replies.keys() & set(added)
    count = len(driver.log)

    driver.write_markers()
    driver.settle()

    assert [driver.replies[one].error for one in added] == [ErrorCode.NONE] * 3
    assert driver.value().partitions == partitions(1, 2, 3)
    assert len(driver.log) == count + 2, "complete, and all of them together"


def test_partitions_requested_after_an_end_are_not_added_before_it(driver):
    driver.init()
    driver.auto_ack = False
    first = driver.ask_add(producer(0), 1)
    ended = driver.ask_end(producer(0), committed=True)
    late = driver.ask_add(producer(0), 2)
    driver.auto_ack = True
    driver.settle()
    assert driver.replies[first].error == driver.replies[ended].error == ErrorCode.NONE
    assert driver.replies[late].error == ErrorCode.PRODUCER_FENCED


def test_a_request_that_waits_too_long_gets_concurrent_transactions(driver):
    driver.init()
    driver.add(producer(0), 1)
    driver.auto_markers = False
    driver.end(producer(0), committed=True)
    asked = driver.ask_init()
    driver.advance(driver.settings.wait_max_ms)
    assert driver.replies[asked].error == ErrorCode.CONCURRENT_TRANSACTIONS
    driver.auto_markers = True
    driver.settle()
    assert driver.value().producer == producer(1)


def test_the_number_of_waiting_requests_is_bounded():
    driver = TransactionDriver(waiting_requests_max=1)
    driver.init()
    driver.add(producer(0), 1)
    driver.auto_markers = False
    driver.end(producer(0), committed=True)
    driver.ask_add(producer(1), 1)
    assert driver.add(producer(1), 2) == ErrorCode.CONCURRENT_TRANSACTIONS
