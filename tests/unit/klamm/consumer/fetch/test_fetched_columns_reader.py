"""Tests the columns of fetched batches against the records that a poll returns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.consumer.errors import BatchTooLargeError, CorruptRecordError
from klamm.consumer.fetch import fetched_columns_reader
from klamm.consumer.fetch.column_request import NO_LIMIT, ColumnRequest
from klamm.consumer.fetch.fetch_buffer import FetchedData, last_header
from klamm.consumer.fetch.fetched_columns_reader import FetchedColumnsReader
from klamm.consumer.fetch.fetched_data_reader import FetchedDataReader, ReaderConfig
from klamm.consumer.fetch.record_drain import RecordDrain
from klamm.consumer.subscription import SubscriptionState
from klamm.model import TopicPartition
from klamm.records import CompressionType, ControlRecordType, encode_batch, end_transaction_marker

TP = TopicPartition("orders", 3)
ALL = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "timestamp_type", "leader_epoch")

contents = st.none() | st.binary(max_size=6)
rows = st.tuples(
    st.integers(0, 2**41), contents, contents, st.lists(st.tuples(st.text(max_size=2), contents), max_size=2)
)


@st.composite
def logs(draw: Any) -> list[bytes]:
    """Batches of two producers with transactions, markers and the gaps of compaction, compressed or not."""
    offset, batches = draw(st.integers(0, 5)), []
    for _ in range(draw(st.integers(1, 6))):
        producer_id = draw(st.integers(1, 2))
        epoch = draw(st.integers(0, 3))
        if draw(st.integers(0, 3)) == 0:
            marker = end_transaction_marker(
                draw(st.sampled_from([ControlRecordType.ABORT, ControlRecordType.COMMIT])),
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=0,
                timestamp_ms=0,
                coordinator_epoch=0,
            )
            batches.append(bytes(marker))
            offset += 1
            continue
        records = draw(st.lists(rows, max_size=4))
        deltas = sorted(draw(st.sets(st.integers(0, 6), min_size=len(records), max_size=len(records))))
        last = max(deltas, default=0) + draw(st.integers(0, 2))
        batches.append(
            encode_batch(
                records,
                base_offset=offset,
                offset_deltas=deltas,
                last_offset_delta=last,
                partition_leader_epoch=epoch,
                compression=draw(st.sampled_from(CompressionType)),
                producer_id=producer_id,
                is_transactional=draw(st.booleans()),
            )
        )
        offset += last + 1
    return batches


def fetched(batches: bytes, fetch_offset: int = 0, aborted: Any = (), position_epoch: int = 1) -> FetchedData:
    view = memoryview(batches)
    header = last_header(view)
    return FetchedData(
        tp=TP,
        position_epoch=position_epoch,
        fetch_offset=fetch_offset,
        batches=view,
        next_offset=header.next_offset,
        leader_epoch=header.partition_leader_epoch,
        aborted_transactions=aborted,
    )


def request(columns: Any = ALL, max_records: int = NO_LIMIT, end_offset: int | None = None) -> ColumnRequest:
    ends = {} if end_offset is None else {TP: end_offset}
    return ColumnRequest(columns=columns, max_records=max_records, end_offsets=ends)


def tuples(batch: pa.RecordBatch) -> list[tuple]:
    """Returns the rows of a batch with all columns as tuples of a record's fields."""
    assert batch.schema.names == list(ALL)
    batch.validate(full=True)
    columns = [batch.column(name) for name in ALL]
    columns[3] = columns[3].cast(pa.int64())
    made = zip(*(column.to_pylist() for column in columns), strict=True)
    return [(*row[:6], tuple((pair["key"], pair["value"]) for pair in row[6]), *row[7:]) for row in made]


