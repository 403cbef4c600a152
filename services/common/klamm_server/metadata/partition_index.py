"""An index of the partitions that each broker has replicas of, with the number it leads. Avoids a walk over all
partitions.

Derived from the partitions of an image, and stored with them. Kafka's BrokersToIsrs, but by replica, because replicas
change only when partitions are created, moved or deleted, and the in-sync set changes more often. Leadership changes
more often too, so the index only counts it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from klamm_server.metadata.entities import PartitionImage
from klamm_server.metadata.persistent_map import MapDraft, PersistentMap

PartitionKey = tuple[uuid.UUID, int]
"""(topic id, number)"""


class Tally(NamedTuple):
    """The numbers of a broker's partitions."""

    led: int = 0
    """The number of partitions that the broker leads."""
    in_sync: int = 0
    eligible: int = 0
    offline: int = 0
    preferred: int = 0
    """The number of partitions whose preferred leader (the first replica) is the broker."""
    away: int = 0
    """The number of partitions whose preferred leader is the broker, but which it does not lead."""


class PartitionIndex(NamedTuple):
    """The index of one image. Only brokers with partitions are in it."""

    hosted: Mapping[int, PersistentMap[uuid.UUID, tuple[int, ...]]] = {}
    """The sorted numbers of the partitions of which a broker has a replica, by broker and topic id."""
    tallies: Mapping[int, Tally] = {}
    """The tally of each broker. For the broker id -1, `led` counts the partitions without a leader."""
    partition_count: int = 0
    reassigned: PersistentMap[PartitionKey, bool] = PersistentMap()
    """The partitions that are being reassigned."""
    with_eligible: PersistentMap[PartitionKey, bool] = PersistentMap()
    """The partitions that have eligible leader replicas."""

    def tally(self, broker_id: int) -> Tally:
        """Returns the broker's tally."""
        return self.tallies.get(broker_id, _NOTHING)

    def hosted_by(self, broker_id: int) -> Iterator[PartitionKey]:
        """Yields (topic id, number) of each partition of which the broker has a replica."""
        for topic_id, numbers in self.hosted.get(broker_id, _NO_PARTITIONS).items():
            for number in numbers:
                yield topic_id, number


_NOTHING = Tally()
_NO_PARTITIONS: PersistentMap[uuid.UUID, tuple[int, ...]] = PersistentMap()
_LED, _IN_SYNC, _ELIGIBLE, _OFFLINE, _PREFERRED, _AWAY = range(6)


