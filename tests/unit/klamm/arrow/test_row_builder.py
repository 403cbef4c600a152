"""Tests the columns of records against the records that the decoder returns, for whole and for damaged batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.arrow.row_builder import INT64_MAX, CompiledRowBuilder, PureRowBuilder, add_all
from klamm.arrow.schema import TYPES
from klamm.core import core
from klamm.records import (
    CompressionType,
    InvalidRecordError,
    RecordSection,
    TimestampType,
    decode_section,
    encode_batch,
    read_section,
)

NAMES = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")
needs_core = pytest.mark.skipif(core is None, reason="klamm was built without a C compiler, or KLAMM_CORE=pure")
BUILDERS = [
    pytest.param(PureRowBuilder, id="pure"),
    pytest.param(CompiledRowBuilder, id="compiled", marks=needs_core),
]

TIMESTAMPS_AT = st.integers(27, 42)
"""The positions of the timestamps in a batch's header."""
contents = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=300)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
times_ms = st.integers(0, 2**63 - 1) | st.integers(1_700_000_000_000, 1_700_000_100_000)
record_lists = st.lists(
    st.tuples(times_ms, contents, contents, st.lists(st.tuples(names, contents), max_size=3)), min_size=1, max_size=12
)


def section_of(records: list, base_offset: int = 0, **numbers: Any) -> RecordSection:
    return read_section(encode_batch(records, base_offset=base_offset, **numbers))


def rows_of(sections: list[RecordSection], start: int = 0, end: int = INT64_MAX) -> list[tuple]:
    """Returns the columns of each record that the decoder returns."""
    return [
        (
            record.offset,
            record.timestamp_ms,
            section.header.timestamp_type,
            record.key,
            record.value,
            [{"key": name, "value": content} for name, content in record.headers],
            section.header.partition_leader_epoch,
        )
        for section in sections
        for record in decode_section(section)
        if start <= record.offset < end
    ]


def taken(builder: Any) -> list[tuple]:
    arrays = builder.take()
    assert {name: array.type for name, array in arrays.items()} == {name: TYPES[name] for name in arrays}
    for array in arrays.values():
        array.validate(full=True)
    arrays["timestamp"] = arrays["timestamp"].cast(pa.int64())
    return list(zip(*(arrays[name].to_pylist() for name in NAMES), strict=True))


@pytest.mark.parametrize("kind", BUILDERS)
@settings(max_examples=60, deadline=None)
@given(st.lists(record_lists, min_size=1, max_size=4), st.sampled_from(CompressionType), st.data())
def test_the_columns_are_the_decoded_records_of_the_range(kind, batches, compression, data) -> None:
    sections, offset = [], data.draw(st.integers(0, 2**62))
    base = offset
    for number, records in enumerate(batches):
        kinds = data.draw(st.sampled_from(TimestampType))
        sections.append(
            section_of(records, offset, compression=compression, partition_leader_epoch=number, timestamp_type=kinds)
        )
        offset += len(records)
    start, end = data.draw(st.integers(base - 2, offset)), data.draw(st.integers(base, offset + 2))
    builder = kind(NAMES)
    assert builder.add(sections, start, end) == len(sections)
    expected = rows_of(sections, start, end)
    assert builder.row_count == len(expected)
    assert taken(builder) == expected
    assert builder.row_count == builder.size_bytes == 0
    assert taken(builder) == []


@pytest.mark.parametrize("kind", BUILDERS)
@settings(max_examples=300, deadline=None)
@given(record_lists, st.data())
def test_a_damaged_batch_is_refused_if_the_decoder_refuses_it_and_the_rows_before_it_stay(kind, records, data) -> None:
    damaged = bytearray(encode_batch(records, base_offset=len(records)))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(TIMESTAMPS_AT | st.integers(61, len(damaged) - 1))
        damaged[position] = data.draw(st.integers(0, 255))
    sections = [section_of(records), read_section(bytes(damaged), check_crc=False)]
    builder = kind(NAMES)
    expected: Any
    try:
        expected = rows_of(sections)
    except InvalidRecordError as error:
        expected = error
    if isinstance(expected, list):
        add_all(builder, sections, 0, INT64_MAX)
        assert taken(builder) == expected
        return
    with pytest.raises(InvalidRecordError) as raised:
        add_all(builder, sections, 0, INT64_MAX)
    assert str(raised.value) == str(expected)
    assert taken(builder) == rows_of(sections[:1])


