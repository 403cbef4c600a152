"""Tests that metadata and assignments of real clients are read, and that real clients read assignments."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from klamm.model import TopicPartition
from klamm_coordinator.classic.subscription import (
    Subscription,
    encode_assignment,
    read_assignment,
    read_subscription,
    subscribed_topics,
)
from klamm_coordinator.records.codec import SchemaError


def of_aiokafka(*topics: str) -> bytes:
    return ConsumerProtocolMemberMetadata(0, list(topics), b"user data").encode()


def test_the_subscribed_topics_of_all_members_are_read_from_the_metadata():
    metadata = [of_aiokafka("a", "b"), of_aiokafka("b", "ü"), of_aiokafka()]

    assert subscribed_topics(metadata) == {"a", "b", "ü"}


def test_topics_are_read_from_later_subscription_versions():
    version_3 = b"\x00\x03" + of_aiokafka("a")[2:] + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x05" + b"\xff\xff"

    assert subscribed_topics([version_3]) == {"a"}


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\xff\xff", of_aiokafka("a")[:8], b"\x00\x00\x7f\xff\xff\xff"])
def test_topics_are_unknown_if_one_subscription_does_not_parse(metadata):
    assert subscribed_topics([of_aiokafka("a"), metadata]) is None


def test_the_partitions_that_a_consumer_owns_are_read_from_version_1_on():
    owned = b"\x00\x00\x00\x01" + b"\x00\x01a" + b"\x00\x00\x00\x02" + bytes(7) + b"\x03"
    version_1 = b"\x00\x01" + of_aiokafka("a")[2:] + owned
    version_3 = b"\x00\x03" + version_1[2:] + b"\x00\x00\x00\x05" + b"\x00\x02r1"
    partitions = frozenset({TopicPartition("a", 0), TopicPartition("a", 3)})

    assert read_subscription(of_aiokafka("a")) == Subscription(version=0, topics=("a",))
    assert read_subscription(version_1) == Subscription(version=1, topics=("a",), owned=partitions)
    assert read_subscription(version_3) == Subscription(version=3, topics=("a",), owned=partitions, rack_id="r1")
    assert read_subscription(b"\x00\x09" + version_3[2:] + b"later").topics == ("a",)


@pytest.mark.parametrize("data", [b"\x00", b"\xff\xff", b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", b"\x00\x00\x00"])
def test_a_subscription_that_does_not_parse_is_refused(data):
    with pytest.raises(SchemaError):
        read_subscription(data)


def test_a_client_reads_an_assignment():
    encoded = encode_assignment({"b": (1,), "a": (2, 0)}, version=9)

    decoded = ConsumerProtocolMemberAssignment.decode(encoded)
    assert (decoded.version, decoded.assignment) == (3, [("a", [0, 2]), ("b", [1])])


def test_an_assignment_of_a_client_is_read():
    encoded = ConsumerProtocolMemberAssignment(0, [("a", [0, 2])], b"").encode()

    assert read_assignment(encoded).partitions == {("a", 0), ("a", 2)}
    assert not read_assignment(encoded).has_user_data
    assert read_assignment(ConsumerProtocolMemberAssignment(0, [], b"data").encode()).has_user_data
    assert not read_assignment(b"").partitions
