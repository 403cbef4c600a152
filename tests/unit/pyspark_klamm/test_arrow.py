"""Tests Arrow columns from record batches against the records decoded one by one."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from klamm.consumer import BatchTooLargeError
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicPartition
from klamm.records import (
    HEADER_SIZE_BYTES,
    CompressionType,
    CorruptBatchError,
    decode_batch,
    encode_batch,
    end_transaction_marker,
    iter_headers,
)
from klamm.records.control import ControlRecordType
from pyspark_klamm.arrow import ROWS_MAX, ArrowBuilder
from pyspark_klamm.cluster_access import FetchedBatches
from pyspark_klamm.offsets import OffsetRange
from pyspark_klamm.schema import arrow_schema

InvalidTimestampError = EXCEPTIONS[ErrorCode.INVALID_TIMESTAMP]

TP = TopicPartition("flights", 3)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

contents = st.one_of(st.none(), st.binary(max_size=20))
headers = st.lists(st.tuples(st.text(max_size=4), contents), max_size=2)
records = st.lists(st.tuples(st.integers(0, 2**41), contents, contents, headers), min_size=1, max_size=12)


def log_of(batches: list[list], compression: CompressionType) -> memoryview:
    log, offset = b"", 0
    for batch in batches:
        log += encode_batch(batch, base_offset=offset, compression=compression)
        offset += len(batch)
    return memoryview(log)


def rows_of(log: memoryview, wanted: OffsetRange) -> list[dict]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "flights",
            "partition": 3,
            "offset": record.offset,
            "timestamp": datetime.datetime.fromtimestamp(0, datetime.UTC)
            + datetime.timedelta(milliseconds=record.timestamp_ms),
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for position, _ in iter_headers(log)
        for record in decode_batch(log, position)
        if wanted.start_offset <= record.offset < wanted.end_offset
    ]


def read(
    log: memoryview,
    wanted: OffsetRange,
    columns: tuple[str, ...] = COLUMNS,
    aborted: tuple = (),
    *,
    check_crcs: bool = True,
) -> list[pa.RecordBatch]:
    builder = ArrowBuilder(columns)
    fetches = [
        FetchedBatches(
            records=log,
            start_offset=wanted.start_offset,
            next_offset=wanted.end_offset,
            aborted_transactions=aborted,
        )
    ]
    return [*builder.rows(wanted, fetches, check_crcs=check_crcs), *builder.finish()]


@settings(max_examples=60, deadline=None)
@given(st.lists(records, min_size=1, max_size=4), st.sampled_from(CompressionType), st.data())
def test_rows_are_the_decoded_records_of_the_range(batches, compression, data):
    log = log_of(batches, compression)
    count = sum(map(len, batches))
    start = data.draw(st.integers(0, count - 1))
    wanted = OffsetRange(tp=TP, start_offset=start, end_offset=data.draw(st.integers(start + 1, count)))
    read_batches = read(log, wanted)
    assert [row for batch in read_batches for row in batch.to_pylist()] == rows_of(log, wanted)
    assert all(batch.schema == arrow_schema(COLUMNS) for batch in read_batches)


def test_a_batch_that_is_too_large_when_decompressed_is_named_with_the_setting() -> None:
    log = log_of([[(1, b"k", b"v", ())], [(1, b"k", bytes(10_000), ())]], CompressionType.ZSTD)
    fetches = [FetchedBatches(records=log, start_offset=0, next_offset=2, aborted_transactions=())]
    rows = ArrowBuilder(COLUMNS).rows(
        OffsetRange(tp=TP, start_offset=0, end_offset=2), fetches, check_crcs=True, max_decompressed_bytes=10_000
    )
    with pytest.raises(BatchTooLargeError, match=r"flights-3 at offset 1 .* max\.decompressed\.batch\.bytes=10000"):
        list(rows)


@settings(max_examples=150, deadline=None)
@given(records, st.data())
def test_damaged_records_are_refused_or_read_as_the_decoder_reads_them(batch, data):
    log = bytearray(encode_batch(batch))
    for _ in range(data.draw(st.integers(1, 3))):
        log[data.draw(st.integers(HEADER_SIZE_BYTES, len(log) - 1))] = data.draw(st.integers(0, 255))
    # Damaged offsets may be anywhere.
    everything, columns = OffsetRange(tp=TP, start_offset=-(2**40), end_offset=2**40), ("key", "value", "headers")
    try:
        decoded = decode_batch(log, check_crc=False)
    except CorruptBatchError as error:
        assume("timestamps" not in str(error))  # not read here
        with pytest.raises(CorruptBatchError):
            read(memoryview(log), everything, columns, check_crcs=False)
        return
    rows = [row for made in read(memoryview(log), everything, columns, check_crcs=False) for row in made.to_pylist()]
    assert [(row["key"], row["value"]) for row in rows] == [(record.key, record.value) for record in decoded]


def test_only_the_requested_columns_are_made():
    log = log_of([[(5, b"k", b"v", ())]], CompressionType.NONE)
    (batch,) = read(log, OffsetRange(tp=TP, start_offset=0, end_offset=1), ("offset", "value"))
    assert batch.to_pylist() == [{"offset": 0, "value": b"v"}]


MS_MIN, MS_MAX = -(2**63 // 1000), (2**63 - 1) // 1000
"""The first and the last time that Spark's timestamps can hold, which are 64 bits of microseconds."""


