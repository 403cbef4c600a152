"""Tests damaged batches: any bytes give either records or one of the package's own errors."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.errors import CorruptMessageError, ErrorCode, UnsupportedCompressionTypeError
from klamm.records import (
    HEADER_SIZE_BYTES,
    ChecksumMismatchError,
    CompressionType,
    CorruptBatchError,
    InvalidHeaderError,
    InvalidRecordError,
    RawRecord,
    TruncatedBatchError,
    UnsupportedCompressionError,
    UnsupportedMagicError,
    decode_batch,
    decode_contents,
    encode_batch,
    iter_headers,
    read_header,
    validate_batch,
    validate_records,
)
from klamm.records.header import read_whole
from tests.support import seeds


def contents(batch: bytes) -> list[tuple[bytes | None, bytes | None]]:
    """Returns keys and values of all records in the first batch."""
    return list(decode_contents(batch, 0, read_whole(batch, 0)))


READERS: list[Callable[[bytes], object]] = [decode_batch, contents, validate_batch, validate_records]
PARSERS: list[Callable[[bytes], object]] = [decode_batch, contents, validate_records]
MIXED: list[RawRecord] = [
    (1000, b"key", b"value" * 30, (("name", b"content"), ("empty", None))),
    (1003, None, b"", ()),
    (999, b"", None, (("", b""),)),
    (1000 + 2**40, b"k" * 100, b"v" * 70, ()),
]
REGULAR: list[RawRecord] = [(5000 + n, b"%08d" % n, bytes(range(20)), ()) for n in range(40)]

FIELDS = {  # name: (position, format)
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "partition_leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp_ms": (27, ">q"),
    "max_timestamp_ms": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}


def sealed(batch: bytes | bytearray) -> bytes:
    """Returns the batch with the checksum of its present bytes, as a hostile sender would compute it."""
    return bytes(batch[:17]) + struct.pack(">I", crc32c(bytes(batch[21:]))) + bytes(batch[21:])


def with_field(batch: bytes, name: str, value: int) -> bytes:
    position, form = FIELDS[name]
    changed = bytearray(batch)
    struct.pack_into(form, changed, position, value)
    return bytes(changed)


def batch_of(section: bytes, count: int) -> bytes:
    """Returns an uncompressed batch with a fitting checksum around hand-written records."""
    header = struct.pack(">qiibIhiqqqhii", 0, 49 + len(section), -1, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
    return sealed(header + section)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("compression", CompressionType)
def test_every_truncation_is_refused(reader: Callable[[bytes], object], compression: CompressionType) -> None:
    batch = encode_batch(MIXED, compression=compression)
    reader(batch)
    for size in range(len(batch)):
        with pytest.raises(TruncatedBatchError):
            reader(batch[:size])


def test_iterating_a_torn_log_yields_the_complete_batches_and_raises() -> None:
    batch = encode_batch(MIXED)
    for size in range(len(batch) + 1, 2 * len(batch)):
        walk = iter_headers((batch + batch)[:size])
        assert next(walk)[0] == 0
        with pytest.raises(TruncatedBatchError):
            next(walk)


@pytest.mark.parametrize("reader", READERS)
def test_every_flipped_bit_under_the_checksum_is_found(reader: Callable[[bytes], object]) -> None:
    batch = encode_batch(MIXED)
    for position in range(FIELDS["crc"][0], len(batch)):
        for bit in range(8):
            damaged = bytearray(batch)
            damaged[position] ^= 1 << bit
            with pytest.raises(ChecksumMismatchError):
                reader(bytes(damaged))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("magic", 0, UnsupportedMagicError),
        ("magic", 1, UnsupportedMagicError),
        ("magic", 3, UnsupportedMagicError),
        ("magic", -1, UnsupportedMagicError),
        ("batch_length", -(2**31), InvalidHeaderError),
        ("batch_length", -1, InvalidHeaderError),
        ("batch_length", 0, InvalidHeaderError),
        ("batch_length", HEADER_SIZE_BYTES - 12 - 1, InvalidHeaderError),
        ("batch_length", 2**31 - 1, TruncatedBatchError),
        ("attributes", 5, UnsupportedCompressionError),
        ("attributes", 6, UnsupportedCompressionError),
        ("attributes", 7, UnsupportedCompressionError),
    ],
)
def test_impossible_header_fields_are_refused(
    reader: Callable[[bytes], object], name: str, value: int, error: type[CorruptBatchError]
) -> None:
    with pytest.raises(error):
        reader(sealed(with_field(encode_batch(MIXED), name, value)))


@pytest.mark.parametrize("validator", [validate_batch, validate_records])
@pytest.mark.parametrize("name", ["last_offset_delta", "record_count"])
@pytest.mark.parametrize("difference", [-(2**30), -10, -1, 1, 10, 2**30])
def test_a_record_count_that_disagrees_with_the_last_offset_delta_is_refused(
    validator: Callable[[bytes], object], name: str, difference: int
) -> None:
    batch = encode_batch(MIXED)
    value = getattr(read_header(batch), name) + difference
    with pytest.raises(InvalidHeaderError, match="records"):
        validator(sealed(with_field(batch, name, value)))


@pytest.mark.parametrize("records", [MIXED, REGULAR])
@pytest.mark.parametrize("compression", CompressionType)
@pytest.mark.parametrize("parser", PARSERS)
def test_a_batch_with_another_number_of_records_than_its_header_says_is_refused(
    records: list[RawRecord], compression: CompressionType, parser: Callable[[bytes], object]
) -> None:
    batch = encode_batch(records, compression=compression)
    for count in (1, len(records) - 1, len(records) + 1, 2 * len(records), 2**31 - 1):
        lying = with_field(with_field(batch, "record_count", count), "last_offset_delta", count - 1)
        with pytest.raises(InvalidRecordError):
            parser(sealed(lying))


@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_negative_record_counts_are_refused(count: int) -> None:
    with pytest.raises(InvalidRecordError):
        decode_batch(sealed(with_field(encode_batch(MIXED), "record_count", count)))


@pytest.mark.parametrize("count", [0, -1, 5])
def test_only_a_record_count_of_zero_is_allowed_with_allow_gaps(count: int) -> None:
    batch = sealed(with_field(encode_batch(MIXED), "record_count", count))
    with pytest.raises(InvalidHeaderError):
        validate_batch(batch)
    if count == 0:
        assert validate_batch(batch, allow_gaps=True).record_count == 0
    else:
        with pytest.raises(InvalidHeaderError):
            validate_batch(batch, allow_gaps=True)


# length | attributes | timestamp delta | offset delta | key length | key | value length | value | header count
GOOD = b"\x12\x00\x00\x00\x02k\x04vv\x00"
BROKEN_SECTIONS = {
    "record length -1": b"\x01" + GOOD[1:],
    "record length -2": b"\x03" + GOOD[1:],
    "record length one short": b"\x10" + GOOD[1:],
    "record length one long": b"\x14" + GOOD[1:],
    "record length beyond the data": b"\xfe\x01" + GOOD[1:],
    "record length of five bytes with 35 bits": b"\xff\xff\xff\xff\x7f" + GOOD[1:],
    "record length of six bytes": b"\x92\x80\x80\x80\x80\x00" + GOOD[1:],
    "timestamp delta of eleven bytes": b"\x26\x00" + b"\x80" * 10 + b"\x00\x00\x02k\x04vv\x00",
    "timestamp delta with 70 bits": b"\x24\x00" + b"\xff" * 9 + b"\x7f\x00\x02k\x04vv\x00",
    "offset delta of six bytes": b"\x1c\x00\x00\x80\x80\x80\x80\x80\x00\x02k\x04vv\x00",
    "key length -2": b"\x12\x00\x00\x00\x03k\x04vv\x00",
    "key length -2 in two bytes": b"\x14\x00\x00\x00\x83\x00k\x04vv\x00",
    "key length -2 in three bytes": b"\x16\x00\x00\x00\x83\x80\x00k\x04vv\x00",
    "key beyond the record": b"\x12\x00\x00\x00\x7ek\x04vv\x00",
    "value length -64": b"\x12\x00\x00\x00\x02k\x7fvv\x00",
    "value one short": b"\x12\x00\x00\x00\x02k\x02vv\x00",
    "value beyond the record": b"\x12\x00\x00\x00\x02k\x06vv\x00",
    "value of two gigabytes": b"\x1a\x00\x00\x00\x02k\xfe\xff\xff\xff\x0fvv\x00",
    "no header count": b"\x10\x00\x00\x00\x02k\x04vv",
    "-1 headers": GOOD[:-1] + b"\x01",
    "63 headers in no bytes": GOOD[:-1] + b"\x7e",
    "two billion headers": b"\x1a\x00\x00\x00\x02k\x04vv\xfe\xff\xff\xff\x0f",
    "header name null": b"\x16\x00\x00\x00\x02k\x04vv\x02\x01\x01",
    "header name null, its length taken for the value's": b"\x14\x00\x00\x00\x02k\x04vv\x02\x01",
    "header name -3": b"\x16\x00\x00\x00\x02k\x04vv\x02\x05\x01",
    "header name beyond the record": b"\x16\x00\x00\x00\x02k\x04vv\x02\x04\x01",
    "header value -2": b"\x16\x00\x00\x00\x02k\x04vv\x02\x00\x03",
    "header value beyond the record": b"\x16\x00\x00\x00\x02k\x04vv\x02\x00\x02",
    "header value missing": b"\x14\x00\x00\x00\x02k\x04vv\x02\x00",
    "a byte after the record": GOOD + b"\x00",
    "a second record": GOOD + GOOD,
    "nothing": b"",
    "all bits set": b"\xff" * 30,
    "zeros": bytes(30),
}


def test_the_undamaged_record_is_decoded() -> None:
    assert decode_batch(batch_of(GOOD, 1)) == [(0, 0, b"k", b"vv", ())]


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("section", BROKEN_SECTIONS.values(), ids=BROKEN_SECTIONS)
def test_records_that_do_not_parse_are_refused(parser: Callable[[bytes], object], section: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        parser(batch_of(section, 1))


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("section", BROKEN_SECTIONS.values(), ids=BROKEN_SECTIONS)
@pytest.mark.parametrize("good_before", [1, 15, 64, 200])
def test_one_broken_record_after_many_good_ones_is_refused(
    parser: Callable[[bytes], object], section: bytes, good_before: int
) -> None:
    good = encode_batch([(0, b"k", b"vv", ())] * good_before)[HEADER_SIZE_BYTES:]
    with pytest.raises(InvalidRecordError):
        parser(batch_of(good + section, good_before + 1))


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("section", BROKEN_SECTIONS.values(), ids=BROKEN_SECTIONS)
def test_many_records_broken_in_the_same_way_are_refused(parser: Callable[[bytes], object], section: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        parser(batch_of(section * 40, 40))


@pytest.mark.parametrize("deltas", [[1, 2, 3], [0, 2, 3], [0, 1, 1], [2, 1, 0], [0, -1, 2], [0, 1, 2**31 - 1]])
def test_offset_deltas_of_a_producer_must_be_contiguous(deltas: list[int]) -> None:
    records: list[RawRecord] = [(0, None, b"v", ())] * 3
    validate_records(encode_batch(records))
    with pytest.raises(InvalidRecordError, match="offset deltas"):
        validate_records(encode_batch(records, offset_deltas=deltas, last_offset_delta=2))


@pytest.mark.parametrize(
    ("name", "value"), [("base_offset", 2**63 - 1), ("base_offset", -1), ("base_timestamp_ms", 2**63 - 1)]
)
def test_offsets_and_times_beyond_64_bits_are_refused(name: str, value: int) -> None:
    batch = sealed(with_field(encode_batch(MIXED), name, value))
    with pytest.raises(InvalidRecordError):
        decode_batch(batch)


def test_invalid_utf8_in_a_header_name_is_replaced() -> None:
    section = b"\x18\x00\x00\x00\x02k\x04vv\x02\x02\xff\x01"
    assert decode_batch(batch_of(section, 1)) == [(0, 0, b"k", b"vv", (("\ufffd", None),))]


def test_each_error_has_the_error_code_of_the_brokers_answer() -> None:
    batch = encode_batch(MIXED)
    with pytest.raises(CorruptMessageError) as corrupt:
        validate_batch(with_field(batch, "crc", 0))
    assert (corrupt.value.code, corrupt.value.retriable) == (ErrorCode.CORRUPT_MESSAGE, True)
    with pytest.raises(UnsupportedCompressionTypeError) as unsupported:
        validate_batch(sealed(with_field(batch, "attributes", 7)))
    assert (unsupported.value.code, unsupported.value.retriable) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, False)
    with pytest.raises(CorruptBatchError) as invalid:
        validate_batch(sealed(with_field(batch, "record_count", 99)))
    assert (invalid.value.code, invalid.value.retriable) == (ErrorCode.INVALID_RECORD, False)


class ObviousDecoder:
    """Decodes a batch by the format's specification, without the shortcuts of the real decoder."""

    def __init__(self, batch: bytes) -> None:
        self.header = read_header(batch)
        self.data = batch[HEADER_SIZE_BYTES : self.header.size_bytes]
        self.at = 0

    def records(self) -> list[tuple[object, ...]]:
        records = [self.record() for _ in range(self.header.record_count)]
        self.check(self.at == len(self.data))
        return records

    def record(self) -> tuple[object, ...]:
        length = self.number(32)
        end = self.at + length
        self.take(1)
        timestamp_ms = self.header.base_timestamp_ms + self.number(64)
        if self.header.attributes & 8:
            timestamp_ms = self.header.max_timestamp_ms
        offset = self.header.base_offset + self.number(32)
        self.check(-(2**63) < timestamp_ms < 2**63 and offset < 2**63)
        key, value = self.nullable(), self.nullable()
        count = self.number(32)
        self.check(0 <= count <= len(self.data) - self.at)
        headers = tuple(self.named_value() for _ in range(count))
        self.check(self.at == end)
        return offset, timestamp_ms, key, value, headers

    def named_value(self) -> tuple[str, bytes | None]:
        name = self.nullable()
        self.check(name is not None)
        assert name is not None
        return name.decode("utf-8", "replace"), self.nullable()

    def nullable(self) -> bytes | None:
        length = self.number(32)
        self.check(length >= -1)
        return None if length < 0 else self.take(length)

    def number(self, bits: int) -> int:
        raw = shift = 0
        while True:
            byte = self.take(1)[0]
            raw |= (byte & 127) << shift
            shift += 7
            self.check(raw < 1 << bits and shift <= 7 * (bits // 7 + 1))
            if byte < 128:
                return -(raw // 2) - 1 if raw % 2 else raw // 2

    def take(self, count: int) -> bytes:
        self.check(count <= len(self.data) - self.at)
        self.at += count
        return self.data[self.at - count : self.at]

    def check(self, holds: bool) -> None:
        if not holds:
            raise ValueError


mutations = st.lists(
    st.tuples(st.integers(21, 10**6), st.sampled_from(["set", "cut", "insert"]), st.integers(0, 255)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=seeds.examples(1500), deadline=None)
@given(records=st.sampled_from([MIXED, REGULAR, REGULAR[:17] + MIXED + REGULAR * 2]), changes=mutations)
def test_the_fast_decoder_agrees_with_the_simple_decoder_on_damaged_records(
    records: list[RawRecord], changes: list[tuple[int, str, int]]
) -> None:
    damaged = bytearray(encode_batch(records))
    for where, change, byte in changes:
        position = HEADER_SIZE_BYTES + where % (len(damaged) - HEADER_SIZE_BYTES)
        if change == "set":
            damaged[position] = byte
        elif change == "cut":
            del damaged[position]
        else:
            damaged.insert(position, byte)
    batch = sealed(with_field(bytes(damaged), "batch_length", len(damaged) - 12))
    try:
        expected = ObviousDecoder(batch).records()
    except ValueError:
        for parser in PARSERS:
            with pytest.raises(InvalidRecordError):
                parser(batch)
        return
    assert decode_batch(batch) == expected


@settings(max_examples=seeds.examples(1500), deadline=None)
@given(
    compression=st.sampled_from(CompressionType),
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=6),
)
def test_any_flipped_bits_give_records_or_a_typed_error(
    compression: CompressionType, changes: list[tuple[int, int]]
) -> None:
    damaged = bytearray(encode_batch(REGULAR + MIXED, compression=compression))
    for where, bit in changes:
        damaged[16 + where % (len(damaged) - 16)] ^= 1 << bit
    batch = sealed(damaged)
    for parser in PARSERS:
        try:
            parser(batch)
        except CorruptBatchError:
            continue


@settings(max_examples=seeds.examples(500), deadline=None)
@given(data=st.binary(max_size=200), compression=st.sampled_from(CompressionType), count=st.integers(0, 50))
def test_arbitrary_bytes_for_records_give_records_or_a_typed_error(
    data: bytes, compression: CompressionType, count: int
) -> None:
    batch = sealed(with_field(batch_of(data, count), "attributes", compression))
    for parser in PARSERS:
        try:
            parser(batch)
        except CorruptBatchError:
            continue
