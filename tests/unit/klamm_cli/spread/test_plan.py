"""Tests the order of the phases of a spread, and its refusals."""

from __future__ import annotations

import dataclasses
import uuid

import pytest

from klamm.partitioner import key_partition
from klamm_cli.spread.facts import make_mark
from klamm_cli.spread.plan import Phase, cut_refusal, is_copied, next_phase, refusal, target_partition
from tests.unit.klamm_cli.spread.spread_facts import BOUNDARY, COPIED, SOURCE_ID, facts, source, target

EMPTY = target(dict.fromkeys(range(4), 0))


@pytest.mark.parametrize(
    ("seen", "phase"),
    [
        (facts(), Phase.CREATE),
        (facts(target=EMPTY), Phase.CLAIM),
        (facts(target=EMPTY, copied={0: 0, 1: 0}), Phase.COPY),
        (facts(target=target(), copied=COPIED), Phase.COPY),
        (facts(target=target(), copied=COPIED, boundary=BOUNDARY), Phase.GROUPS),
    ],
)
def test_the_stored_state_decides_the_phase(seen, phase):
    assert (refusal(seen), next_phase(seen)) == (None, phase)


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (facts(source=source(internal=True)), "topic orders is internal and cannot be spread"),
        (facts(partitions=2), "--partitions 2: expected more than the 2 partitions of orders"),
        (facts(target=target({0: 0, 1: 0, 2: 0})), "topic orders-4 has 3 partitions, not 4"),
        (facts(target=target()), "has records that this command did not copy"),
        (facts(target=target(), copied={0: 1_000}), "has no offset in orders-1"),
        (facts(target=target(), copied=COPIED, boundary={0: 700}), "has lost a part of the boundary"),
        (
            facts(target=target(), copied=COPIED, mark=make_mark(SOURCE_ID, uuid.UUID(int=9))),
            "has records that this command did not copy",
        ),
    ],
)
def test_a_state_in_which_the_copy_would_not_be_exact_is_refused(seen, text):
    assert text in refusal(seen)


def test_the_offsets_of_an_earlier_target_do_not_skip_records():
    again = facts(target=EMPTY, copied=COPIED, mark=make_mark(SOURCE_ID, uuid.UUID(int=9)))
    assert (refusal(again), next_phase(again)) == (None, Phase.CLAIM)


@pytest.mark.parametrize(
    ("left", "left_before", "ends"), [(1_000, 90_000, True), (1_001, 90_000, False), (90_000, 90_000, True)]
)
def test_the_copy_ends_near_the_end_or_if_it_comes_no_closer(left, left_before, ends):
    seen = facts(source=source({0: 1_000, 1: 2_000 + left}), target=target(), copied=COPIED)
    assert is_copied(seen, left_before) is ends


BEFORE = facts(target=target(), copied=COPIED)


@pytest.mark.parametrize(
    ("now", "foreign", "text"),
    [
        (facts(source=source({0: 1_000, 1: 2_007}), target=target(), copied=COPIED), [], "still grows: 7 records"),
        (
            facts(source=source(stable={0: 1_000, 1: 1_900}), target=target(), copied=COPIED),
            [],
            "orders has an open transaction",
        ),
        (BEFORE, [3], "other producers have written to orders-4-3 before the cut"),
        (facts(target=target(), copied={0: 1_000, 1: 1_990}), [], "10 records that are not copied yet"),
    ],
)
def test_the_cut_is_refused_while_records_could_be_lost(now, foreign, text):
    before = dataclasses.replace(now, source=BEFORE.source)
    assert text in cut_refusal(now, before, foreign)


def test_the_cut_is_made_when_everything_is_copied_and_nothing_grows():
    assert cut_refusal(BEFORE, BEFORE, []) is None


def test_a_key_goes_where_kafkas_clients_send_it():
    assert target_partition(b"alice", 4, 2) == key_partition(b"alice", 4)
    assert target_partition(b"", 4, 2) == key_partition(b"", 4)
    assert target_partition(None, 4, 2) == 2
