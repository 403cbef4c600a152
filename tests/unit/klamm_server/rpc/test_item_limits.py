"""Tests the limit of the items of a gRPC request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.message import Message

from klamm.rpc.status import CallFailed, Status
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.broker_pb2 import FetchPartition, FetchRequest
from klamm.wire.v1.broker_rpc import BROKER
from klamm_server.rpc.item_limits import ITEMS_MAX, check_items, with_item_limit


def creation(topics: int, configs: int) -> Message:
    """Returns the creation of some topics, each with some configs and one replica."""
    return pb.CreateTopicsRequest(
        topics=[
            pb.NewTopic(
                name=f"t{number}",
                configs={str(one): "" for one in range(configs)},
                assignments=[pb.ReplicaAssignment(broker_ids=[1])],
            )
            for number in range(topics)
        ]
    )


def test_the_items_of_lists_in_lists_and_of_maps_count() -> None:
    check_items(creation(100, 97))
    with pytest.raises(CallFailed, match="more than 10000 items") as caught:
        check_items(creation(100, 98))
    assert caught.value.status is Status.INVALID_ARGUMENT


def test_the_items_of_a_message_in_a_message_count() -> None:
    replicas = pb.PartitionReassignment(replicas={"broker_ids": [1] * ITEMS_MAX})
    with pytest.raises(CallFailed):
        check_items(pb.AlterPartitionReassignmentsRequest(partitions=[replicas]))


def test_a_call_with_a_stream_of_answers_is_refused_too() -> None:
    (method,) = [one for one in BROKER.methods if one.name == "fetch_stream"]

    async def answer(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"records"

    async def first(count: int) -> bytes:
        call = with_item_limit(method, answer)
        async for one in call(FetchRequest(partitions=[FetchPartition(topic="t")] * count), None):
            return bytes(one)
        raise AssertionError("the stream ended")

    assert asyncio.run(first(ITEMS_MAX)) == b"records"
    with pytest.raises(CallFailed):
        asyncio.run(first(ITEMS_MAX + 1))
