"""Tests how the columns of a sink describe its rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from klamm.arrow.record_packing import NO_PARTITION
from klamm.errors import ConfigError
from klamm.partitioner import key_partition
from pyspark_klamm.sink_columns import rows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW_MS = 1_700_000_000_000


def rows_of(**columns):
    columns.setdefault("value", pa.array(["v"] * len(next(iter(columns.values())))))
    return rows(columns, "t", now_ms=NOW_MS, partition_count=None)


def test_strings_and_bytes_become_bytes_and_the_default_timestamp_is_now():
    made = rows_of(value=pa.array(["é", None]), key=pa.array([b"k", None], pa.binary()))
    assert made.values.to_pylist() == ["é".encode(), None]
    assert made.keys.to_pylist() == [b"k", None]
    assert made.timestamps_ms.tolist() == [NOW_MS, NOW_MS]


def test_the_option_overrides_the_column_topic():
    made = rows({"value": pa.array(["v"]), "topic": pa.array(["u"])}, "t", now_ms=NOW_MS, partition_count=None)
    assert made.topics == ("t",)


def test_a_row_without_a_partition_gets_the_partition_of_its_key():
    columns = {
        "topic": pa.array(["t", "u", "u", "t"]),
        "key": pa.array(["a", "a", "a", None]),
        "partition": pa.array([None, None, 2, None], pa.int32()),
    }
    made = rows({"value": pa.array(["v"] * 4), **columns}, None, now_ms=NOW_MS, partition_count={"t": 3, "u": 5}.get)
    assert [made.topics[number] for number in made.topic_numbers] == ["t", "u", "u", "t"]
    assert made.partitions.tolist() == [key_partition(b"a", 3), key_partition(b"a", 5), 2, NO_PARTITION]


def test_keys_do_not_choose_the_partition_with_another_partitioner():
    made = rows_of(key=pa.array(["a", "b"]))
    assert made.partitions.tolist() == [NO_PARTITION, NO_PARTITION]


def test_headers_are_encoded_if_a_row_has_any():
    present = pa.array([[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None, []], HEADERS)
    made = rows_of(headers=present)
    assert made.headers.to_pylist() == [b"\x04\x02h\x021\x02n\x01", b"\0", b"\0"]
    assert rows_of(headers=pa.nulls(2, HEADERS)).headers is None


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"topic": pa.array(["t", None])}, "null topic"),
        ({"partition": pa.array([0, -1], pa.int32())}, "partition -1; expected 0 or more"),
        ({"timestamp": pa.array([0, -1_001], pa.timestamp("us", tz="UTC"))}, "timestamp -2 ms; expected 1970 or later"),
        ({"headers": pa.array([[{"key": None, "value": b"1"}]], HEADERS)}, "expected a key in every header"),
    ],
)
def test_a_value_that_no_record_can_have_is_named(columns, named):
    count = len(next(iter(columns.values())))
    with pytest.raises(ConfigError, match=named):
        rows(
            {"value": pa.array(["v"] * count), **columns},
            None if "topic" in columns else "t",
            now_ms=NOW_MS,
            partition_count=None,
        )


def test_a_row_has_its_own_timestamp_in_milliseconds_or_the_current_time():
    times = pa.array([1_359_633_600_123_456, None, -1], pa.timestamp("us", tz="UTC"))
    assert rows_of(timestamp=times).timestamps_ms.tolist() == [1_359_633_600_123, NOW_MS, -1]