def read_all(read: Any) -> tuple[list[tuple], str]:
    """Returns all records, and the error after them."""
    records: list[tuple] = []
    while True:
        try:
            some = read()
        except (CorruptRecordError, BatchTooLargeError) as error:
            return records, f"{error!r} {error.__cause__!r}"
        if not some:
            return records, ""
        records += some


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets portions and batches of Arrow end after a few bytes."""
    monkeypatch.setattr(fetched_columns_reader, "_PORTION_BYTES", 60)
    monkeypatch.setattr(fetched_columns_reader, "_BYTES_MAX", 150)


@settings(max_examples=300, deadline=None)
@given(logs(), st.booleans(), st.integers(0, 12), st.integers(1, 9), st.data())
def test_a_poll_for_columns_returns_what_a_poll_for_records_does(
    batches: list[bytes], read_committed: bool, fetch_offset: int, at_once: int, data: Any
) -> None:
    log = bytearray(b"".join(batches))
    for _ in range(data.draw(st.integers(0, 2))):
        start = len(log) - len(batches[-1]) + 17
        log[data.draw(st.integers(start, len(log) - 1))] = data.draw(st.integers(0, 255))
    config = ReaderConfig(
        read_committed=read_committed, check_crcs=data.draw(st.booleans()), max_decompressed_bytes=1_000
    )
    aborted = data.draw(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 20)), max_size=3))
    found = fetched(bytes(log), fetch_offset, tuple(aborted))
    records = FetchedDataReader(found, config)
    columns = FetchedColumnsReader(found, config, request(), fetch_offset)

    def read_columns() -> list[tuple] | None:
        batch = columns.read(at_once)
        assert batch is None or 0 < batch.num_rows <= at_once
        return None if batch is None else tuples(batch)

    expected = read_all(lambda: [tuple(record) for record in records.read(at_once)])
    assert read_all(read_columns) == expected
    assert columns.next_offset == records.next_offset
    assert columns.exhausted == records.exhausted
    if columns.exhausted:
        assert columns.leader_epoch == records.leader_epoch


@settings(max_examples=150, deadline=None)
@given(logs(), st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.booleans()), min_size=1), st.booleans())
def test_polls_for_records_and_for_columns_may_alternate(
    batches: list[bytes], polls: list[tuple[bool, int, bool]], read_committed: bool
) -> None:
    subscription = SubscriptionState()
    subscription.assign([TP])
    state = subscription.require(TP)
    state.seek(0)
    config = ReaderConfig(read_committed=read_committed)
    found = fetched(b"".join(batches), aborted=((1, 0),), position_epoch=state.position_epoch)
    reader = FetchedDataReader(found, config)
    expected, _ = read_all(lambda: [tuple(record) for record in reader.read(100)])
    drain = RecordDrain(subscription, config)
    drain.load([found])
    seen: list[tuple] = []
    positions = [0]
    for is_columns, count, has_few in [*polls, *[(True, 100, False)] * 50]:
        if is_columns:
            names = ("offset",) if has_few else ALL
            polled = drain.read_columns(request(names, count))
            if polled is not None:
                assert polled.tp == TP
                assert polled.position == positions[-1]
                if has_few:
                    offsets = polled.rows.column(0).to_pylist()
                    seen += [record for record in expected if record[2] in offsets]
                    assert len(offsets) == polled.rows.num_rows
                else:
                    seen += tuples(polled.rows)
        else:
            seen += [tuple(record) for each in drain.read(count).values() for record in each]
        positions.append(state.position)
    assert seen == expected
    assert positions == sorted(positions)
    assert state.position == max(found.next_offset, 0)
    assert drain.records_total == len(expected)
    assert [each.tp for each in drain.finished()] == [TP]


def test_reading_stops_at_an_end_offset() -> None:
    log = b"".join(encode_batch([(0, None, b"%d" % at, ()), (0, None, b"x", ())], base_offset=at) for at in (0, 2, 4))
    reader = FetchedColumnsReader(fetched(log), ReaderConfig(), request(("offset",), end_offset=3), 0)
    found = []
    while (batch := reader.read(100)) is not None:
        found += batch.column(0).to_pylist()
    assert found == [0, 1, 2]
    assert reader.next_offset == 6


def test_columns_come_in_the_order_of_the_request() -> None:
    reader = FetchedColumnsReader(
        fetched(encode_batch([(7, b"k", b"v", ())], base_offset=4)),
        ReaderConfig(),
        request(("value", "topic", "key")),
        4,
    )
    batch = reader.read(1)
    assert batch.schema.names == ["value", "topic", "key"]
    assert batch.to_pylist() == [{"value": b"v", "topic": "orders", "key": b"k"}]


def test_a_batch_that_is_too_large_follows_the_rows_before_it() -> None:
    log = encode_batch([(0, None, b"a", ())]) + encode_batch(
        [(0, None, bytes(500), ())], base_offset=1, compression=CompressionType.GZIP
    )
    reader = FetchedColumnsReader(fetched(log), ReaderConfig(max_decompressed_bytes=100), request(("value",)), 0)
    assert reader.read(10).to_pylist() == [{"value": b"a"}]
    for _ in range(2):
        with pytest.raises(BatchTooLargeError, match="at offset 1 is too large"):
            reader.read(10)
    assert not reader.exhausted
