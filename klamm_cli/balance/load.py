"""The load of partitions, and its sum at each broker. Pure.

A broker's load has three parts: the bytes per second that it appends, the bytes per second that it sends, and the bytes
that it stores. Each replica appends and stores. The leader alone sends, to consumers and to its followers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from klamm.model import TopicPartition

Replicas = tuple[int, ...]
"""The brokers of a partition, the preferred leader first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLoad:
    """A partition with its measured load."""

    replicas: Replicas
    in_bytes: float = 0.0
    """The bytes per second that producers append."""
    out_bytes: float = 0.0
    """The bytes per second that consumers fetch."""
    size_bytes: int = 0


class Load(NamedTuple):
    """A load in its three parts."""

    in_bytes: float
    out_bytes: float
    size_bytes: float


NO_LOAD: Final = Load(0.0, 0.0, 0.0)
PARTS: Final = range(3)
_FLOOR_SHARE: Final = 0.05
_FLOORS: Final = Load(1024.0, 1024.0, 1024.0 * 1024.0)


class Floors:
    """The least load that a partition counts with, so that partitions without load are spread by their number."""

    def __init__(self, partitions: Collection[PartitionLoad]) -> None:
        count = max(1, len(partitions))
        totals = Load(
            sum(partition.in_bytes for partition in partitions),
            sum(_sent(partition) for partition in partitions),
            sum(partition.size_bytes for partition in partitions),
        )
        self._floors = Load(*(max(_FLOORS[part], _FLOOR_SHARE * totals[part] / count) for part in PARTS))

    def of_follower(self, partition: PartitionLoad) -> Load:
        """Returns the load that the partition puts on a follower."""
        least = self._floors
        return Load(partition.in_bytes + least.in_bytes, 0.0, partition.size_bytes + least.size_bytes)

    def of_leader(self, partition: PartitionLoad) -> Load:
        """Returns the load that the partition puts on its leader."""
        load = self.of_follower(partition)
        return load._replace(out_bytes=_sent(partition) + self._floors.out_bytes)


def _sent(partition: PartitionLoad) -> float:
    return partition.out_bytes + partition.in_bytes * (len(partition.replicas) - 1)


def broker_loads(partitions: Mapping[TopicPartition, PartitionLoad], brokers: Collection[int]) -> dict[int, Load]:
    """Returns the measured load of each broker, without floors."""
    loads = dict.fromkeys(sorted(brokers), NO_LOAD)
    for _, partition in sorted(partitions.items()):
        for broker_id in partition.replicas:
            if broker_id in loads:
                sent = _sent(partition) if broker_id == partition.replicas[0] else 0.0
                loads[broker_id] = plus(loads[broker_id], Load(partition.in_bytes, sent, partition.size_bytes))
    return loads


def plus(load: Load, other: Load, sign: int = 1) -> Load:
    """Returns the sum of two loads, or their difference if `sign` is -1."""
    return Load(*(mine + sign * theirs for mine, theirs in zip(load, other, strict=True)))
