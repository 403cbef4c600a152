"""Tests OrderedSet against Python's set: the same members, in the order of insertion."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.ordered_set import OrderedSet

STEPS = st.lists(st.tuples(st.sampled_from(["add", "discard", "clear"]), st.integers(0, 5)))


@given(STEPS)
def test_an_ordered_set_has_the_members_of_a_set_in_insertion_order(steps: list[tuple[str, int]]) -> None:
    ordered: OrderedSet[int] = OrderedSet()
    members: list[int] = []
    for step, member in steps:
        match step:
            case "add":
                ordered.add(member)
                members += [] if member in members else [member]
            case "discard":
                ordered.discard(member)
                members = [one for one in members if one != member]
            case _:
                ordered.clear()
                members = []
        assert list(ordered) == members
        assert len(ordered) == len(members)
        assert (member in ordered) == (member in members)
