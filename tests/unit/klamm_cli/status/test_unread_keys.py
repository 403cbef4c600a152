from __future__ import annotations

from klamm.admin.types import GroupLagDescription, PartitionLagDescription
from klamm.model import TopicPartition
from klamm_cli.status.unread_keys import unread_by_group

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
ENDS = {ONE: 100, TWO: 60}


def counts(committed, newest_keys):
    groups = [
        GroupLagDescription(
            group_id=group_id,
            time_ms=0,
            partitions=tuple(
                PartitionLagDescription(tp=tp, committed_offset=offset, lag=ENDS[tp] - offset if offset >= 0 else None)
                for tp, offset in offsets.items()
            ),
        )
        for group_id, offsets in committed.items()
    ]
    return unread_by_group(groups, newest_keys)


def test_the_records_of_all_partitions_with_unread_keys_count():
    assert counts({"g": {ONE: 90, TWO: 10}}, {ONE: 99, TWO: 60}) == {"g": 60}


def test_a_group_that_has_read_the_last_key_is_left_out():
    assert counts({"g": {ONE: 99}, "h": {ONE: 98}}, {ONE: 98}) == {"h": 2}


def test_a_group_without_an_offset_or_with_a_negative_one_is_left_out():
    assert counts({"g": {}, "h": {ONE: -1}}, {ONE: 99}) == {}


def test_partitions_without_keys_do_not_count():
    assert counts({"g": {ONE: 0, TWO: 10}}, {TWO: 99}) == {"g": 50}
