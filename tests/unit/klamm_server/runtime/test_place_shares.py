"""Tests that one user may take most of the places, and that others always find some."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_server.runtime.place_shares import PlaceShares


def fill(places: PlaceShares, user: str) -> int:
    """Takes places until the user is refused. Returns how many it took."""
    taken = 0
    while places.take(user):
        taken += 1
    places.check_invariants()
    return taken


def test_a_user_alone_may_take_two_thirds() -> None:
    assert fill(PlaceShares(10_000), "alice") == pytest.approx(10_000 * 7 / 8 * 3 / 4, rel=0.01)


@pytest.mark.parametrize("user_count", [1, 2, 5])
def test_users_who_take_all_that_they_may_leave_places_for_modest_users(user_count: int) -> None:
    places = PlaceShares(6_400)
    for number in range(user_count):
        fill(places, f"greedy-{number}")
    assert all(fill(places, f"modest-{number}") >= 100 for number in range(5))


def test_a_refused_request_is_counted_and_a_place_that_is_given_back_is_free_again() -> None:
    places = PlaceShares(1)
    assert places.take("alice")
    assert not places.take("alice")
    assert not places.take("bob")
    assert (len(places), places.refused_count) == (1, 2)
    places.give_back("alice")
    assert places.take("bob")


@given(st.integers(1, 300), st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=500))
def test_places_are_never_more_than_the_bound_and_a_user_without_any_gets_one_while_one_is_free(
    places_max: int, steps: list[tuple[str, bool]]
) -> None:
    places = PlaceShares(places_max)
    held: dict[str, int] = dict.fromkeys("abcd", 0)
    for user, is_taken in steps:
        if is_taken:
            is_free = len(places) < places_max
            took = places.take(user)
            assert took or held[user] or not is_free
            held[user] += took
        elif held[user]:
            places.give_back(user)
            held[user] -= 1
        places.check_invariants()
        assert len(places) == sum(held.values())
