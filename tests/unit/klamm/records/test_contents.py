"""Tests that reading keys and values alone gives those of the whole records, in batches of any size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.records import CompressionType, decode_batch, decode_contents, encode_batch, read_header

CONTENT = st.none() | st.binary(max_size=10) | st.binary(min_size=60, max_size=70) | st.just(b"x" * 9_000)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2)
RECORD = st.tuples(st.integers(0, 2**41), CONTENT, CONTENT, HEADERS)


@given(
    records=st.lists(RECORD, min_size=1, max_size=12),
    compression=st.sampled_from(CompressionType),
    before=st.binary(max_size=70),
)
def test_keys_and_values_equal_those_of_the_decoded_records(records, compression, before):
    batch = encode_batch(records, compression=compression)
    buffer = before + batch + before

    contents = list(decode_contents(buffer, len(before), read_header(batch)))

    assert contents == [(key, value) for _, key, value, _ in records]
    assert contents == [(record.key, record.value) for record in decode_batch(batch)]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100, 300])
def test_offset_and_timestamp_deltas_of_several_bytes_are_skipped(count):
    records = [(number * 2**33, b"k%d" % number, None, ()) for number in range(count)]
    batch = encode_batch(records)

    assert list(decode_contents(memoryview(batch), 0, read_header(batch))) == [(key, None) for _, key, _, _ in records]
