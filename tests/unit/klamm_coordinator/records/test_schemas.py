"""Tests Kafka's record schemas against bytes laid out by hand from Kafka's schema files.

Client libraries do not have the schemas of `__consumer_offsets`. The primitives below them are aiokafka's here, and
every version is laid out field by field.
"""

from __future__ import annotations

import io
import struct

import pytest
from aiokafka.protocol.types import Bytes, Int16, Int32, Int64, String
from hypothesis import given
from hypothesis import strategies as st

from klamm_coordinator.records.codec import SchemaError
from klamm_coordinator.records.released_hold_schema import ReleasedHoldKey, ReleasedHoldValue
from klamm_coordinator.records.schemas import (
    ClassicMemberMetadata,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    decode_value,
    encode_key,
    encode_value,
)


def text(value: str | None) -> bytes:
    return String("utf-8").encode(value)


def compact(value: bytes | None) -> bytes:
    """Returns the flexible encoding of a short string, bytes or array."""
    return b"\x00" if value is None else bytes([len(value) + 1]) + value


I16, I32, I64 = Int16.encode, Int32.encode, Int64.encode


class TestKeys:
    def test_an_offset_commit_key_has_kafkas_bytes(self):
        expected = I16(1) + text("grüppe") + text("orders") + I32(7)

        assert encode_key(OffsetCommitKey("grüppe", "orders", 7)) == expected
        assert decode_key(expected) == OffsetCommitKey("grüppe", "orders", 7)
        assert decode_key(I16(0) + expected[2:]) == OffsetCommitKey("grüppe", "orders", 7)

    def test_a_group_metadata_key_has_kafkas_bytes(self):
        expected = I16(2) + text("g")

        assert encode_key(GroupMetadataKey("g")) == expected
        assert decode_key(expected) == GroupMetadataKey("g")

    def test_a_released_hold_is_read_as_it_was_written(self):
        key, value = ReleasedHoldKey("grüppe", "orders"), ReleasedHoldValue(bytes(range(16)))
        encoded = I16(1002) + text("grüppe") + text("orders")

        assert encode_key(key) == encoded
        assert decode_key(encoded) == key
        assert encode_value(value) == I16(0) + bytes(range(16)) + b"\0"
        assert decode_value(key, encode_value(value)) == value
        with pytest.raises(SchemaError, match="version 1 of the value of a released hold is unknown; expected 0"):
            decode_value(key, I16(1) + bytes(17))

    @pytest.mark.parametrize("version", [9, 11, -1])
    def test_key_versions_of_later_kafka_versions_are_unknown(self, version):
        assert decode_key(I16(version) + b"whatever") is None


OFFSET_VALUES = {
    0: I16(0) + I64(42) + text("note") + I64(1_700),
    1: I16(1) + I64(42) + text("note") + I64(1_700) + I64(9_900),
    2: I16(2) + I64(42) + text("note") + I64(1_700),
    3: I16(3) + I64(42) + I32(5) + text("note") + I64(1_700),
    4: I16(4) + I64(42) + I32(5) + compact(b"note") + I64(1_700) + b"\x00",
}


