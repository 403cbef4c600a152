from __future__ import annotations

from klamm.model import TopicPartition
from klamm_cli.status.group_positions import Positions
from klamm_cli.status.unread_keys import unread_by_group
from klamm_cli.status.unread_records import LogBounds

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
BOUNDS = {ONE: LogBounds(0, 100), TWO: LogBounds(50, 100)}


def counts(committed, newest_keys):
    return unread_by_group(Positions(committed=committed, bounds=BOUNDS), newest_keys)


def test_the_records_of_all_partitions_with_unread_keys_count():
    assert counts({"g": {ONE: 90, TWO: 10}}, {ONE: 99, TWO: 60}) == {"g": 60}


def test_a_group_that_has_read_the_last_key_is_left_out():
    assert counts({"g": {ONE: 99}, "h": {ONE: 98}}, {ONE: 98}) == {"h": 2}


def test_a_group_without_an_offset_or_with_a_negative_one_is_left_out():
    assert counts({"g": {}, "h": {ONE: -1}}, {ONE: 99}) == {}


def test_partitions_without_keys_do_not_count():
    assert counts({"g": {ONE: 0, TWO: 0}}, {TWO: 99}) == {"g": 50}
