"""A record as the Consumer returns it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from klamm.core import core
from klamm.model import TopicPartition
from klamm.records import Headers, TimestampType
from klamm.type_variables import KeyT, ValueT


class ConsumerRecord(NamedTuple, Generic[KeyT, ValueT]):
    """One record of a topic-partition. A tuple, because millions of them are made.

    topic, partition, offset: the record's place. An offset is a record's number in its partition.
    timestamp: milliseconds since the epoch. `timestamp_type` tells whether the producer or the broker set it.
    key, value: as `key.deserializer` and `value.deserializer` return them, by default bytes. None for a null.
    headers: pairs of a name and bytes (or None), in the producer's order.
    leader_epoch: the epoch of the partition's leader that appended the record."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch. `timestamp_type` tells which side set the time."""
    key: KeyT
    """The key as `key.deserializer` returns it, or None."""
    value: ValueT
    """The value as `value.deserializer` returns it, or None."""
    headers: Headers
    """Pairs of name and bytes (or None), in the producer's order."""
    timestamp_type: TimestampType
    leader_epoch: int
    """The epoch of the partition's leader that appended the record."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


record_of = partial(tuple.__new__, ConsumerRecord)
"""Makes a record from a tuple of all fields. This is three times as fast as the constructor."""


def with_contents(record: ConsumerRecord, key: Any, value: Any) -> ConsumerRecord:
    """Returns the record with a deserialized key and value."""
    topic, partition, offset, timestamp, _, _, *rest = record
    return record_of((topic, partition, offset, timestamp, key, value, *rest))


if core is not None and not TYPE_CHECKING:
    # Its records make key, value and headers when these are read.
    ConsumerRecord, with_contents = core.ConsumerRecord, core.with_contents
    core.use_topic_partition(TopicPartition)
