"""Tests batches against two codecs by other authors: aiokafka's (Cython) and kafka-python's (Python)."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pyarrow
import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER
from aiokafka.record.control_record import ControlRecord as AiokafkaControlRecord
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.records import (
    HEADER_SIZE_BYTES,
    CompressionType,
    ControlRecordType,
    RawRecord,
    TimestampType,
    decode_batch,
    encode_batch,
    end_transaction_marker,
    read_header,
    set_log_append_time,
    validate_batch,
    validate_records,
)
from tests.support import seeds

with warnings.catch_warnings():
    # Importing this library already uses a deprecated function of importlib.resources.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

EXAMPLES = seeds.examples(300)
BUILDERS: list[type[Any]] = [AiokafkaBuilder, KafkaPythonBuilder]
READERS: list[type[Any]] = [AiokafkaRecords, KafkaPythonRecords]
# kafka-python has no library for the other three codecs, so aiokafka and pyarrow check those.
READ_BY = {
    AiokafkaRecords: list(CompressionType),
    KafkaPythonRecords: [CompressionType.NONE, CompressionType.GZIP],
}

nullable_bytes = st.none() | st.binary(max_size=200)
header_names = st.text(st.characters(codec="utf-8"), max_size=20)
timestamps_ms = st.integers(min_value=0, max_value=2**42)
irregular_records = st.lists(
    st.tuples(
        timestamps_ms,
        nullable_bytes,
        nullable_bytes,
        st.lists(st.tuples(header_names, nullable_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=30,
)


@st.composite
def regular_records(draw: st.DrawFn) -> list[RawRecord]:
    """Draws long runs of records of one size with a few others in between, as real producers send them."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    # No producer sends negative times, and aiokafka's builder uses -1 for "not set yet".
    timestamp_ms = 1000 + draw(timestamps_ms)
    records: list[RawRecord] = []
    for _ in range(draw(st.integers(1, 4))):
        key_size = draw(st.none() | st.sampled_from([0, 8, 64, 200]))
        value_size = draw(st.none() | st.sampled_from([0, 1, 63, 64, 100, 300]))
        step_ms = draw(st.sampled_from([-1, 0, 1, 40, 5000, 10**7, 10**10, 2**50]))
        for _ in range(draw(st.sampled_from([1, 3, 17, 70, 150]))):
            timestamp_ms += rng.choice((0, step_ms))
            key = None if key_size is None else rng.randbytes(key_size)
            value = None if value_size is None else rng.randbytes(value_size)
            records.append((timestamp_ms, key, value, ()))
    return records


