"""Waits until partitions have moved to other brokers, and shows how far they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from klamm.model import TopicPartition
from klamm_cli.commands.waiting import Report
from klamm_cli.status.copies import Amount, Copying, bytes_left, current_replicas
from klamm_cli.text.amounts import counted

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import PartitionDescription

Moving = Mapping[TopicPartition, "PartitionDescription"]
"""The partitions that are being moved."""
_LOOK_EVERY_S: Final = 1.0


def wait_for_moves(admin: Admin, count_left: Callable[[], int], find_moving: Callable[[], Moving]) -> None:
    """Waits until no partition is left to be moved. On a terminal, the progress is that of the partitions that are
    being moved."""
    copying = Copying()

    def amount() -> Amount:
        moving = find_moving()
        log_dirs = admin.describe_log_dirs(topics={tp.topic for tp in moving}) if moving else {}
        return copying.amount(bytes_left(moving.items(), current_replicas(log_dirs)))

    most = 0
    with Report() as report:
        while left := count_left():
            most = max(most, left)
            report.show(f"{most - left} of {counted(most, 'partition')} moved", amount)
            time.sleep(_LOOK_EVERY_S)


def wait_until_moved(admin: Admin, plan: Iterable[TopicPartition]) -> None:
    """Waits until no partition of the plan is being moved."""
    wanted = list(plan)

    def find_moving() -> Moving:
        ongoing = admin.list_partition_reassignments(wanted)
        return {tp: partition for tp, partition in partitions_of(admin, ongoing).items() if tp in ongoing}

    wait_for_moves(admin, lambda: len(admin.list_partition_reassignments(wanted)), find_moving)


def partitions_of(admin: Admin, plan: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionDescription]:
    """Returns all partitions of the topics in the plan."""
    described = admin.describe_topics({tp.topic for tp in plan})
    return {
        TopicPartition(name, partition.partition): partition
        for name, topic in described.items()
        for partition in topic.partitions
    }


def unthrottle(admin: Admin, topics: Iterable[str]) -> None:
    """Removes the throttles of moves from all brokers and from the topics."""
    from klamm.admin.replication_throttle import unthrottle_changes

    brokers = [broker.node_id for broker in admin.describe_cluster().brokers]
    admin.incremental_alter_configs(unthrottle_changes(brokers=brokers, topics=topics))
