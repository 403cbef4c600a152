"""The errors that only a Consumer raises, besides those of `klamm.errors`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klamm.errors import KlammError, OffsetOutOfRangeError
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata


class NoOffsetForPartitionError(KlammError):
    """Nothing is committed for these partitions and `auto.offset.reset` is none."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        names = ", ".join(map(str, sorted(self.partitions)))
        super().__init__(f"no committed offset for {names} and auto.offset.reset is none: seek, or set it")


class LogTruncation(NamedTuple):
    """A position whose last record is no longer in the leader's log."""

    topic_partition: TopicPartition
    fetch_offset: int
    """The position of the consumer."""
    leader_epoch: int
    """The leader epoch of the record before that position."""
    divergent: OffsetAndMetadata | None
    """The first offset that may have another record now, with the epoch before it. None if the leader cannot tell."""

    def __str__(self) -> str:
        until = (
            "somewhere before" if self.divergent is None else f"from offset {self.divergent.offset} (at the latest) to"
        )
        return (
            f"{self.topic_partition}: what was read {until} offset {self.fetch_offset}, in leader epoch"
            f" {self.leader_epoch}, is not in the log any more"
        )


class LogTruncationError(OffsetOutOfRangeError):  # type: ignore[misc, valid-type]
    """Records that were read, or committed as read, were cut from the log by an unclean election, and
    `auto.offset.reset` is none (KIP-320). Raised until the consumer seeks, for instance to `divergent_offsets[tp]`."""

    def __init__(self, truncations: Iterable[LogTruncation]) -> None:
        self.truncations = tuple(truncations)
        super().__init__("; ".join(map(str, self.truncations)))

    @property
    def divergent_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The first offsets that may have other records now, for the partitions whose leaders can tell."""
        return {
            truncation.topic_partition: truncation.divergent
            for truncation in self.truncations
            if truncation.divergent is not None
        }


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


class BatchTooLargeError(KlammError):
    """A fetched batch is larger than `max.decompressed.batch.bytes` when decompressed. Nothing before `offset` is lost.
    Raise the setting, or seek to `next_offset` to skip the batch."""

    def __init__(self, topic_partition: TopicPartition, offset: int, next_offset: int, max_bytes: int) -> None:
        self.topic_partition = topic_partition
        self.offset = offset
        self.next_offset = next_offset
        super().__init__(
            f"the batch of {topic_partition} at offset {offset} is too large when decompressed; expected at most"
            f" max.decompressed.batch.bytes={max_bytes}: raise the setting, or go on at offset {next_offset}"
        )
