from __future__ import annotations

import pytest

from klamm_server.security.sasl.failed_logins import (
    DELAY_MAX_MS,
    FORGOTTEN_AFTER_MS,
    KEPT_MAX,
    WAITING_MAX,
    FailedLogins,
)


def test_each_failure_doubles_the_delay_up_to_a_bound() -> None:
    failed = FailedLogins()
    delays = [failed.failed("alice", "10.0.0.1", 100, now_ms) for now_ms in range(9)]
    assert delays == [100, 200, 400, 800, 1600, 3200, 6400, DELAY_MAX_MS, DELAY_MAX_MS]


def test_the_delay_after_many_failures_is_bounded() -> None:
    failed = FailedLogins()
    delays = [failed.failed("alice", "10.0.0.1", 1, 0) for _ in range(200)]
    assert delays[-1] == DELAY_MAX_MS
    assert [failed.failed("bob", "10.0.0.1", 0, 0) for _ in range(200)][-1] == 0


@pytest.mark.parametrize(("user", "address"), [("bob", "10.0.0.1"), ("alice", "10.0.0.2"), ("", "10.0.0.1")])
def test_failures_of_one_user_and_address_do_not_delay_others(user: str, address: str) -> None:
    failed = FailedLogins()
    for _ in range(5):
        failed.failed("alice", "10.0.0.1", 100, 0)
    assert failed.failed(user, address, 100, 0) == 100


def test_failed_logins_are_forgotten_after_a_time_or_a_successful_login() -> None:
    failed = FailedLogins()
    failed.failed("alice", "a", 100, 0)
    assert failed.failed("alice", "a", 100, FORGOTTEN_AFTER_MS - 1) == 200
    assert failed.failed("alice", "a", 100, 2 * FORGOTTEN_AFTER_MS) == 100
    failed.succeeded("alice", "a")
    failed.succeeded("nobody", "a")
    assert failed.failed("alice", "a", 100, 2 * FORGOTTEN_AFTER_MS) == 100


def test_the_number_of_remembered_failed_logins_is_bounded() -> None:
    failed = FailedLogins()
    failed.failed("first", "a", 100, 0)
    failed.failed("second", "a", 100, 0)
    failed.failed("first", "a", 100, 0)
    for number in range(KEPT_MAX - 1):
        failed.failed(f"{number}" * 100, "a", 100, 0)
    assert len(failed) == KEPT_MAX
    assert failed.failed("first", "a", 100, 0) == 400
    assert failed.failed("second", "a", 100, 0) == 100


def test_the_number_of_delayed_answers_to_one_address_is_bounded() -> None:
    failed = FailedLogins()
    assert [failed.begin_wait("a") for _ in range(WAITING_MAX)] == [True] * WAITING_MAX
    assert not failed.begin_wait("a")
    assert failed.begin_wait("b")
    failed.end_wait("a")
    assert failed.begin_wait("a")
