"""Selects the partition of a record if its sender names none.

Pure; randomness is an argument. Each topic of each producer has one BuiltInPartitioner. `update` sets the topic's
partitions, and `choose` selects one for each record. A `Partitioner` is written by a user, and sees all topics of its
producer. The producer asks it first. Keys hash as in Kafka's clients: murmur2 of the serialized key, modulo the
number of all partitions. So the same key goes to the same partition, no matter which client sends it. Records without a
key stay with one partition until its batch closes. This makes full batches, and over time an even distribution
(KIP-480). While an earlier batch of the partition is in flight, they stay for 16 KiB only. So a partition with a slow
broker does not collect them (KIP-794)."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from klamm.core import core

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """A partition of a topic, as a Partitioner sees it."""

    partition: int
    """The partition's number."""
    leader: int | None
    """The node id of the broker that leads the partition, or None if the partition has no leader."""
    leader_rack: str | None
    """The `broker.rack` of the leader. None if the leader has no rack, or if the partition is not available."""
    is_available: bool
    """True if the partition has a live leader. Records for another partition wait until it has one."""


class Partitioner:
    """The base class of partitioners that users write, for `partitioner.class`. Override `partition`.

    Use a partitioner in one producer only. The producer calls `partition` in each thread that sends."""

    def partition(self, topic: str, key: Any, value: Any, partitions: Sequence[PartitionInfo]) -> int | None:
        """Returns the number of the partition for a record whose sender names none.

        key, value: as the sender passed them, before serialization. partitions: all partitions of the topic, in the
        order of their numbers. The sequence is the same object until the metadata change. If the method returns None,
        the `default` partitioner selects the partition. If it raises an exception, or returns a number that the topic
        does not have, `send` raises PartitionerError. It must not block, because AsyncProducer calls it on the event
        loop."""
        raise NotImplementedError

    def close(self) -> None:
        """Called once, after the producer has closed. It runs on the producer's event loop, so it must be quick. An
        exception is logged."""


PartitionFunction = Callable[[str, Any, Any, Sequence[PartitionInfo]], int | None]
"""A function with the arguments and the result of `Partitioner.partition`."""


class SendQueue(Protocol):
    """What a built-in partitioner sees of the records that wait to be sent to a partition."""

    @property
    def open(self) -> object | None:
        """The batch that takes records, or None."""

    @property
    def in_flight(self) -> Sequence[object]:
        """The batches that were sent and are not acknowledged yet."""


class BuiltInPartitioner(Protocol):
    """Selects partitions of one topic."""

    def update(self, queues: Sequence[SendQueue], preferred: Sequence[int]) -> None:
        """Sets the queues of the topic's partitions, at least one, and the numbers of the `preferred` ones. These have
        a live leader, in the client's rack if the client asked for that. There may be none."""

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        """Returns the partition of the next record, whose size in its batch is `size_bytes`."""


def murmur2(data: bytes) -> int:
    """Returns the murmur2 hash of the data, unsigned (Kafka's `Utils.murmur2`)."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


@functools.lru_cache(maxsize=16_384)
def _hash_of_short_key(key: bytes) -> int:
    """Returns the hash of a key, from a cache: keys repeat, and a look-up costs a tenth of hashing."""
    return murmur2(key) & _POSITIVE


_SHORT_KEY_BYTES: Final = 64


def key_partition(key: bytes, partition_count: int) -> int:
    """Returns the partition that Kafka's clients select for a key: `toPositive(murmur2(key)) % partition_count`."""
    if len(key) <= _SHORT_KEY_BYTES:
        return _hash_of_short_key(key) % partition_count
    return (murmur2(key) & _POSITIVE) % partition_count


STICKY_BYTES: Final = 16_384
"""The bytes of records without a key that one partition gets while an earlier batch of it is in flight."""


class DefaultPartitioner:
    """Selects by the key's hash. Records without a key (or all with `ignore_keys`) stay with a random partition for a
    while. The module's docstring says how long."""

    def __init__(self, *, ignore_keys: bool, rng: random.Random) -> None:
        self._ignore_keys = ignore_keys
        self._rng = rng
        self._queues: Sequence[SendQueue] = ()
        self._preferred: Sequence[int] = ()
        self._current = -1
        """The partition of records without a key, or -1 to select one."""
        self._batch: object | None = None
        """The batch of the current partition that takes records, or None if the first record has to open one."""
        self._bytes_left = 0

    def update(self, queues: Sequence[SendQueue], preferred: Sequence[int]) -> None:
        self._queues = queues
        self._preferred = preferred or range(len(queues))
        if self._current not in self._preferred:
            self._current = -1

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        if key is not None and not self._ignore_keys:
            return key_partition(key, len(self._queues))
        current = self._current
        if current >= 0:
            queue = self._queues[current]
            batch = queue.open
            self._bytes_left -= size_bytes
            if batch is not None and (batch is self._batch or self._batch is None):
                self._batch = batch
                if self._bytes_left >= 0 or not queue.in_flight:
                    return current
        current = self._current = self._rng.choice(self._preferred)
        self._batch = self._queues[current].open
        self._bytes_left = STICKY_BYTES - size_bytes
        return current


class RoundRobinPartitioner:
    """Sends every record to the next partition, whatever its key."""

    def __init__(self) -> None:
        self._preferred: Sequence[int] = (0,)
        self._next = 0

    def update(self, queues: Sequence[SendQueue], preferred: Sequence[int]) -> None:
        self._preferred = preferred or range(len(queues))

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        partition = self._preferred[self._next % len(self._preferred)]
        self._next += 1
        return partition


class RandomPartitioner:
    """Sends every record to a random partition, whatever its key."""

    def __init__(self, *, rng: random.Random) -> None:
        self._rng = rng
        self._preferred: Sequence[int] = (0,)

    def update(self, queues: Sequence[SendQueue], preferred: Sequence[int]) -> None:
        self._preferred = preferred or range(len(queues))

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        return self._rng.choice(self._preferred)


if core is not None and not TYPE_CHECKING:
    DefaultPartitioner = core.DefaultPartitioner
