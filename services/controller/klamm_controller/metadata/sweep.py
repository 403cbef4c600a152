"""A sweep changes many partitions, some of them per event, so that no event blocks the queue for long.

A sweep makes partitions agree with the brokers' states. Afterwards, no broker is in sync that may not lead, and a
partition has a leader if any broker can lead it. No reassignment is left that can end. A sweep uses the current image
in each event. So it may run late or twice, or overtake another sweep. Sweeps are not in the log: a controller that
becomes active sweeps all partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from klamm.wire.v1.metadata_pb2 import MetadataRecord
from klamm_controller.metadata.electorate import Electorate
from klamm_controller.metadata.partition_change import partition_change
from klamm_server.metadata.entities import PartitionImage, TopicImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.partition_index import PartitionKey

PARTITIONS_PER_EVENT = 2_000
"""The most partitions that one event looks at. This takes about 0.2 ms if none must change."""
CHANGES_PER_EVENT = 100
"""The most changes that one event makes. They take about 5 ms with their replay."""

Change = Callable[[TopicImage, PartitionImage, Electorate], MetadataRecord | None]


def settle(topic: TopicImage, partition: PartitionImage, electorate: Electorate) -> MetadataRecord | None:
    """Returns the change that makes a partition agree with the brokers' states, or None if it already does."""
    active = electorate.active
    is_reassigned = partition.adding_replicas or partition.removing_replicas
    if not is_reassigned and partition.leader in active and active.issuperset(partition.isr):
        return None
    return partition_change(topic, partition, electorate)


class Sweep:
    """The remaining partitions of a sweep, and the change that it makes to each. Deleted partitions are skipped."""

    def __init__(
        self,
        name: str,
        partitions: Iterable[PartitionKey],
        change: Change = settle,
        *,
        changes_max: int = CHANGES_PER_EVENT,
    ) -> None:
        self.name = name
        self.is_done = False
        self._partitions = iter(partitions)
        self._change = change
        self._changes_max = changes_max
        self._looked_at_max = max(PARTITIONS_PER_EVENT, changes_max)
        self._looked_at: list[PartitionKey] = []

    def next_changes(self, image: MetadataImage, electorate: Electorate | None = None) -> tuple[MetadataRecord, ...]:
        """Returns the changes of the next partitions, computed in `image`."""
        electorate = electorate or Electorate(image)
        changes: list[MetadataRecord] = []
        self._looked_at = []
        for topic_id, number in islice(self._partitions, self._looked_at_max):
            self._looked_at.append((topic_id, number))
            topic = image.topics_by_id.get(topic_id)
            if topic is None or number >= len(topic.partitions):
                continue
            record = self._change(topic, topic.partitions[number], electorate)
            if record is not None:
                changes.append(record)
                if len(changes) == self._changes_max:
                    break
        else:
            self.is_done = len(self._looked_at) < self._looked_at_max
        return tuple(changes)

    def put_back(self) -> None:
        """Takes the last partitions back, because their changes could not be appended. The next call computes their
        changes again."""
        self._partitions = chain(self._looked_at, self._partitions)
        self.is_done = False


def all_partitions(image: MetadataImage) -> Iterator[PartitionKey]:
    """Yields the key of every partition in the image."""
    for topic_id, topic in image.topics_by_id.items():
        for partition in topic.partitions:
            yield topic_id, partition.partition
