"""Tests that Metadata and FindCoordinator name servers by the listener of the call."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.broker_pb2 import FindCoordinatorRequest, MetadataRequest
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.metadata_pb2 import (
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterCoordinatorRecord,
    ShardAssignmentRecord,
    TopicRecord,
)
from klamm_broker.grpc.find_coordinator import FindCoordinatorRpc
from klamm_broker.grpc.metadata import MetadataRpc
from klamm_broker.handlers.find_coordinator import CoordinatorFinder
from klamm_broker.handlers.metadata import MissingTopics
from klamm_broker.messages.nodes import BrokerNodes
from klamm_broker.replica.broker_directory import BrokerDirectory
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.net.listeners import CAME_BY, Listener, SecurityProtocol, encode, plain_listeners

OFFSETS = uuid.UUID(int=9).bytes


def listeners(host: str, *, out: bool) -> list[Listener]:
    outside = [
        Listener("OUT", SecurityProtocol.GRPC, "localhost", 1),
        Listener("KAFKA_OUT", SecurityProtocol.KAFKA, "localhost", 2),
        Listener("KAFKA", SecurityProtocol.KAFKA, "elsewhere", 3),
    ]
    return [*plain_listeners(host, 9094), *(outside if out else [])]


def image() -> MetadataImage:
    """Returns an image of two brokers and a coordinator.

    The second broker leads; it and the coordinator have no listener OUT.
    """
    records = [
        *(
            MetadataRecord(
                register_broker=RegisterBrokerRecord(
                    broker_id=number,
                    broker_epoch=number,
                    endpoint=Endpoint(host=f"b{number}", port=9094),
                    listeners=encode(listeners(f"b{number}", out=number == 1)),
                )
            )
            for number in (1, 2)
        ),
        MetadataRecord(
            register_coordinator=RegisterCoordinatorRecord(
                coordinator_id=7,
                coordinator_epoch=3,
                endpoint=Endpoint(host="c7", port=9095),
                listeners=encode(listeners("c7", out=False)),
            )
        ),
        MetadataRecord(topic=TopicRecord(name="__consumer_offsets", topic_id=OFFSETS)),
        MetadataRecord(partition=PartitionRecord(topic_id=OFFSETS, partition=0, replicas=[1, 2], isr=[1, 2], leader=2)),
        MetadataRecord(
            shard_assignment=ShardAssignmentRecord(
                topic="__consumer_offsets", shard=0, coordinator_id=7, producer_id=1, coordinator_epoch=1
            )
        ),
    ]
    return replay(MetadataImage.empty(), records, len(records))


@contextlib.contextmanager
def came_by(name: str) -> Iterator[None]:
    token = CAME_BY.set(name)
    yield
    CAME_BY.reset(token)


def rpcs() -> tuple[MetadataRpc, FindCoordinatorRpc]:
    replicas: Any = SimpleNamespace(image=image())
    creator: Any = None
    controllers = [listeners("controller", out=True), listeners("another", out=False)]
    missing = MissingTopics(creator, auto_create_topics=False)
    finder = CoordinatorFinder(replicas, creator, offsets_topic_partitions=1)
    brokers = BrokerDirectory()
    brokers.images = replicas.image.brokers
    nodes = BrokerNodes(brokers, {"OUT": "KAFKA_OUT", "GRPC": "KAFKA"})
    return MetadataRpc(missing, lambda: replicas.image, nodes, lambda: controllers), FindCoordinatorRpc(finder)


@pytest.mark.parametrize(
    ("name", "brokers", "controllers", "coordinators", "partition"),
    [
        ("GRPC", ["b1:9094", "b2:9094"], ["controller:9094", "another:9094"], ["c7:9094"], (0, 2)),
        ("OUT", ["localhost:1"], ["localhost:1"], [], (ErrorCode.LISTENER_NOT_FOUND, -1)),
    ],
)
def test_metadata_names_the_endpoints_of_servers_at_the_listener_of_the_call(
    name: str, brokers: list[str], controllers: list[str], coordinators: list[str], partition: tuple[int, int]
) -> None:
    metadata, _ = rpcs()
    with came_by(name):
        told = asyncio.run(metadata.metadata(MetadataRequest(all_topics=True), None))
    for nodes, wanted in ((told.brokers, brokers), (told.controllers, controllers), (told.coordinators, coordinators)):
        assert [f"{node.endpoint.host}:{node.endpoint.port}" for node in nodes] == wanted
    (only,) = told.topics[0].partitions
    assert (only.error_code, only.leader) == partition


def test_a_broker_has_a_kafka_endpoint_where_the_host_is_the_same() -> None:
    metadata, _ = rpcs()
    with came_by("OUT"):
        told = asyncio.run(metadata.metadata(MetadataRequest(), None))
    assert [(broker.kafka_endpoint.host, broker.kafka_endpoint.port) for broker in told.brokers] == [("localhost", 2)]
    told = asyncio.run(metadata.metadata(MetadataRequest(), None))
    assert [broker.HasField("kafka_endpoint") for broker in told.brokers] == [False, False]


def test_a_coordinator_that_the_caller_cannot_dial_is_not_available() -> None:
    _, find = rpcs()
    request = FindCoordinatorRequest(keys=["group"])
    (found,) = asyncio.run(find.find_coordinator(request, None)).coordinators
    assert (found.node.endpoint.host, found.error_code) == ("c7", 0)
    with came_by("OUT"):
        (found,) = asyncio.run(find.find_coordinator(request, None)).coordinators
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert found.error_message == "coordinator 7 has no listener OUT"
