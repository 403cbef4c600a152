"""Tests records of groups of the new protocol against bytes laid out by hand from Kafka's schema files."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_coordinator.records.codec import SchemaError
from klamm_coordinator.records.consumer_group_schemas import (
    ClassicSettings,
    ConsumerMemberMetadata,
    Current,
    CurrentKey,
    GroupEpoch,
    GroupEpochKey,
    MemberKey,
    MemberState,
    PartitionMetadata,
    PartitionMetadataKey,
    RegexKey,
    ResolvedRegex,
    SupportedProtocol,
    Target,
    TargetEpoch,
    TargetEpochKey,
    TargetKey,
    TopicIdPartition,
    TopicMetadata,
    decode_consumer_group_value,
)
from klamm_coordinator.records.schemas import decode_key, encode_key, encode_value

ID = bytes(range(16))


def classic(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def compact(text: str | None) -> bytes:
    return b"\x00" if text is None else bytes([len(text) + 1]) + text.encode()


def int32s(*numbers: int) -> bytes:
    return bytes([len(numbers) + 1]) + struct.pack(f">{len(numbers)}i", *numbers)


KEYS = {
    3: (GroupEpochKey("g"), classic("g")),
    4: (PartitionMetadataKey("g"), classic("g")),
    5: (MemberKey("g", "m"), classic("g") + classic("m")),
    6: (TargetEpochKey("g"), classic("g")),
    7: (TargetKey("g", "m"), classic("g") + classic("m")),
    8: (CurrentKey("g", "m"), classic("g") + classic("m")),
    16: (RegexKey("g", "a.*"), classic("g") + classic("a.*")),
}
MEMBER = ConsumerMemberMetadata(
    instance_id="i",
    rack_id=None,
    client_id="c",
    client_host="/h",
    subscribed_topic_names=("t", "u"),
    subscribed_topic_regex="a.*",
    rebalance_timeout_ms=300_000,
    server_assignor=None,
)
CLASSIC_MEMBER = replace(MEMBER, classic=ClassicSettings(9_000, (SupportedProtocol("r", b"xyz"),)))
PARTITIONS = b"\x02" + ID + int32s(0, 3) + b"\x00"
HELD = frozenset({TopicIdPartition(ID, 0), TopicIdPartition(ID, 3)})
VALUES = {
    3: (GroupEpoch(7), struct.pack(">i", 7)),
    4: (
        PartitionMetadata((TopicMetadata(ID, "t", 4),)),
        b"\x02" + ID + compact("t") + struct.pack(">i", 4) + b"\x01" + b"\x00",
    ),
    5: (
        MEMBER,
        compact("i") + compact(None) + compact("c") + compact("/h") + b"\x03" + compact("t") + compact("u")
        + compact("a.*") + struct.pack(">i", 300_000) + compact(None),
    ),
    6: (TargetEpoch(8), struct.pack(">i", 8)),
    7: (Target(HELD), PARTITIONS),
    8: (
        Current(
            member_epoch=9,
            previous_member_epoch=8,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=HELD,
            pending_revocation=frozenset(),
        ),
        struct.pack(">iib", 9, 8, 1) + PARTITIONS + b"\x01",
    ),
    16: (ResolvedRegex(("a", "ab"), 5, 1_700), b"\x03" + compact("a") + compact("ab") + struct.pack(">qq", 5, 1_700)),
}  # fmt: skip


@pytest.mark.parametrize("version", KEYS)
def test_each_key_has_the_bytes_of_kafkas_schema(version):
    key, laid_out = KEYS[version]

    assert encode_key(key) == struct.pack(">h", version) + laid_out
    assert decode_key(encode_key(key)) == key


@pytest.mark.parametrize("version", KEYS)
def test_each_value_has_the_bytes_of_kafkas_schema(version):
    key, (value, laid_out) = KEYS[version][0], VALUES[version]
    expected = b"\x00\x00" + laid_out + b"\x00"

    assert encode_value(value) == expected
    assert decode_consumer_group_value(key, expected) == value


def test_the_settings_of_a_classic_member_are_a_tagged_field():
    settings = b"\x01" + struct.pack(">i", 9_000) + b"\x02" + compact("r") + b"\x04xyz" + b"\x00" + b"\x00"
    expected = b"\x00\x00" + VALUES[5][1] + b"\x01" + b"\x00" + bytes([len(settings)]) + settings

    assert encode_value(CLASSIC_MEMBER) == expected
    assert decode_consumer_group_value(KEYS[5][0], expected) == CLASSIC_MEMBER


def test_a_null_in_place_of_the_settings_of_a_classic_member_is_a_member_of_the_consumer_protocol():
    data = b"\x00\x00" + VALUES[5][1] + b"\x01" + b"\x00" + b"\x01" + b"\xff"

    assert decode_consumer_group_value(KEYS[5][0], data) == MEMBER


def test_racks_of_kafka_3_are_skipped():
    racks = b"\x02" + struct.pack(">i", 0) + b"\x02" + compact("r1") + b"\x00"
    data = b"\x00\x00" + b"\x02" + ID + compact("t") + struct.pack(">i", 1) + racks + b"\x00" + b"\x00"

    assert decode_consumer_group_value(KEYS[4][0], data) == PartitionMetadata((TopicMetadata(ID, "t", 1),))


def test_tagged_fields_of_later_kafka_versions_are_skipped():
    data = b"\x00\x00" + struct.pack(">i", 7) + b"\x01" + b"\x00" + b"\x08" + bytes(8)

    assert decode_consumer_group_value(KEYS[3][0], data) == GroupEpoch(7)


def test_a_member_state_of_a_later_kafka_version_is_unknown():
    data = b"\x00\x00" + struct.pack(">iib", 9, 8, 77) + b"\x01\x01\x00"

    assert decode_consumer_group_value(KEYS[8][0], data).state is MemberState.UNKNOWN


@pytest.mark.parametrize("version", KEYS)
def test_a_version_that_is_not_known_is_refused(version):
    with pytest.raises(SchemaError, match="version 1"):
        decode_consumer_group_value(KEYS[version][0], b"\x00\x01" + VALUES[version][1] + b"\x00")


@given(st.sampled_from(sorted(KEYS)), st.binary(max_size=60))
def test_random_bytes_are_decoded_or_raise_a_schema_error(version, data):
    try:
        value = decode_consumer_group_value(KEYS[version][0], b"\x00\x00" + data)
    except SchemaError:
        return
    assert decode_consumer_group_value(KEYS[version][0], encode_value(value)) == value
