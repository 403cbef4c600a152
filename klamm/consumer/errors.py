"""What only a Consumer raises, besides the errors of `klamm.errors`."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.errors import KlammError
from klamm.model import TopicPartition


class NoOffsetForPartitionError(KlammError):
    """Nothing is committed for these partitions and `auto.offset.reset` is none."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        names = ", ".join(map(str, sorted(self.partitions)))
        super().__init__(f"no committed offset for {names} and auto.offset.reset is none: seek, or set it")


class RecordDeserializationError(KlammError):
    """A deserializer raised (the cause). Go on with `seek(error.topic_partition, error.offset + 1)`."""

    def __init__(self, topic_partition: TopicPartition, offset: int, part: str) -> None:
        self.topic_partition = topic_partition
        self.offset = offset
        super().__init__(
            f"{part}.deserializer failed on {topic_partition} at offset {offset}; "
            f"seek to {offset + 1} to go on after it"
        )


class CorruptRecordError(KlammError):
    """A fetched batch is damaged (the cause). Nothing before `offset` is lost; seek past it to go on."""

    def __init__(self, topic_partition: TopicPartition, offset: int) -> None:
        self.topic_partition = topic_partition
        self.offset = offset
        super().__init__(f"the batch of {topic_partition} at offset {offset} is damaged")
