"""Tests the serialization of messages: equal messages give equal bytes. Calls of the data path do without that,
because their messages have no maps."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import Descriptor

from klamm.wire.service import has_map
from klamm.wire.v1 import broker_pb2, common_pb2, controller_pb2
from klamm.wire.v1.controller_rpc import ADMIN


def test_equal_maps_are_serialized_to_equal_bytes() -> None:
    (method,) = [one for one in ADMIN.methods if one.name == "create_topics"]
    assert method.request_serializer is not None
    configs = {f"config.{number}": str(number) for number in range(100)}
    forwards, backwards = (
        controller_pb2.CreateTopicsRequest(topics=[controller_pb2.NewTopic(name="t", configs=dict(items))])
        for items in (configs.items(), reversed(configs.items()))
    )
    assert method.request_serializer(forwards) == method.request_serializer(backwards)
    assert forwards.SerializeToString() != backwards.SerializeToString(), "else the test shows nothing"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (controller_pb2.NewTopic.DESCRIPTOR, True),
        (controller_pb2.CreateTopicsRequest.DESCRIPTOR, True),
        (broker_pb2.ProduceResponse.DESCRIPTOR, False),
        (broker_pb2.FetchRequest.DESCRIPTOR, False),
        (common_pb2.Endpoint.DESCRIPTOR, False),
    ],
)
def test_has_map_finds_messages_with_a_map(message: Descriptor, expected: bool) -> None:
    assert has_map(message) is expected
