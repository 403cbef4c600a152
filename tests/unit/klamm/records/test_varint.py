"""Tests varints: tables and functions give the same results, which are those of the format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.records import InvalidRecordError, encode_batch, estimate_size_bytes
from klamm.records.varint import (
    LENGTH_1,
    LENGTH_2,
    NO_LENGTH,
    NUMBER_1,
    NUMBER_2,
    VARLONG_BYTES_MAX,
    decode_length,
    decode_varint,
    encode_varint,
    varint_of,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varints_have_the_known_encodings(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == varint_of(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0, VARLONG_BYTES_MAX) == (value, len(encoded) // 2)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_round_trips_at_any_position(value: int, before: bytes, after: bytes) -> None:
    encoded = varint_of(value)
    end = len(before) + len(encoded)
    assert decode_varint(before + encoded + after, len(before), VARLONG_BYTES_MAX) == (value, end)


def test_the_varint_tables_agree_with_the_functions() -> None:
    for low in range(128):
        assert NUMBER_1[low] == decode_varint(bytes([low]), 0)[0]
        assert LENGTH_1[low] == decode_length(bytes([low]), 0)[0]
    for high in range(128):
        for low in range(128, 256):
            data = bytes([low, high])
            assert NUMBER_2[high][low] == decode_varint(data, 0)[0]
            assert LENGTH_2[high][low] == decode_length(data, 0)[0]


def test_lengths_below_minus_one_are_decoded_as_no_length() -> None:
    assert decode_length(encode_varint(-1), 0)[0] == -1
    assert decode_length(encode_varint(-2), 0)[0] == NO_LENGTH
    assert decode_length(encode_varint(-(2**31)), 0)[0] == NO_LENGTH


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\0", b"\xff\xff\xff\xff\x1f", b"\x80" * 4 + b"\x10"])
def test_varints_wider_than_32_bits_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecordError, match="32 bits"):
        decode_varint(data, 0)


contents = st.none() | st.binary()
header_lists = st.lists(st.tuples(st.text(st.characters(codec="utf-8")), contents), max_size=4)


@given(key=contents, value=contents, headers=header_lists, step=st.integers(-(2**62), 2**62))
def test_the_size_estimate_is_an_upper_bound(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], step: int
) -> None:
    one = encode_batch([(0, None, None, ())])
    two = encode_batch([(0, None, None, ()), (step, key, value, headers)])
    assert len(two) - len(one) <= estimate_size_bytes(key, value, headers)