records_lists = irregular_records | regular_records()
producer_fields = st.fixed_dictionaries(
    {
        "producer_id": st.integers(0, 2**63 - 1),
        "producer_epoch": st.integers(0, 2**15 - 1),
        "base_sequence": st.integers(0, 2**31 - 1),
        "is_transactional": st.booleans(),
    }
) | st.just({"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "is_transactional": False})


def encode_elsewhere(
    builder_type: type[Any],
    records: list[RawRecord],
    compression: CompressionType = CompressionType.NONE,
    **fields: Any,
) -> bytes:
    producer = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "is_transactional": False, **fields}
    builder = builder_type(magic=2, compression_type=int(compression), batch_size=1 << 24, **producer)
    for offset, (timestamp_ms, key, value, headers) in enumerate(records):
        builder.append(offset, timestamp=timestamp_ms, key=key, value=value, headers=list(headers))
    return bytes(builder.build())


def decode_elsewhere(reader_type: type[Any], batch: bytes) -> tuple[Any, list[tuple[Any, ...]]]:
    reader = reader_type(batch)
    opened = reader.next_batch()
    assert opened.validate_crc()
    rows = [(each.offset, each.timestamp, each.key, each.value, tuple(map(tuple, each.headers))) for each in opened]
    assert reader.next_batch() is None
    return opened, rows


def expected_rows(records: list[RawRecord], base_offset: int = 0) -> list[tuple[Any, ...]]:
    return [
        (base_offset + index, timestamp_ms, key, value, tuple(headers))
        for index, (timestamp_ms, key, value, headers) in enumerate(records)
    ]


@pytest.mark.parametrize("builder_type", BUILDERS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(records=records_lists, fields=producer_fields)
def test_uncompressed_batches_equal_those_of_other_codecs_byte_for_byte(
    builder_type: type[Any], records: list[RawRecord], fields: dict[str, Any]
) -> None:
    theirs = encode_elsewhere(builder_type, records, **fields)
    ours = encode_batch(records, partition_leader_epoch=read_header(theirs).partition_leader_epoch, **fields)
    assert ours == theirs


@pytest.mark.parametrize("compression", CompressionType)
@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(records=records_lists, fields=producer_fields, base_offset=st.integers(0, 2**62))
def test_other_codecs_read_our_batches(
    compression: CompressionType, records: list[RawRecord], fields: dict[str, Any], base_offset: int
) -> None:
    batch = encode_batch(records, compression=compression, base_offset=base_offset, **fields)
    for reader_type in READERS:
        if compression not in READ_BY[reader_type]:
            continue
        opened, rows = decode_elsewhere(reader_type, batch)
        assert rows == expected_rows(records, base_offset)
        assert opened.is_transactional == fields["is_transactional"]
        assert opened.compression_type == compression
        assert opened.next_offset == read_header(batch).next_offset
        for name in ("producer_id", "producer_epoch", "base_sequence"):
            assert getattr(opened, name) == fields[name]


@pytest.mark.parametrize(
    ("builder_type", "compression"),
    [(AiokafkaBuilder, compression) for compression in CompressionType]
    + [(KafkaPythonBuilder, CompressionType.NONE), (KafkaPythonBuilder, CompressionType.GZIP)],
)
@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(records=records_lists, fields=producer_fields)
def test_we_read_batches_of_other_codecs(
    builder_type: type[Any], compression: CompressionType, records: list[RawRecord], fields: dict[str, Any]
) -> None:
    batch = encode_elsewhere(builder_type, records, compression, **fields)
    header = validate_records(batch)
    assert decode_batch(batch) == expected_rows(records)
    assert header.record_count == len(records)
    assert header.max_timestamp_ms == max(record[0] for record in records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (
        fields["producer_id"],
        fields["producer_epoch"],
        fields["base_sequence"],
        fields["is_transactional"],
    )


def decompress_with_arrow(compression: CompressionType, data: bytes, size: int) -> bytes:
    if compression is not CompressionType.SNAPPY:
        return bytes(pyarrow.decompress(data, size, codec=compression.config_name, asbytes=True))
    assert data[:16] == b"\x82SNAPPY\0" + b"\0\0\0\1" * 2
    pieces, at = [], 16
    while at < len(data):
        block = data[at + 4 : at + 4 + int.from_bytes(data[at : at + 4], "big")]
        at += 4 + len(block)
        pieces.append(pyarrow.decompress(block, min(32 * 1024, size), codec="snappy", asbytes=True))
        size -= len(pieces[-1])
    return b"".join(pieces)


@pytest.mark.parametrize("compression", [each for each in CompressionType if each])
@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(records=records_lists)
def test_compressed_records_decompress_to_the_uncompressed_records(
    compression: CompressionType, records: list[RawRecord]
) -> None:
    plain = encode_batch(records)
    compressed = encode_batch(records, compression=compression)
    section = plain[HEADER_SIZE_BYTES:]
    assert decompress_with_arrow(compression, compressed[HEADER_SIZE_BYTES:], len(section)) == section
    same = read_header(compressed)._replace(batch_length=0, crc=0, attributes=0)
    assert same == read_header(plain)._replace(batch_length=0, crc=0)


def test_lz4_blocks_are_independent() -> None:
    """Kafka's Java client refuses linked blocks (bit 5 of the frame's flags unset)."""
    batch = encode_batch([(0, None, bytes(300_000), ())], compression=CompressionType.LZ4)
    assert batch[HEADER_SIZE_BYTES : HEADER_SIZE_BYTES + 4] == b"\x04\x22\x4d\x18"
    assert batch[HEADER_SIZE_BYTES + 4] & 0x20


@pytest.mark.parametrize("reader_type", READERS)
@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(records=records_lists, append_time_ms=timestamps_ms)
def test_append_time_replaces_every_timestamp(
    reader_type: type[Any], records: list[RawRecord], append_time_ms: int
) -> None:
    batch = bytearray(encode_batch(records))
    set_log_append_time(batch, append_time_ms)
    opened, rows = decode_elsewhere(reader_type, bytes(batch))
    assert opened.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert {row[1] for row in rows} == {append_time_ms}
    assert decode_batch(batch) == rows
    assert validate_batch(batch).timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("reader_type", READERS)
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
def test_gaps_left_by_compaction_keep_their_offsets(reader_type: type[Any], compression: CompressionType) -> None:
    records: list[RawRecord] = [(5, b"a", b"1", ()), (6, b"b", None, ()), (9, b"c", b"3", ())]
    batch = encode_batch(
        records, base_offset=100, compression=compression, offset_deltas=[2, 70, 9000], last_offset_delta=9500
    )
    opened, rows = decode_elsewhere(reader_type, batch)
    assert [row[0] for row in rows] == [102, 170, 9100]
    assert opened.next_offset == 9601
    assert decode_batch(batch) == rows
    assert validate_batch(batch, allow_gaps=True).next_offset == 9601


@pytest.mark.parametrize(
    ("control_type", "theirs"), [(ControlRecordType.ABORT, ABORT_MARKER), (ControlRecordType.COMMIT, COMMIT_MARKER)]
)
def test_other_codecs_read_our_transaction_markers(
    control_type: ControlRecordType, theirs: AiokafkaControlRecord
) -> None:
    marker = end_transaction_marker(
        control_type, producer_id=9, producer_epoch=3, coordinator_epoch=4, timestamp_ms=77, base_offset=1000
    )
    for reader_type in READERS:
        opened, rows = decode_elsewhere(reader_type, marker)
        assert opened.is_control_batch
        assert opened.is_transactional
        assert (opened.producer_id, opened.producer_epoch, opened.base_sequence) == (9, 3, -1)
        assert [(row[0], row[1]) for row in rows] == [(1000, 77)]
        assert AiokafkaControlRecord.parse(rows[0][2]) == theirs
