"""Tests what the stored offsets of the own group mean."""

from __future__ import annotations

import uuid

from klamm.model import TopicPartition
from klamm_cli.spread.facts import make_mark, partitions_of
from tests.unit.klamm_cli.spread.spread_facts import BOUNDARY, COPIED, NAMES, SOURCE_ID, facts, source, target


def test_the_names_of_a_spread_follow_from_its_topics():
    assert NAMES.group_id == "klamm-spread-orders-orders-4"
    assert NAMES.transactional_id(1) == "klamm-spread-orders-orders-4-1"
    assert partitions_of("orders", 2) == [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def test_what_is_left_counts_up_to_the_last_stable_offset():
    copying = facts(source=source({0: 1_500, 1: 2_000}, stable={0: 1_200, 1: 2_000}), target=target(), copied=COPIED)
    assert (copying.left, copying.late) == (200, 500)


def test_without_a_target_everything_is_left():
    assert facts().left == 3_000


def test_offsets_of_a_topic_that_was_deleted_and_created_again_do_not_count():
    old = make_mark(SOURCE_ID, uuid.UUID(int=9))
    stale = facts(target=target(), copied=COPIED, boundary=BOUNDARY, mark=old)
    assert (stale.copied, stale.boundary) == ({}, {})