def _is_reassigned(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


_Shape = tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""A partition's leader, replicas, in-sync, eligible and offline replicas."""


class IndexDraft:
    """Builds the next index. The old index does not change."""

    def __init__(self, base: PartitionIndex) -> None:
        self._base = base
        self._hosted: dict[int, MapDraft[uuid.UUID, tuple[int, ...]]] = {}
        # Lists instead of tuples for added partitions: a new tuple for each partition would take quadratic time.
        self._added: dict[bytes, dict[int, list[int]]] = {}
        """The numbers of the added partitions, by topic id and broker."""
        # Many partitions share their brokers, so they are counted together at the end.
        self._shapes: dict[_Shape, int] = {}
        self._partition_count = base.partition_count
        self._reassigned = MapDraft(base.reassigned)
        self._with_eligible = MapDraft(base.with_eligible)

    def add(self, topic_id: bytes, partition: PartitionImage) -> None:
        """Adds a partition."""
        self._partition_count += 1
        for broker_id in partition.replicas:
            self._host(broker_id, topic_id, partition.partition)
        self._count(partition, 1)
        if _is_reassigned(partition) or partition.elr:
            self._mark(topic_id, partition.partition, False, _is_reassigned(partition), self._reassigned)
            self._mark(topic_id, partition.partition, False, bool(partition.elr), self._with_eligible)

    def change(self, topic_id: bytes, before: PartitionImage, after: PartitionImage) -> None:
        """Applies the change of a partition from `before` to `after`."""
        if before.replicas is not after.replicas:
            for broker_id in set(after.replicas) - set(before.replicas):
                self._host(broker_id, topic_id, after.partition)
            for broker_id in set(before.replicas) - set(after.replicas):
                self._drop(broker_id, topic_id, after.partition)
        self._count(before, -1)
        self._count(after, 1)
        number = after.partition
        self._mark(topic_id, number, _is_reassigned(before), _is_reassigned(after), self._reassigned)
        self._mark(topic_id, number, bool(before.elr), bool(after.elr), self._with_eligible)

    def remove(self, topic_id: bytes, partitions: Iterable[PartitionImage]) -> None:
        """Removes all partitions of a deleted topic."""
        brokers: set[int] = set()
        for partition in partitions:
            self._partition_count -= 1
            brokers.update(partition.replicas)
            self._count(partition, -1)
            self._mark(topic_id, partition.partition, _is_reassigned(partition), False, self._reassigned)
            self._mark(topic_id, partition.partition, bool(partition.elr), False, self._with_eligible)
        self._added.pop(topic_id, None)
        for broker_id in brokers:
            hosted = self._hosted_by(broker_id)
            if uuid.UUID(bytes=topic_id) in hosted:
                hosted.remove(uuid.UUID(bytes=topic_id))

    def finish(self) -> PartitionIndex:
        """Returns the new index. The draft must not be used afterwards."""
        if not self._shapes:
            return self._base
        for topic_id, by_broker in self._added.items():
            key = uuid.UUID(bytes=topic_id)
            for broker_id, numbers in by_broker.items():
                self._extend(self._hosted_by(broker_id), key, numbers)
        hosted = {**self._base.hosted, **{broker_id: draft.finish() for broker_id, draft in self._hosted.items()}}
        tallies = {**self._base.tallies, **{broker_id: Tally(*counts) for broker_id, counts in self._counts().items()}}
        return PartitionIndex(
            hosted={broker_id: topics for broker_id, topics in hosted.items() if topics},
            tallies={broker_id: tally for broker_id, tally in tallies.items() if tally != _NOTHING},
            partition_count=self._partition_count,
            reassigned=self._reassigned.finish(),
            with_eligible=self._with_eligible.finish(),
        )

    @staticmethod
    def _extend(hosted: MapDraft[uuid.UUID, tuple[int, ...]], topic_id: uuid.UUID, numbers: Iterable[int]) -> None:
        both = sorted((*(hosted.get(topic_id) or ()), *numbers))
        if both:
            hosted.put(topic_id, tuple(both))

    @staticmethod
    def _mark(topic_id: bytes, number: int, before: bool, after: bool, marked: MapDraft[PartitionKey, bool]) -> None:
        if after and not before:
            marked.put((uuid.UUID(bytes=topic_id), number), True)
        elif before and not after:
            marked.remove((uuid.UUID(bytes=topic_id), number))

    def _host(self, broker_id: int, topic_id: bytes, number: int) -> None:
        by_broker = self._added.get(topic_id)
        if by_broker is None:
            by_broker = self._added[topic_id] = {}
        numbers = by_broker.get(broker_id)
        if numbers is None:
            numbers = by_broker[broker_id] = []
        numbers.append(number)

    def _drop(self, broker_id: int, topic_id: bytes, number: int) -> None:
        added = self._added.get(topic_id, {}).get(broker_id, [])
        if number in added:
            added.remove(number)
            return
        hosted = self._hosted_by(broker_id)
        key = uuid.UUID(bytes=topic_id)
        left = tuple(other for other in hosted.get(key) or () if other != number)
        if left:
            hosted.put(key, left)
        else:
            hosted.remove(key)

    def _hosted_by(self, broker_id: int) -> MapDraft[uuid.UUID, tuple[int, ...]]:
        draft = self._hosted.get(broker_id)
        if draft is None:
            draft = self._hosted[broker_id] = MapDraft(self._base.hosted.get(broker_id, _NO_PARTITIONS))
        return draft

    def _count(self, partition: PartitionImage, by: int) -> None:
        shape = (partition.leader, partition.replicas, partition.isr, partition.elr, partition.offline_replicas)
        self._shapes[shape] = self._shapes.get(shape, 0) + by

    def _counts(self) -> dict[int, list[int]]:
        """Returns the new counts of each broker's tally."""
        counts: dict[int, list[int]] = {}

        def of(broker_id: int) -> list[int]:
            if broker_id not in counts:
                counts[broker_id] = list(self._base.tallies.get(broker_id, _NOTHING))
            return counts[broker_id]

        for (leader, replicas, isr, elr, offline), by in self._shapes.items():
            of(leader)[_LED] += by
            for position, broker_ids in ((_IN_SYNC, isr), (_ELIGIBLE, elr), (_OFFLINE, offline)):
                for broker_id in broker_ids:
                    of(broker_id)[position] += by
            of(replicas[0])[_PREFERRED] += by
            of(replicas[0])[_AWAY] += by * (leader != replicas[0])
        return counts
