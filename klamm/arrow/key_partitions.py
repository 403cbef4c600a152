"""Computes the partitions of many keys at once, like `klamm.partitioner.key_partition`. In pure Python, numpy hashes
keys of one length together."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from klamm.arrow.record_packing import NO_PARTITION, compiled_column
from klamm.core import core
from klamm.partitioner import key_partition

Int64s = np.ndarray[Any, np.dtype[np.int64]]

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)
_TOGETHER_MIN: Final = 16
"""The number of keys of one length from which on it is faster to hash them together than one by one."""


def place_by_key(partitions: Int64s, keys: pa.Array, partition_count: int) -> None:
    """Sets the partitions of rows that have a key and NO_PARTITION."""
    if core is not None:
        if len(keys):
            core.place_by_key(compiled_column(keys), partitions, partition_count)
        return
    has_key = keys.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(has_key & (partitions == NO_PARTITION))
    partitions[rows] = _key_partitions(keys if len(rows) == len(keys) else keys.take(pa.array(rows)), partition_count)


def _key_partitions(keys: pa.Array, partition_count: int) -> Int64s:
    """Returns the partitions to which Kafka's clients send records with these keys.

    `keys` is a binary array without nulls."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    partitions = np.empty(len(keys), np.int64)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        if len(rows) < _TOGETHER_MIN:
            partitions[rows] = [key_partition(keys[row].as_py(), partition_count) for row in rows.tolist()]
        else:
            partitions[rows] = (_murmur2(data, starts[rows], length) & _POSITIVE) % np.uint32(partition_count)
    return partitions


def _murmur2(data: np.ndarray[Any, np.dtype[np.uint8]], starts: Int64s, length: int) -> Any:
    """Returns Kafka's `Utils.murmur2` of `length` bytes from each start, as uint32."""
    value = np.full(len(starts), _SEED ^ length, np.uint32)
    whole = length & ~3
    for position in range(0, whole, 4):
        word = _word(data, starts + position, 4) * _MULTIPLIER
        value = (value * _MULTIPLIER) ^ ((word ^ word >> np.uint32(24)) * _MULTIPLIER)
    if whole < length:
        value = (value ^ _word(data, starts + whole, length - whole)) * _MULTIPLIER
    value = (value ^ value >> np.uint32(13)) * _MULTIPLIER
    return value ^ value >> np.uint32(15)


def _word(data: np.ndarray[Any, np.dtype[np.uint8]], at: Int64s, width: int) -> Any:
    """Returns the little-endian number of `width` bytes at each position."""
    word = data[at].astype(np.uint32)
    for byte in range(1, width):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
