"""Tests how compaction reads and writes batches: against the codec, and for any bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.records import (
    CompressionType,
    CorruptBatchError,
    InvalidRecordError,
    decode_batch,
    encode_batch,
    read_header,
    read_keys,
    retain_header,
    retain_records,
    set_log_append_time,
    validate_batch,
)

CONTENTS = st.none() | st.binary(max_size=3) | st.binary(min_size=60, max_size=140)
HEADERS = st.lists(st.tuples(st.text(max_size=3), CONTENTS), max_size=2)
RECORDS = st.lists(
    st.tuples(st.integers(0, 2**40) | st.integers(10**12, 10**12 + 300), CONTENTS, CONTENTS, HEADERS.map(tuple)),
    min_size=1,
    max_size=12,
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Draws any batch that a log may hold, including compacted ones."""
    records = draw(RECORDS)
    deltas = sorted(draw(st.sets(st.integers(0, 20_000), min_size=len(records), max_size=len(records))))
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        fields = {"producer_id": 2**40, "producer_epoch": 3, "base_sequence": 2**31 - 5}
    return encode_batch(
        records,
        base_offset=draw(st.integers(0, 2**40)),
        partition_leader_epoch=draw(st.integers(0, 9)),
        compression=draw(st.sampled_from(CompressionType)),
        offset_deltas=deltas,
        last_offset_delta=deltas[-1] + draw(st.integers(0, 5)),
        **fields,
    )


@given(batches())
def test_read_keys_equals_the_decoded_records(batch: bytes) -> None:
    header, records = read_header(batch), decode_batch(batch)
    found = read_keys(batch, header)
    assert found.keys == [record.key for record in records]
    assert [header.base_offset + delta for delta in found.offset_deltas] == [record.offset for record in records]
    assert [header.base_timestamp_ms + delta for delta in found.timestamp_deltas] == [r.timestamp_ms for r in records]
    assert [found.is_tombstone(index) for index in range(len(records))] == [r.value is None for r in records]
    assert found.starts[0] == 0
    assert found.starts[-1] == len(found.data)


@pytest.mark.parametrize("key", [b"key-%03d", None])
@pytest.mark.parametrize("value", [b"v" * 20, None])
def test_keys_of_long_runs_of_equal_sized_records_are_read_and_retained(key: bytes | None, value: bytes | None) -> None:
    sizes = [0] * 70 + [5] * 3 + [0] * 200
    rows = [(1_000 + n, key and key % n, value and value + b"x" * size, ()) for n, size in enumerate(sizes)]
    batch = encode_batch(rows)
    header, records = read_header(batch), decode_batch(batch)
    found = read_keys(batch, header)
    assert found.keys == [record.key for record in records]
    assert found.offset_deltas == list(range(len(rows)))
    assert [found.is_tombstone(index) for index in range(len(rows))] == [value is None] * len(rows)
    every_third = range(0, len(rows), 3)
    assert decode_batch(retain_records(header, found, every_third)) == records[::3]
    marked = retain_records(header, found, every_third, delete_horizon_ms=77)
    assert decode_batch(marked) == records[::3]


@given(batches(), st.data(), st.booleans())
def test_retained_records_are_unchanged(batch: bytes, data: st.DataObject, append_time: bool) -> None:
    if append_time:
        stamped = bytearray(batch)
        set_log_append_time(stamped, 123_456)
        batch = bytes(stamped)
    header, records = read_header(batch), decode_batch(batch)
    indexes = data.draw(st.lists(st.sampled_from(range(len(records))), unique=True, min_size=1).map(sorted))
    horizon_ms = data.draw(st.none() | st.integers(0, 2**63 - 1))
    retained = retain_records(header, read_keys(batch, header), indexes, delete_horizon_ms=horizon_ms)
    found = validate_batch(retained, allow_gaps=True)
    assert decode_batch(retained) == [records[index] for index in indexes]
    assert found.delete_horizon_ms == horizon_ms
    assert found.max_timestamp_ms == max(records[index].timestamp_ms for index in indexes)
    assert found[:1] + found[2:4] == header[:1] + header[2:4], "base offset, leader epoch, magic"
    assert found.last_offset == header.last_offset
    assert found[9:12] == header[9:12], "producer id, epoch and sequence"
    assert (found.compression, found.timestamp_type) == (header.compression, header.timestamp_type)
    again = retain_records(found, read_keys(retained, found), [0])
    assert read_header(again).delete_horizon_ms == horizon_ms, "it is set once"
    assert decode_batch(again) == [records[indexes[0]]]


@given(batches())
def test_an_emptied_batch_keeps_offsets_and_sequences(batch: bytes) -> None:
    header = read_header(batch)
    emptied = retain_header(header)
    found = validate_batch(emptied, allow_gaps=True)
    assert (len(emptied), decode_batch(emptied), found.record_count) == (61, [], 0)
    assert (found.base_offset, found.last_offset) == (header.base_offset, header.last_offset)
    assert (found.producer_id, found.producer_epoch) == (header.producer_id, header.producer_epoch)
    assert (found.base_sequence, found.last_sequence) == (header.base_sequence, header.last_sequence)
    assert (found.max_timestamp_ms, found.compression) == (header.max_timestamp_ms, CompressionType.NONE)
    assert read_keys(emptied, found).keys == []


@given(RECORDS, st.data())
def test_a_damaged_batch_is_refused_or_retained_with_the_same_bytes(records: list[Any], data: st.DataObject) -> None:
    """The test changes any byte after the header, like a producer that computes a checksum over garbage."""
    batch = bytearray(encode_batch(records))
    position = data.draw(st.integers(61, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    header = read_header(batch)
    try:
        found = read_keys(bytes(batch), header)
    except CorruptBatchError:
        return
    assert len(found.keys) == len(found.offset_deltas) == len(found.key_ends) == header.record_count
    everything = retain_records(header, found, range(header.record_count))
    assert everything[61:] == batch[61:]


@pytest.mark.parametrize("deltas", [[1, 0], [0, 0], [0, 5]])
def test_offset_deltas_that_do_not_fit_the_batch_are_refused(deltas: list[int]) -> None:
    rows = [(1, b"k", b"v", ())] * 2
    batch = bytearray(encode_batch(rows, offset_deltas=deltas, last_offset_delta=1))
    with pytest.raises(InvalidRecordError, match="offset deltas"):
        read_keys(batch, read_header(batch))
