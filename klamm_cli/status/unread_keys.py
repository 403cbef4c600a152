"""Finds the groups that have still to read records with keys in a topic.

If such a topic gets more partitions, a key may go to another partition. Its new records are then read beside its old
ones, which the group has not read yet, and in any order.

The search reads the newest records of each partition, and no others. A producer that writes keys usually writes them
with all its records.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.model import TopicPartition
from klamm_cli.console.command_config import client_settings
from klamm_cli.status.group_lag import describe_each

if TYPE_CHECKING:
    from klamm import Admin, Consumer
    from klamm.admin import GroupLagDescription

NEWEST_RECORDS: Final = 100
"""How many of the newest records of each partition are read."""
_READ_S: Final = 5.0
"""How long they are read at most. A partition without an answer counts as one without keys."""


class LogBounds(NamedTuple):
    """The offsets between which a partition can be read."""

    start: int
    """The log start offset."""
    end: int
    """The offset after the last record that can be read: the high watermark."""


def groups_with_unread_keys(admin: Admin, bootstrap: str, topic: str) -> dict[str, int]:
    """Returns how many records each group has still to read in the partitions in which it has unread records with keys.
    Groups without such records are left out. Raises KlammError."""
    groups = list(describe_each(admin, admin.list_groups()))
    behind = {
        partition.tp: LogBounds(partition.log_start_offset, partition.high_watermark)
        for group in groups
        for partition in group.partitions
        if partition.lag
        and partition.tp.topic == topic
        and partition.log_start_offset is not None
        and partition.high_watermark is not None
    }
    return unread_by_group(groups, _newest_keys(bootstrap, behind) if behind else {})


def unread_by_group(groups: Iterable[GroupLagDescription], newest_keys: Mapping[TopicPartition, int]) -> dict[str, int]:
    """Returns the unread records of each group in partitions whose newest record with a key the group has not read.
    `newest_keys` has that record's offset. Pure."""
    counts: dict[str, int] = {}
    for group in groups:
        for partition in group.partitions:
            newest, offset = newest_keys.get(partition.tp), partition.committed_offset
            if partition.lag and newest is not None and offset is not None and offset <= newest:
                counts[group.group_id] = counts.get(group.group_id, 0) + partition.lag
    return counts


def _newest_keys(bootstrap: str, wanted: Mapping[TopicPartition, LogBounds]) -> dict[TopicPartition, int]:
    """Returns the offset of the newest record with a key in each partition that has one among its newest records."""
    from klamm import Consumer
    from klamm.consumer.config import ConsumerConfig

    settings = {**client_settings(bootstrap, ConsumerConfig), "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.assign(wanted)
        for tp, bounds in wanted.items():
            consumer.seek(tp, max(bounds.start, bounds.end - NEWEST_RECORDS))
        return _read_keys(consumer, wanted)


def _read_keys(
    consumer: Consumer[bytes, bytes], wanted: Mapping[TopicPartition, LogBounds]
) -> dict[TopicPartition, int]:
    newest: dict[TopicPartition, int] = {}
    remaining = set(wanted)
    deadline_s = time.monotonic() + _READ_S
    while remaining and (left_s := deadline_s - time.monotonic()) > 0:
        for tp, records in consumer.poll(round(left_s * 1000)).items():
            newest.update((tp, record.offset) for record in records if record.key is not None)
        remaining = {tp for tp in remaining if consumer.position(tp) < wanted[tp].end}
    return newest
