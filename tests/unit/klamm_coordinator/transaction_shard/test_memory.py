"""Tests the bound of the memory of transactional ids (transactional.id.metadata.max.bytes).

`TransactionDriver` checks after every step that the accounts have what a walk over all ids finds. The simulations do so
too.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm.errors import ErrorCode
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch
from klamm_server.runtime.byte_shares import ByteShares
from tests.support.transaction_driver import ID, TransactionDriver

MAX_BYTES = 100_000


@pytest.fixture
def small() -> TransactionDriver:
    """A driver whose transactional ids may take `MAX_BYTES`."""
    return TransactionDriver(shares=ByteShares(MAX_BYTES, "transactional.id.metadata.max.bytes"))


def init(driver: TransactionDriver, transactional_id: str = ID) -> Any:
    return driver.replies[driver.ask_init(transactional_id=transactional_id)]


def fill(driver: TransactionDriver) -> int:
    """Begins transactional ids until one is refused. Returns their number."""
    count = 0
    while (code := init(driver, f"{count:01000}").error) is ErrorCode.NONE:
        count += 1
    assert code is ErrorCode.POLICY_VIOLATION
    return count


def test_a_user_that_holds_two_thirds_is_refused_and_another_user_begins(small):
    fill(small)
    assert MAX_BYTES / 2 < small.shares.held_bytes <= MAX_BYTES * 2 / 3
    assert any("transactional.id.metadata.max.bytes" in note and "user=User:alice" in note for note in small.notes)
    small.user = "User:bob"
    producer = init(small).producer
    assert small.replies[small.ask_add(producer, 1)].error is ErrorCode.NONE
    assert small.replies[small.ask_end(producer, committed=True)].error is ErrorCode.NONE


def test_an_id_of_a_refused_user_works_as_before(small):
    producer = init(small).producer
    fill(small)
    assert init(small).error is ErrorCode.NONE
    producer = small.value().producer
    assert small.replies[small.ask_add(producer, 1)].error is ErrorCode.NONE
    assert small.replies[small.ask_end(producer, committed=True)].error is ErrorCode.NONE


def test_partitions_without_room_are_refused_and_an_abort_makes_room(small):
    producer = init(small).producer
    held_bytes = small.shares.held_bytes
    assert small.replies[small.ask_add(producer, *range(1_000))].error is ErrorCode.TRANSACTION_ABORTABLE
    assert small.shares.held_bytes == held_bytes
    assert small.replies[small.ask_add(producer, *range(100))].error is ErrorCode.NONE
    assert small.shares.held_bytes > held_bytes + 10_000
    small.ask_end(producer, committed=False)
    assert small.shares.held_bytes == held_bytes


def test_requests_that_wait_take_memory_until_they_are_answered(small):
    producer = init(small).producer
    small.auto_ack = False
    asked = [small.ask_add(producer, *range(number, number + 20)) for number in range(40)]
    refused = [one for one in asked if one in small.replies]
    assert {small.replies[one].error for one in refused} == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert 0 < len(refused) < 40
    small.auto_ack = True
    small.settle()
    assert len(small.replies) == 41
    small.ask_end(producer, committed=False)
    assert small.shares.held_bytes < 2_000


def test_a_loaded_id_counts_for_the_user_that_uses_it_again(small):
    init(small)
    assert small.shares.of("User:alice") == small.shares.held_bytes
    small.crash()
    assert (small.shares.of("User:alice"), small.shares.held_bytes > 0) == (0, True)
    assert small.replies[small.ask_add(small.value().producer, 1)].error is ErrorCode.NONE
    small.user = "User:bob"
    init(small)
    assert small.shares.of("User:bob") == small.shares.held_bytes > 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["init", "add", "commit", "abort", "register", "time", "fail", "crash", "slow"]),
        st.integers(0, 3),
        st.integers(0, 120),
    ),
    max_size=30,
)


def step(driver: TransactionDriver, name: str, number: int, size: int) -> None:
    driver.user = f"user-{number}"
    transactional_id = f"id-{number}"
    value = driver.rules.ids.values.get(transactional_id)
    producer = ProducerIdAndEpoch(9, 9) if value is None else value.producer
    match name:
        case "init":
            driver.ask_init(transactional_id=transactional_id)
        case "add":
            driver.ask_add(producer, *range(size), transactional_id=transactional_id)
        case "commit" | "abort":
            driver.ask_end(producer, committed=name == "commit", transactional_id=transactional_id)
        case "register":
            driver.ask_register(f"run-{size}", size)
        case "time":
            driver.advance(size * 50_000)
        case "slow":
            driver.auto_ack = not driver.auto_ack
            driver.settle()
        case "fail":
            while driver.unsent:
                driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
        case "crash":
            driver.crash()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_the_accounts_have_what_a_walk_over_all_ids_finds(steps):
    shares = ByteShares(MAX_BYTES, "transactional.id.metadata.max.bytes")
    driver = TransactionDriver(shares=shares, id_expiration_ms=600_000, expiration_check_interval_ms=60_000)
    for one in steps:
        step(driver, *one)
        assert driver.shares.held_bytes <= MAX_BYTES
    driver.rules.close()
    driver.shares.check_invariants()
    assert driver.shares.held_bytes == 0
