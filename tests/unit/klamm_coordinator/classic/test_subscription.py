"""Tests that topics are read from the metadata of real clients."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from klamm_coordinator.classic.subscription import subscribed_topics


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