@pytest.mark.parametrize("kind", BUILDERS)
@given(st.binary(max_size=100))
def test_any_bytes_give_columns_or_an_error(kind, data: bytes) -> None:
    section = section_of([(0, None, b"", ())])
    section = section._replace(
        header=section.header._replace(record_count=len(data) // 7), data=data, start=0, end=len(data)
    )
    builder = kind(NAMES)
    try:
        expected = rows_of([section])
    except InvalidRecordError:
        assert builder.add([section]) == 0
    else:
        assert builder.add([section]) == 1
        assert taken(builder) == [row for row in expected if row[0] >= 0]


@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize("base_offset", [-1, 2**63 - 2**31 + 1])
def test_an_offset_that_does_not_fit_is_refused(kind, base_offset: int) -> None:
    section = section_of([(0, None, b"", ())])
    section = section._replace(header=section.header._replace(base_offset=base_offset))
    with pytest.raises(InvalidRecordError, match=f"base offset {base_offset} is negative, or too large"):
        add_all(kind(NAMES), [section], 0, INT64_MAX)


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_timestamp_that_does_not_fit_is_refused_unless_the_log_has_set_the_time(kind) -> None:
    section = section_of([(0, None, b"a", ()), (2**62, None, b"b", ())])
    far = section._replace(header=section.header._replace(base_timestamp_ms=2**62))
    with pytest.raises(InvalidRecordError, match="do not all fit 64 bits"):
        add_all(kind(NAMES), [far], 0, INT64_MAX)
    logged = far._replace(header=far.header._replace(attributes=8, max_timestamp_ms=7))
    builder = kind(NAMES)
    add_all(builder, [section, logged], 0, INT64_MAX)
    assert [row[1] for row in taken(builder)] == [0, 2**62, 7, 7]


@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize(
    ("base_ms", "is_whole"), [(-(2**63), False), (-(2**63) + 1, True), (2**63 - 2, True), (2**63 - 1, False)]
)
def test_the_first_and_the_last_timestamps_are_those_of_the_decoder(kind, base_ms: int, is_whole: bool) -> None:
    section = section_of([(0, None, b"a", ()), (1, None, b"b", ())])
    section = section._replace(header=section.header._replace(base_timestamp_ms=base_ms))
    builder = kind(NAMES)
    assert builder.add([section]) == is_whole
    assert taken(builder) == (rows_of([section]) if is_whole else [])


@pytest.mark.parametrize("kind", BUILDERS)
def test_the_least_delta_of_a_timestamp_is_read(kind) -> None:
    section = section_of([(2**63 - 1, None, b"a", ()), (-1, None, b"b", ())])
    builder = kind(NAMES)
    assert builder.add([section]) == 1
    assert [row[1] for row in taken(builder)] == [2**63 - 1, -1]


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_name_that_is_not_utf8_is_mended_as_the_decoder_does(kind) -> None:
    batch = encode_batch([(0, None, b"", [("abcd", b"x"), ("é", None)])])
    section = read_section(batch.replace(b"abcd", b"a\xff\xfed"), check_crc=False)
    builder = kind(NAMES)
    add_all(builder, [section], 0, INT64_MAX)
    assert taken(builder) == rows_of([section])


@pytest.mark.parametrize("kind", BUILDERS)
def test_only_the_named_columns_are_made(kind) -> None:
    builder = kind(("value",))
    builder.add([section_of([(5, b"k", b"v", [("h", b"x")]), (6, None, None, ())])])
    arrays = builder.take()
    assert {name: array.to_pylist() for name, array in arrays.items()} == {"value": [b"v", None]}


@needs_core
def test_a_broken_record_leaves_the_compiled_columns_as_they_were() -> None:
    """The record before the broken one has a null key, headers and a name that is not UTF-8."""
    whole = section_of([(5, b"k", None, [("h", None)]), (6, None, b"v", [("é", b"x")]), (7, b"l", b"w", ())])
    broken = whole._replace(end=whole.end - 1)
    builder = CompiledRowBuilder(NAMES)
    assert builder.add([broken, whole]) == 0
    assert builder.add([whole, broken]) == 1
    assert builder.add([whole]) == 1
    assert taken(builder) == rows_of([whole, whole])


@needs_core
def test_the_arrays_own_the_memory_of_the_compiled_columns() -> None:
    builder = CompiledRowBuilder(("value",))
    builder.add([section_of([(0, None, b"value", ())] * 1_000)])
    values = builder.take()["value"]
    builder.add([section_of([(0, None, b"other", ())] * 1_000)])
    del builder
    assert values.to_pylist() == [b"value"] * 1_000


@needs_core
def test_a_column_of_2_gib_is_refused() -> None:
    """The data is random: the size is checked before the records."""
    section = section_of([(0, None, b"value", ())])
    rows = core.ColumnRows(("value",))
    assert rows.add(section, 0, INT64_MAX)
    huge = section._replace(data=memoryview(bytearray(2**31 - 1)), start=0, end=2**31 - 1)
    with pytest.raises(OverflowError, match="at most 2,147,483,647 bytes"):
        rows.add(huge, 0, INT64_MAX)
    assert rows.row_count == 1
