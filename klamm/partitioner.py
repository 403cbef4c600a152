"""Selects the partition of a record if its sender names none.

Pure; randomness is an argument. Each topic of each producer has one Partitioner. `update` sets the topic's partitions,
and `choose` selects one for each record. Keys hash as in Kafka's clients: murmur2 of the serialized key, modulo the
number of all partitions. So the same key goes to the same partition, no matter which client sends it. Records without a
key stay with one partition for `batch.size` bytes. This makes full batches, and over time an even distribution
(KIP-480, KIP-794)."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF

PartitionFunction = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""A user's partition function: `(key, all_partitions, available_partitions) -> partition`, as in kafka-python."""


class Partitioner(Protocol):
    """Selects partitions of one topic."""

    def update(self, partition_count: int, preferred: Sequence[int]) -> None:
        """Sets the topic's number of partitions, at least one, and the `preferred` ones. These have a live leader, in
        the client's rack if the client asked for that. There may be none."""

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


class DefaultPartitioner:
    """Selects by the key's hash. Records without a key (or all with `ignore_keys`) stay with a random partition for a
    while."""

    def __init__(self, *, sticky_bytes: int, ignore_keys: bool, rng: random.Random) -> None:
        self._sticky_bytes = sticky_bytes
        self._ignore_keys = ignore_keys
        self._rng = rng
        self._partition_count = 1
        self._preferred: Sequence[int] = ()
        self._current = 0
        self._bytes_left = -1

    def update(self, partition_count: int, preferred: Sequence[int]) -> None:
        self._partition_count = partition_count
        self._preferred = preferred or range(partition_count)
        if self._current not in self._preferred:
            self._bytes_left = -1

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        if key is not None and not self._ignore_keys:
            return key_partition(key, self._partition_count)
        bytes_left = self._bytes_left - size_bytes
        if bytes_left < 0:
            self._current = self._rng.choice(self._preferred)
            bytes_left = self._sticky_bytes - size_bytes
        self._bytes_left = bytes_left
        return self._current


class RoundRobinPartitioner:
    """Sends every record to the next partition, whatever its key."""

    def __init__(self) -> None:
        self._preferred: Sequence[int] = (0,)
        self._next = 0

    def update(self, partition_count: int, preferred: Sequence[int]) -> None:
        self._preferred = preferred or range(partition_count)

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        partition = self._preferred[self._next % len(self._preferred)]
        self._next += 1
        return partition


class RandomPartitioner:
    """Sends every record to a random partition, whatever its key."""

    def __init__(self, *, rng: random.Random) -> None:
        self._rng = rng
        self._preferred: Sequence[int] = (0,)

    def update(self, partition_count: int, preferred: Sequence[int]) -> None:
        self._preferred = preferred or range(partition_count)

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        return self._rng.choice(self._preferred)


class CustomPartitioner:
    """Selects the partition that a user's function returns. The producer checks that the partition exists."""

    def __init__(self, function: PartitionFunction) -> None:
        self._function = function
        self._all: Sequence[int] = (0,)
        self._preferred: Sequence[int] = (0,)

    def update(self, partition_count: int, preferred: Sequence[int]) -> None:
        self._all = range(partition_count)
        self._preferred = preferred

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        return self._function(key, self._all, self._preferred)
