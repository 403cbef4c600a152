"""Tests that one user may take most of a budget, that some always stays free, and for which user a group counts."""

from __future__ import annotations

import pytest

from klamm_coordinator.runtime.accounts import Accounts
from klamm_server.runtime.byte_shares import NOTE_INTERVAL_MS, ByteShares
from klamm_server.runtime.fair_share import BEGIN, CONTINUE

MAX_BYTES = 1_000_000


def fill(shares: ByteShares, user: str, times_free: int, step_bytes: int = 100) -> int:
    """Takes bytes in small steps until the user is refused. Returns the bytes that the user then has."""
    while shares.admits(user, step_bytes, times_free):
        shares.add(shares.share_of(user), step_bytes)
    shares.check_invariants()
    return shares.of(user)


@pytest.fixture
def shares() -> ByteShares:
    return ByteShares(MAX_BYTES, "some.max.bytes")


def test_a_user_alone_may_begin_with_two_thirds_and_add_up_to_three_quarters(shares):
    assert fill(shares, "alice", BEGIN) == pytest.approx(MAX_BYTES * 7 / 8 * 3 / 4, rel=0.01)
    assert fill(shares, "alice", CONTINUE) == pytest.approx(MAX_BYTES * 7 / 8 * 7 / 8, rel=0.01)


@pytest.mark.parametrize("user_count", [1, 2, 5])
def test_users_who_take_all_they_may_leave_room_for_modest_users(shares, user_count):
    for times_free in (BEGIN, CONTINUE):
        for number in range(user_count):
            fill(shares, f"user-{number}", times_free)
    for number in range(6):
        assert fill(shares, f"modest-{number}", BEGIN) > 0.95 * MAX_BYTES / 64
    assert shares.held_bytes <= MAX_BYTES


def test_a_request_that_adds_nothing_is_admitted_even_above_the_bound(shares):
    shares.add(shares.share_of("alice"), 2 * MAX_BYTES)
    assert shares.admits("alice", 0, BEGIN)
    assert shares.admits("alice", -5, BEGIN)
    assert not shares.admits("alice", 1, CONTINUE)
    assert not shares.admits("bob", 1, CONTINUE)


def test_refusals_are_counted_and_noted_once_a_minute(shares):
    line = shares.refuse("group=g", "alice", 7, now_ms=1)
    assert "group=g user=alice user_bytes=0 added_bytes=7 free_bytes=1000000" in line
    assert "some.max.bytes" in line
    assert shares.refuse("group=h", "alice", 7, now_ms=NOTE_INTERVAL_MS) is None
    assert "refused_count=3" in shares.refuse("group=h", "alice", 7, now_ms=1 + NOTE_INTERVAL_MS)


class TestAccounts:
    def test_a_group_counts_for_the_user_who_created_it_also_if_others_add_to_it(self, shares):
        accounts = Accounts(shares)
        accounts.requester = "alice"
        accounts.add("g", 10)
        accounts.requester = "bob"
        accounts.add("g", 5)
        assert (shares.of("alice"), shares.of("bob"), accounts.user_of("g")) == (15, 0, "alice")

    def test_a_loaded_group_counts_for_the_first_user_that_adds_to_it(self, shares):
        accounts = Accounts(shares)
        accounts.add("g", 10)
        assert (shares.held_bytes, shares.of("bob")) == (10, 0)
        accounts.requester = "bob"
        accounts.add("g", 1)
        assert shares.of("bob") == shares.held_bytes == 11

    def test_an_empty_account_is_forgotten(self, shares):
        accounts = Accounts(shares)
        accounts.requester = "alice"
        accounts.add("g", 10)
        accounts.add("g", -10)
        accounts.requester = "bob"
        assert accounts.user_of("g") == "bob"
        accounts.check_invariants({})

    def test_a_closed_shard_gives_its_bytes_back(self, shares):
        one, other = Accounts(shares), Accounts(shares)
        one.requester = other.requester = "alice"
        one.add("g", 10)
        one.add("h", 10)
        other.add("i", 3)
        one.close()
        assert shares.of("alice") == shares.held_bytes == other.size_bytes("i") == 3
