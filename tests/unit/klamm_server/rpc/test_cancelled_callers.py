"""Tests that a task that calls another server ends when cancelled, even if the transport returns a status for it.

gRPC can do that when a cancellation meets the end of a call. A server that waits for such a task could never stop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from klamm.rpc.transport import Transport
from klamm.wire.v1.controller_pb2 import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    CreateTopicsRequest,
)
from klamm.wire.v1.controller_rpc import AdminStub, ControllerStub
from klamm.wire.v1.coordinator_pb2 import HeartbeatRequest
from klamm.wire.v1.coordinator_rpc import CoordinatorStub
from klamm.wire.v1.raft_pb2 import RaftEnvelope
from klamm_broker.io.controller_calls import ControllerCalls
from klamm_broker.io.replica_records import ReplicaRecords
from klamm_broker.io.transaction_registry import TransactionRegistry
from klamm_broker.kafka.cold.forwarding import ActiveController, Coordinators
from klamm_broker.metadata.metadata_waiters import MetadataWaiters
from klamm_broker.metadata.topic_creator import TopicCreator
from klamm_broker.replica.follower_session import FetchBounds
from klamm_broker.replica.replication_quota import ReplicationQuota
from klamm_broker.replication.replica_fetcher import ReplicaFetcher
from klamm_controller.io.introductions import Introductions
from klamm_controller.io.peer_link import PeerLink
from klamm_controller.raft.messages import ReplicaKey, TimeoutNowRequest
from klamm_coordinator.group_shard.shard_topic import OFFSETS
from klamm_coordinator.io.log_link import LogLink
from klamm_coordinator.io.marker_destinations import MarkerDestinations
from klamm_coordinator.io.marker_sender import MarkerSender
from klamm_coordinator.io.txn_registry import TxnRegistry
from klamm_coordinator.io.write_memory import WriteMemory
from klamm_coordinator.runtime.log_write import TxnProducer
from klamm_coordinator.transaction.messages import SendMarkers
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch
from klamm_server.links.metadata_link import MetadataLink
from klamm_server.links.producer_ids import ProducerIds
from klamm_server.links.registration import CoordinatorRegistrant, Registration
from klamm_server.metadata.entities import ShardImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import plain_listeners
from klamm_server.rpc.broker_channels import BrokerChannels
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.coordinator_channels import CoordinatorChannels
from klamm_server.runtime.clock import SystemClock
from tests.support.slipping_transport import SlippingTransport, end_by_one_cancellation

LONG_MS = 600_000
TP = TopicPartition("t", 0)
CONTROLLERS = [("127.0.0.1", 1), ("127.0.0.1", 2)]
(OWN,) = plain_listeners("127.0.0.1", 3)
ME, OTHER = ReplicaKey(1, "a"), ReplicaKey(2, "b")


class Image:
    """Metadata in which one broker leads every partition, and one coordinator owns every shard."""

    def __init__(self) -> None:
        server = SimpleNamespace(host="127.0.0.1", port=3, fenced=False, listeners=(OWN,))
        self.brokers = self.coordinators = {1: server}
        self.shards = {(name, 0): SimpleNamespace(coordinator_id=1) for name in INTERNAL}

    def topic(self, name: str) -> Any:
        return SimpleNamespace(partitions=[0])

    def partition(self, topic: str, partition: int) -> Any:
        return SimpleNamespace(leader=1, leader_epoch=0)

    def live_coordinators(self) -> list[Any]:
        return list(self.coordinators.values())


INTERNAL = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)


def image() -> Any:
    return Image()


async def ignore(*_: Any) -> None:
    pass


def log_link(transport: Transport) -> LogLink:
    return LogLink(
        OFFSETS,
        0,
        ShardImage(coordinator_id=1, producer_id=7, writer_epoch=0),
        BrokerChannels(transport, image, OWN),
        clock=SystemClock(),
        rng=random.Random(1),
        append_max_bytes=1_000,
        load_buffer_bytes=1_000,
        load_slots=asyncio.Semaphore(1),
        memory=WriteMemory(1 << 30),
    )


async def claim(transport: Transport) -> None:
    await log_link(transport).claim()


async def load(transport: Transport) -> None:
    await log_link(transport).load(0, 1, ignore)


def metadata_link(transport: Transport) -> MetadataLink:
    return MetadataLink(
        transport, Controllers(CONTROLLERS), cluster_id="", on_image=ignore, clock=SystemClock(), rng=random.Random(1)
    )


async def follow_metadata(transport: Transport) -> None:
    await metadata_link(transport).run()


async def register(transport: Transport) -> None:
    listeners = plain_listeners("127.0.0.1", 4)
    registration = Registration(
        CoordinatorRegistrant(coordinator_id=1, incarnation_id=bytes(16), listeners=listeners),
        transport,
        Controllers(CONTROLLERS),
        link=metadata_link(transport),
        cluster_id="",
        clock=SystemClock(),
        heartbeat_interval_ms=LONG_MS,
        request_timeout_ms=LONG_MS,
        registration_timeout_ms=LONG_MS,
        rng=random.Random(1),
    )
    await registration.register()


async def introduce(transport: Transport) -> None:
    introductions = Introductions(
        transport,
        ME,
        "127.0.0.1:4",
        [],
        cluster_id="c",
        contacts=["127.0.0.1:5"],
        voter_ids=[],
        learn=lambda key, address: None,
        rng=random.Random(1),
    )
    await introductions.run()


async def send_to_peer(transport: Transport) -> None:
    link = PeerLink(transport, "127.0.0.1:5", make_envelope=lambda _: RaftEnvelope(), rng=random.Random(1))

    async def keep_sending() -> None:
        while True:
            link.send(TimeoutNowRequest(sender=ME, receiver=OTHER, term=1))
            await asyncio.sleep(0)

    sending = asyncio.ensure_future(keep_sending())
    try:
        await link.run()
    finally:
        sending.cancel()


async def create_topics(transport: Transport) -> None:
    creator = TopicCreator(
        transport, Controllers(CONTROLLERS), MetadataWaiters(MetadataImage.empty), timeout_ms=LONG_MS
    )
    creator.create("a")
    await creator.run()


async def allocate_producer_ids(transport: Transport) -> None:
    ids = ProducerIds(transport, Controllers(CONTROLLERS), AllocateProducerIdsRequest, timeout_ms=LONG_MS)
    await ids.next()


async def add_shard_to_transaction(transport: Transport) -> None:
    registry = TxnRegistry(CoordinatorChannels(transport, image, OWN), image)
    await registry.add("payments", TxnProducer(7, 1), TP, verify_only=False)


async def add_partition_to_transaction(transport: Transport) -> None:
    registry = TransactionRegistry(
        transport, image, OWN, SystemClock(), timeout_ms=LONG_MS, retry_backoff_ms=1, retry_backoff_max_ms=1
    )
    await registry.add("payments", 7, 1, [TP], False)


async def send_markers(transport: Transport) -> None:
    """Sends markers until cancelled, like the request that `MarkerSender.close` cancels."""
    destinations = MarkerDestinations(
        BrokerChannels(transport, image, OWN), CoordinatorChannels(transport, image, OWN), image
    )
    sender = MarkerSender(destinations, random.Random(1))
    markers = SendMarkers(
        transactional_id="payments",
        marker=ProducerIdAndEpoch(7, 1),
        committed=True,
        transaction_version=2,
        partitions=frozenset([TP]),
    )
    sender.send(markers, coordinator_epoch=1, owner=None, on_written=lambda: None)
    (request,) = (task for task in asyncio.all_tasks() if task.get_name() == "markers")
    try:
        await request
    finally:
        await sender.close()


async def read_from_replica(transport: Transport) -> None:
    records = ReplicaRecords(transport, lambda broker_id: ("127.0.0.1", 3), receive_max_bytes=1_000)
    await records.fetch(1, TP, 0, leader_epoch=0, from_follower=False)


async def fetch_from_leader(transport: Transport) -> None:
    ports = SimpleNamespace(
        broker_epoch=1,
        address=lambda broker_id: ("127.0.0.1", 3),
        kafka_listener=lambda broker_id: None,
        next_session_id=lambda: 1,
        on_update=None,
    )
    fetcher = ReplicaFetcher(
        transport,
        broker_id=1,
        leader=2,
        ports=ports,
        bounds=FetchBounds(max_wait_ms=500, min_bytes=1, max_bytes=1_000, partition_max_bytes=1_000),
        quota=ReplicationQuota(),
        backoff_ms=10,
        receive_max_bytes=1_000,
        clock=SystemClock(),
        rng=random.Random(1),
    )
    await fetcher.run()


async def call_controller(transport: Transport) -> None:
    calls = ControllerCalls(transport, Controllers(CONTROLLERS), timeout_ms=LONG_MS, rng=random.Random(1))
    while await calls.attempt(ControllerStub.alter_partition, AlterPartitionRequest()) is None:
        pass


async def forward_to_controller(transport: Transport) -> None:
    controller = ActiveController(
        transport, Controllers(CONTROLLERS), MetadataWaiters(MetadataImage.empty), SystemClock(), random.Random(1)
    )
    await controller.ask(AdminStub.create_topics, CreateTopicsRequest(), timeout_ms=LONG_MS)


async def forward_to_coordinator(transport: Transport) -> None:
    coordinators = Coordinators(transport, image, OWN)
    await coordinators.ask(GROUP_METADATA_TOPIC, "g", CoordinatorStub.heartbeat, HeartbeatRequest(), timeout_ms=LONG_MS)


@pytest.mark.parametrize(
    "call",
    [
        claim,
        load,
        follow_metadata,
        register,
        introduce,
        send_to_peer,
        create_topics,
        allocate_producer_ids,
        add_shard_to_transaction,
        add_partition_to_transaction,
        send_markers,
        read_from_replica,
        fetch_from_leader,
        call_controller,
        forward_to_controller,
        forward_to_coordinator,
    ],
    ids=lambda call: call.__name__,
)
def test_a_cancelled_task_that_calls_another_server_ends(
    call: Callable[[Transport], Coroutine[Any, Any, None]],
) -> None:
    async def scenario() -> None:
        transport = SlippingTransport()
        await end_by_one_cancellation(transport, call(transport))

    asyncio.run(asyncio.wait_for(scenario(), 60))
