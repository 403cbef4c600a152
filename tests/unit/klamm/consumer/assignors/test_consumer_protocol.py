"""Tests the bytes of ConsumerProtocol against kafka-python's codec, and damaged ones."""

from __future__ import annotations

import contextlib
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.consumer.assignors.consumer_protocol import (
    Assignment,
    ConsumerProtocolError,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from klamm.model import TopicPartition

with warnings.catch_warnings():
    # This library reads its schemas with a function that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

topics = st.text("abcXYZ.-_ü", min_size=1, max_size=12)
partitions = st.lists(st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1)), unique=True, max_size=12)
user_data = st.none() | st.binary(max_size=20)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(topics, unique=True, max_size=5).map(lambda names: tuple(sorted(names))),
    user_data=user_data,
    owned=partitions.map(lambda owned: tuple(sorted(owned))),
    generation_id=st.integers(-1, 2**31 - 1),
    rack_id=st.none() | topics,
)
assignments = st.builds(
    Assignment, partitions=partitions.map(lambda assigned: tuple(sorted(assigned))), user_data=user_data
)


def pairs(grouped) -> list[TopicPartition]:
    return [TopicPartition(each.topic, number) for each in grouped for number in each.partitions]


@given(subscription=subscriptions, version=st.integers(0, 3))
def test_kafka_python_reads_our_subscription(subscription, version):
    theirs = ConsumerProtocolSubscription.decode(encode_subscription(subscription, version))
    assert theirs.version == version
    assert tuple(theirs.topics) == subscription.topics
    assert theirs.user_data == subscription.user_data
    if version >= 1:
        assert pairs(theirs.owned_partitions) == list(subscription.owned)
    if version >= 2:
        assert theirs.generation_id == subscription.generation_id
    if version >= 3:
        assert theirs.rack_id == subscription.rack_id


@given(subscription=subscriptions, version=st.integers(0, 3))
def test_a_subscription_round_trips_the_fields_of_its_version(subscription, version):
    read = decode_subscription(encode_subscription(subscription, version))
    assert read.topics == subscription.topics
    assert read.user_data == subscription.user_data
    assert read.owned == (subscription.owned if version >= 1 else ())
    assert read.generation_id == (subscription.generation_id if version >= 2 else -1)
    assert read.rack_id == (subscription.rack_id if version >= 3 else None)


@given(assignment=assignments)
def test_kafka_python_reads_our_assignment(assignment):
    theirs = ConsumerProtocolAssignment.decode(encode_assignment(assignment))
    assert [TopicPartition(*partition) for partition in theirs.partitions()] == list(assignment.partitions)
    assert theirs.user_data == assignment.user_data


def test_we_read_kafka_pythons_subscription():
    owned = ConsumerProtocolSubscription.TopicPartition(topic="b", partitions=[0, 7])
    theirs = ConsumerProtocolSubscription(version=1, topics=["a", "b"], user_data=b"u", owned_partitions=[owned])
    read = decode_subscription(theirs.encode())
    assert read == Subscription(
        topics=("a", "b"), user_data=b"u", owned=(TopicPartition("b", 0), TopicPartition("b", 7))
    )


@given(assignment=assignments)
def test_bytes_appended_by_a_newer_version_are_ignored(assignment):
    newer = b"\x00\x63" + encode_assignment(assignment)[2:] + b"future"
    assert decode_assignment(newer) == assignment


def test_an_empty_assignment_has_no_partitions():
    assert decode_assignment(b"") == Assignment(partitions=())


@given(subscription=subscriptions, data=st.data())
def test_a_truncated_subscription_is_refused(subscription, data):
    whole = encode_subscription(subscription)
    with pytest.raises(ConsumerProtocolError):
        decode_subscription(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(noise=st.binary(max_size=60))
def test_random_bytes_are_decoded_or_raise_a_consumer_protocol_error(noise):
    for decode in (decode_subscription, decode_assignment):
        with contextlib.suppress(ConsumerProtocolError):
            decode(noise)
