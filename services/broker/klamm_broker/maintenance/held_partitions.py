"""Owns what metrics and DescribeLogDirs show of the records that retention keeps for groups.

The thread of the metrics endpoint reads a mapping that no code changes. Each check of retention replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from klamm.model import TopicPartition
from klamm_broker.log.cleaning.retention_hold import LowOffset
from klamm_server.metrics.instruments import Reading, Readings

_LABELS: Final = ("topic", "partition", "group")
_HELD_BYTES = Readings(
    "klamm_broker_partition_retention_held_bytes",
    "Bytes that retention keeps for a group, of a partition led by this broker. The group is the one that has committed"
    " the lowest offset; its name is empty if the coordinators cannot be asked.",
    _LABELS,
)
_LEFT = Readings(
    "klamm_broker_partition_retention_hold_left_seconds",
    "Time until a bound of retention.hold is expected to delete records that a group has not read, of a partition led"
    " by this broker. For retention.hold.max.bytes, the log is assumed to grow as much as in the last four hours.",
    _LABELS,
)


class HeldPartition(NamedTuple):
    """What a hold keeps of one partition."""

    lowest: LowOffset | None
    """The group with the lowest committed offset, or None if it is not known."""
    held_bytes: int
    bound_due_ms: int | None
    """The time at which a bound is expected to release the first held segment. None if no bound will."""

    @property
    def group_id(self) -> str:
        """The group with the lowest committed offset, or "" if it is not known."""
        return "" if self.lowest is None else self.lowest.group_id


NOT_HELD: Final = HeldPartition(None, 0, None)


class HeldPartitions:
    """The partitions of which the last check of retention kept segments for groups."""

    def __init__(self) -> None:
        self.partitions: Mapping[TopicPartition, HeldPartition] = MappingProxyType({})

    def watch(self, wall_ms: Callable[[], int]) -> None:
        """Registers the metrics."""
        _HELD_BYTES.set_function(self._held_bytes)
        _LEFT.set_function(lambda: self._left_seconds(wall_ms()))

    def replace(self, partitions: dict[TopicPartition, HeldPartition]) -> None:
        self.partitions = MappingProxyType(partitions)

    def _held_bytes(self) -> Iterator[Reading]:
        for labels, held in self._labelled():
            yield labels, held.held_bytes

    def _left_seconds(self, now_ms: int) -> Iterator[Reading]:
        for labels, held in self._labelled():
            if held.bound_due_ms is not None:
                yield labels, max(0, held.bound_due_ms - now_ms) / 1000

    def _labelled(self) -> Iterator[tuple[tuple[object, ...], HeldPartition]]:
        for topic_partition, held in self.partitions.items():
            yield (*topic_partition, held.group_id), held
