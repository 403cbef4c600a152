"""Tests when a group may read the target, and what it has to do before."""

from __future__ import annotations

import pytest

from klamm_cli.spread.group_steps import GroupFacts, Step, is_waiting, sentence, step_of
from tests.unit.klamm_cli.spread.spread_facts import BOUNDARY

LATER = {number: offset + 5 for number, offset in BOUNDARY.items()}


@pytest.mark.parametrize(
    ("lag", "members", "offsets", "step", "waits"),
    [
        (0, 0, {}, Step.MOVE, True),
        (0, 2, {}, Step.STOP, True),
        (7, 2, {}, Step.READ, True),
        (7, 0, {}, Step.START, True),
        (None, 0, {}, Step.UNKNOWN, True),
        (0, 0, BOUNDARY, Step.MOVED, False),
        (0, 2, LATER, Step.MOVED, False),
        (7, 0, LATER, Step.MOVED, False),
        (0, 0, {0: 700}, Step.OWN_OFFSETS, False),
        (9, 1, {**LATER, 2: 1}, Step.OWN_OFFSETS, False),
    ],
)
def test_a_group_moves_when_it_has_read_everything_and_has_no_members(lag, members, offsets, step, waits):
    group = GroupFacts(group_id="billing", lag=lag, member_count=members, target_offsets=offsets)
    assert step_of(group, BOUNDARY) is step
    assert is_waiting(step) is waits


@pytest.mark.parametrize(
    ("lag", "step", "text"),
    [
        (0, Step.MOVED, "group billing is moved: start its members on orders-4"),
        (
            2,
            Step.MOVED,
            "group billing is moved: start its members on orders-4; 2 records came to orders after the cut, and this"
            " group has not read them",
        ),
        (1, Step.START, "group billing has 1 record of orders to read and no members: start it on orders"),
    ],
)
def test_a_sentence_says_what_to_do(lag, step, text):
    group = GroupFacts(group_id="billing", lag=lag, member_count=0)
    assert sentence(group, step, "orders", "orders-4") == text


def test_every_step_has_a_sentence():
    group = GroupFacts(group_id="billing", lag=1, member_count=0)
    assert all(sentence(group, step, "a", "b").startswith("group billing ") for step in Step)
