"""Tests that the reader reads written values again, and refuses any other bytes before they cost anything."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import KlammError
from klamm.kafka_types.reader import TAGGED_FIELDS_MAX, KafkaReader, MalformedTypesError
from klamm.kafka_types.writer import KafkaWriter

Read = Callable[[KafkaReader[bytes]], object]

int32s = st.integers(-(2**31), 2**31 - 1)
texts = st.text(max_size=200)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127),
    "boolean": st.booleans(),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": int32s,
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": texts,
    "nullable_string": st.none() | texts,
    "bytes_": st.binary(max_size=300),
    "nullable_bytes": st.none() | st.binary(max_size=300),
    "int32_array": st.lists(int32s, max_size=40).map(tuple),
    "unsigned_varint": st.integers(0, 2**31 - 1),
}
typed_values = st.sampled_from(sorted(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind]))
"""(method, value)"""
READS: list[Read] = [
    *(lambda reader, kind=kind: getattr(reader, kind)() for kind in VALUES),
    lambda reader: reader.array(reader.int8),
    lambda reader: reader.nullable_array_size(),
    lambda reader: reader.tagged_fields(),
    lambda reader: reader.skip_tagged_fields(),
    lambda reader: reader.fields(struct.Struct(">ihq")),
]


@given(st.lists(typed_values, max_size=20), st.booleans(), st.booleans())
def test_written_values_are_read_back(values: list[tuple[str, Any]], flexible: bool, as_view: bool) -> None:
    writer = KafkaWriter(flexible=flexible)
    for kind, value in values:
        getattr(writer, kind)(value)
    data = writer.value()
    reader = KafkaReader(memoryview(data), flexible=flexible) if as_view else KafkaReader(data, flexible=flexible)
    assert [getattr(reader, kind)() for kind, _ in values] == [value for _, value in values]
    reader.expect_end()


@given(st.lists(texts, max_size=10), st.dictionaries(st.integers(0, 2**31 - 1), st.binary(max_size=50), max_size=9))
def test_arrays_and_tagged_fields_are_read_back_or_skipped(items: list[str], fields: dict[int, bytes]) -> None:
    writer = KafkaWriter().int16(7).use_flexible()
    data = writer.array(items, writer.string).null_array().tagged_fields(sorted(fields.items())).value()
    for skips in (False, True):
        reader = KafkaReader(data)
        assert reader.int16() == 7
        reader.use_flexible()
        assert reader.array(reader.string) == items
        assert reader.nullable_array_size() == -1
        if skips:
            reader.skip_tagged_fields()
        else:
            assert reader.tagged_fields() == fields
        reader.expect_end()


@given(st.binary(max_size=60), st.sampled_from(READS), st.booleans())
def test_random_bytes_are_read_or_raise_a_malformed_types_error(data: bytes, read: Read, flexible: bool) -> None:
    reader = KafkaReader(data, flexible=flexible)
    try:
        read(reader)
    except MalformedTypesError:
        return
    assert 0 <= reader.position <= len(data)


@given(st.lists(typed_values, min_size=1, max_size=5), st.booleans(), st.data())
def test_truncated_bytes_are_refused(values: list[tuple[str, Any]], flexible: bool, data: st.DataObject) -> None:
    writer = KafkaWriter(flexible=flexible)
    for kind, value in values:
        getattr(writer, kind)(value)
    whole = writer.value()
    if not whole:
        return
    reader = KafkaReader(whole[: data.draw(st.integers(0, len(whole) - 1))], flexible=flexible)
    with pytest.raises(MalformedTypesError):
        [getattr(reader, kind)() for kind, _ in values]


def varint(value: int) -> bytes:
    return KafkaWriter().unsigned_varint(value).value()


@pytest.mark.parametrize(
    ("data", "flexible", "read", "refusal"),
    [
        (struct.pack(">h", -2) + bytes(9), False, KafkaReader.nullable_string, "is -2; expected 0 or more"),
        (struct.pack(">i", -2) + bytes(9), False, KafkaReader.nullable_bytes, "is -2; expected 0 or more"),
        (
            struct.pack(">i", -(2**31)) + bytes(9),
            False,
            KafkaReader.nullable_array_size,
            "an array announces -2147483648 items",
        ),
        (struct.pack(">h", -1), False, KafkaReader.string, "is null"),
        (struct.pack(">i", -1), False, KafkaReader.bytes_, "is null"),
        (struct.pack(">i", -1), False, KafkaReader.array_size, "is null"),
        (b"\x00", True, KafkaReader.string, "is null"),
        (b"\x00", True, KafkaReader.array_size, "is null"),
        (
            struct.pack(">h", 5) + b"abcd",
            False,
            KafkaReader.string,
            "a field of 5 bytes begins at byte 2, .* ends at byte 6",
        ),
        (
            struct.pack(">i", 2**31 - 1) + b"abcd",
            False,
            KafkaReader.bytes_,
            "a field of 2147483647 bytes begins at byte 4",
        ),
        (struct.pack(">i", 5) + b"abcd", False, KafkaReader.array_size, "announces 5 items, but only 4 bytes"),
        (struct.pack(">i", 1) + b"abc", False, KafkaReader.int32_array, "within a number"),
        (varint(2**31) + b"ab", True, KafkaReader.array_size, "announces 2147483647 items, but only 2 bytes"),
        (varint(4) + b"ab", True, KafkaReader.string, "a field of 3 bytes begins at byte 1"),
        (varint(2) + b"\xff", True, KafkaReader.string, "is not UTF-8"),
        (b"\x80" * 5 + b"\x00", True, KafkaReader.unsigned_varint, "has more than 5 bytes"),
        (b"\xff" * 4, True, KafkaReader.unsigned_varint, "within a varint"),
        (
            varint(1) + varint(3) + varint(9),
            True,
            KafkaReader.skip_tagged_fields,
            "a field of 9 bytes begins at byte 3",
        ),
        (varint(1) + varint(3) + varint(9), True, KafkaReader.tagged_fields, "a field of 9 bytes begins at byte 3"),
        (varint(2**31), True, KafkaReader.skip_tagged_fields, "more than 10000 tagged fields"),
        (b"ab", False, KafkaReader.expect_end, "2 bytes follow the end of the message at byte 0"),
        (b"abc", False, KafkaReader.int32, "within a number that begins at byte 0"),
        (b"a" * 15, False, KafkaReader.uuid, "a field of 16 bytes begins at byte 0"),
    ],
)
def test_malicious_lengths_and_varints_are_refused(data: bytes, flexible: bool, read: Read, refusal: str) -> None:
    with pytest.raises(MalformedTypesError, match=refusal):
        read(KafkaReader(data, flexible=flexible))


def test_a_subclass_of_the_reader_raises_its_own_error() -> None:
    class LetterError(KlammError):
        """Raised for the malformed bytes of a letter."""

    class LetterReader(KafkaReader[bytes]):
        error = LetterError

    with pytest.raises(LetterError):
        LetterReader(b"").int8()


def test_bytes_read_from_a_memoryview_are_memoryviews() -> None:
    data = memoryview(KafkaWriter().bytes_(b"abc").value())
    taken = KafkaReader(data).bytes_()
    assert isinstance(taken, memoryview)
    assert taken == b"abc"


@pytest.mark.parametrize("read", [KafkaReader.skip_tagged_fields, KafkaReader.tagged_fields])
def test_the_tagged_fields_of_all_structures_of_a_message_have_a_limit(read: Read) -> None:
    half = KafkaWriter(flexible=True)
    half.unsigned_varint(TAGGED_FIELDS_MAX // 2)
    structure = bytes(half.value()) + b"\x07\x00" * (TAGGED_FIELDS_MAX // 2)
    reader = KafkaReader(2 * structure + b"\x01\x07\x00", flexible=True)
    read(reader)
    read(reader)
    with pytest.raises(MalformedTypesError, match="more than 10000 tagged fields, 1 of them"):
        read(reader)