@pytest.mark.parametrize("timestamp_ms", [MS_MIN, -1, 0, MS_MAX])
def test_a_time_that_fits_sparks_timestamps_is_read(timestamp_ms):
    log = log_of([[(timestamp_ms, None, b"v", ())]], CompressionType.NONE)
    (batch,) = read(log, OffsetRange(tp=TP, start_offset=0, end_offset=1), ("timestamp",))
    assert batch.column(0).cast(pa.int64()).to_pylist() == [timestamp_ms * 1000]


@pytest.mark.parametrize("timestamp_ms", [MS_MIN - 1, -(2**63 - 1), MS_MAX + 1, 1_700_000_000_000_000_000, 2**63 - 1])
def test_a_time_beyond_sparks_timestamps_is_refused_with_its_offset(timestamp_ms):
    log = log_of([[(1, None, b"v", ())], [(0, None, b"v", ()), (timestamp_ms, None, b"v", ())]], CompressionType.NONE)
    wanted = OffsetRange(tp=TP, start_offset=0, end_offset=3)
    with pytest.raises(InvalidTimestampError, match=f"flights-3 at offset 2 has the timestamp {timestamp_ms} ms"):
        read(log, wanted, ("value", "timestamp"))
    (batch,) = read(log, wanted, ("value",))
    assert batch.num_rows == 3


def test_control_batches_are_no_rows():
    marker = end_transaction_marker(
        ControlRecordType.COMMIT, base_offset=1, producer_id=1, producer_epoch=0, timestamp_ms=0, coordinator_epoch=0
    )
    log = memoryview(encode_batch([(0, None, b"v", ())]) + bytes(marker))
    (batch,) = read(log, OffsetRange(tp=TP, start_offset=0, end_offset=2), ("value",))
    assert batch.to_pylist() == [{"value": b"v"}]


def test_aborted_transactions_are_no_rows():
    def batch(offset: int, value: bytes, producer_id: int) -> bytes:
        return encode_batch([(0, None, value, ())], base_offset=offset, producer_id=producer_id, is_transactional=True)

    marker = end_transaction_marker(
        ControlRecordType.ABORT, base_offset=2, producer_id=1, producer_epoch=0, timestamp_ms=0, coordinator_epoch=0
    )
    log = memoryview(batch(0, b"undone", 1) + batch(1, b"kept", 2) + bytes(marker) + batch(3, b"again", 1))
    wanted = OffsetRange(tp=TP, start_offset=0, end_offset=4)
    (rows,) = read(log, wanted, ("value",), aborted=((1, 0),))
    assert rows.to_pylist() == [{"value": b"kept"}, {"value": b"again"}]


def test_many_small_batches_become_few_large_ones():
    log = log_of([[(0, None, b"v", ())] * 100] * 450, CompressionType.NONE)
    sizes = [batch.num_rows for batch in read(log, OffsetRange(tp=TP, start_offset=0, end_offset=45_000))]
    assert sum(sizes) == 45_000
    assert max(sizes) <= ROWS_MAX
    assert len(sizes) == 3


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_has_a_type(column):
    assert arrow_schema((column,)).names == [column]
