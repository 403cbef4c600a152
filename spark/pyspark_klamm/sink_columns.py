"""Reads a sink's columns: the topic and partition of each row, and its record. Pure.

Types are checked when a query starts. This module refuses values that no record can have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from klamm.arrow.key_partitions import place_by_key
from klamm.arrow.record_packing import NO_PARTITION, Int64s, Rows
from klamm.arrow.sent_columns import bytes_of, headers_of, partitions_of
from klamm.errors import ConfigError
from klamm.records.header import NO_TIMESTAMP


def rows(
    columns: Mapping[str, pa.Array],
    topic: str | None,
    *,
    now_ms: int,
    partition_count: Callable[[str], int] | None,
) -> Rows:
    """Returns the rows of the sink's columns, among which `value` is always present.

    `topic` is the topic of all rows, even if there is a column `topic`. `partition_count` returns the number of a
    topic's partitions. It is None if keys do not decide about the partition. Raises ConfigError for a null topic, a
    negative partition, a timestamp before 1970 or a header without a name."""
    count = len(columns["value"])
    topics, topic_numbers = _topics(columns, topic)
    keys = bytes_of(columns["key"]) if "key" in columns else pa.nulls(count, pa.binary())
    try:
        headers = headers_of(columns["headers"]) if "headers" in columns else None
        partitions = (
            partitions_of(columns["partition"]) if "partition" in columns else np.full(count, NO_PARTITION, np.int64)
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if partition_count is not None:
        _place_by_key(partitions, keys, topics, topic_numbers, partition_count)
    return Rows(
        topics=topics,
        topic_numbers=topic_numbers,
        partitions=partitions,
        keys=keys,
        values=bytes_of(columns["value"]),
        headers=headers,
        timestamps_ms=_timestamps_ms(columns["timestamp"], now_ms)
        if "timestamp" in columns
        else np.full(count, now_ms),
    )


def _topics(columns: Mapping[str, pa.Array], topic: str | None) -> tuple[tuple[str, ...], Int64s]:
    """Returns the names of the topics, and the index of each row's topic among them."""
    if topic is not None:
        return (topic,), np.zeros(len(columns["value"]), np.int64)
    column = columns["topic"]
    if column.null_count:
        raise ConfigError("a row has a null topic: set the option 'topic' or fill the column")
    encoded = column.dictionary_encode()
    return tuple(encoded.dictionary.to_pylist()), encoded.indices.to_numpy().astype(np.int64)


def _place_by_key(
    partitions: Int64s,
    keys: pa.Array,
    topics: tuple[str, ...],
    topic_numbers: Int64s,
    partition_count: Callable[[str], int],
) -> None:
    """Sets the partitions of rows that have a key and no partition."""
    if len(topics) == 1:
        if keys.null_count < len(keys) and np.any(partitions == NO_PARTITION):
            place_by_key(partitions, keys, partition_count(topics[0]))
        return
    has_key = keys.is_valid().to_numpy(zero_copy_only=False)
    open_rows = np.flatnonzero(has_key & (partitions == NO_PARTITION))
    for number in np.unique(topic_numbers[open_rows]).tolist():
        rows = open_rows[topic_numbers[open_rows] == number]
        of_topic = np.full(len(rows), NO_PARTITION, np.int64)
        place_by_key(of_topic, keys.take(pa.array(rows)), partition_count(topics[number]))
        partitions[rows] = of_topic


def _timestamps_ms(column: pa.Array, now_ms: int) -> Int64s:
    """Returns the timestamps in ms, from Spark's microseconds. Null becomes `now_ms`.

    NO_TIMESTAMP is accepted, because the source shows it as a time, and a copy of a topic should have it again."""
    microseconds = column.cast(pa.int64()).fill_null(now_ms * 1000)
    timestamps_ms = np.array(microseconds.to_numpy(zero_copy_only=False), np.int64) // 1000
    if (earliest_ms := int(timestamps_ms.min(initial=0))) < NO_TIMESTAMP:
        raise ConfigError(f"a row has the timestamp {earliest_ms} ms; expected 1970 or later, or null")
    return timestamps_ms