class TestOffsetCommitValue:
    @pytest.mark.parametrize("version", OFFSET_VALUES)
    def test_every_version_is_read(self, version):
        assert decode_offset_value(OFFSET_VALUES[version]) == OffsetCommitValue(
            offset=42,
            leader_epoch=5 if version >= 3 else -1,
            metadata="note",
            commit_timestamp_ms=1_700,
            expire_timestamp_ms=9_900 if version == 1 else -1,
        )

    def test_version_3_is_written(self):
        assert encode_value(OffsetCommitValue(42, 5, "note", 1_700)) == OFFSET_VALUES[3]

    def test_version_1_is_written_when_there_is_an_expiry(self):
        assert encode_value(OffsetCommitValue(42, -1, "note", 1_700, 9_900)) == OFFSET_VALUES[1]

    def test_tagged_fields_of_a_later_kafka_version_are_skipped(self):
        tagged = OFFSET_VALUES[4][:-1] + b"\x01\x07\x02xy"

        assert decode_offset_value(tagged).offset == 42

    @given(
        st.builds(
            OffsetCommitValue,
            st.integers(0, 2**63 - 1),
            st.integers(-1, 2**31 - 1),
            st.text(max_size=50),
            st.integers(0, 2**62),
            st.just(-1),
        )
    )
    def test_an_offset_commit_value_round_trips(self, value):
        assert decode_offset_value(encode_value(value)) == value

    @given(st.integers(0, 4), st.integers(1, 40), st.binary(max_size=60))
    def test_damaged_bytes_are_decoded_or_raise_a_schema_error(self, version, cut, noise):
        whole = OFFSET_VALUES[version]
        for damaged in (whole[: max(2, len(whole) - cut)], whole[:2] + noise):
            try:
                decode_offset_value(damaged)
            except SchemaError:
                continue

    @pytest.mark.parametrize("data", [b"", b"\x00", I16(5) + OFFSET_VALUES[3][2:], I16(-1)])
    def test_unknown_versions_are_refused(self, data):
        with pytest.raises(SchemaError):
            decode_offset_value(data)


def group_bytes(version: int) -> bytes:
    """Returns the bytes of a group with one member in one version, as Kafka's generated code would write it."""
    flexible = version >= 4
    string = (lambda value: compact(None if value is None else value.encode())) if flexible else text
    raw = compact if flexible else Bytes.encode
    out = I16(version) + string("consumer") + I32(3) + string("range") + string("m-1")
    if version >= 2:
        out += I64(1_234)
    out += b"\x02" if flexible else I32(1)
    out += string("m-1")
    if version >= 3:
        out += string("i-1")
    out += string("app") + string("/10.0.0.1")
    if version >= 1:
        out += I32(60_000)
    out += I32(10_000) + raw(b"subscription") + raw(b"assignment")
    return out + (b"\x00\x00" if flexible else b"")


class TestGroupMetadataValue:
    @pytest.mark.parametrize("version", range(5))
    def test_every_version_is_read(self, version):
        assert decode_group_value(group_bytes(version)) == GroupMetadataValue(
            protocol_type="consumer",
            generation_id=3,
            protocol_name="range",
            leader="m-1",
            current_state_timestamp_ms=1_234 if version >= 2 else -1,
            members=(
                ClassicMemberMetadata(
                    member_id="m-1",
                    group_instance_id="i-1" if version >= 3 else None,
                    client_id="app",
                    client_host="/10.0.0.1",
                    rebalance_timeout_ms=60_000 if version >= 1 else -1,
                    session_timeout_ms=10_000,
                    subscription=b"subscription",
                    assignment=b"assignment",
                ),
            ),
        )

    def test_version_3_is_written(self):
        assert encode_value(decode_group_value(group_bytes(3))) == group_bytes(3)

    def test_the_metadata_of_an_empty_group_round_trips(self):
        value = GroupMetadataValue(
            protocol_type="",
            generation_id=0,
            protocol_name=None,
            leader=None,
            current_state_timestamp_ms=5,
            members=(),
        )
        expected = I16(3) + text("") + I32(0) + text(None) + text(None) + I64(5) + I32(0)

        assert encode_value(value) == expected
        assert decode_group_value(expected) == value

    @pytest.mark.parametrize("version", range(5))
    def test_truncated_group_metadata_is_refused(self, version):
        whole = group_bytes(version)
        for end in range(len(whole)):
            with pytest.raises(SchemaError):
                decode_group_value(whole[:end])

    def test_an_impossible_array_count_is_refused(self):
        huge = I16(0) + text("consumer") + I32(3) + text(None) + text(None) + struct.pack(">i", 2**31 - 1)

        with pytest.raises(SchemaError, match="array"):
            decode_group_value(huge)


def test_a_tombstone_has_no_value():
    assert encode_value(None) is None


def test_the_primitives_are_read_by_an_independent_decoder():
    stream = io.BytesIO(encode_key(OffsetCommitKey("g", "t", 3)))

    decoded = (Int16.decode(stream), String().decode(stream), String().decode(stream), Int32.decode(stream))

    assert decoded == (1, "g", "t", 3)
    assert stream.read() == b""
