"""Tests servers without gRPC: only the transport passed to them carries their calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from klamm import AsyncAdmin, AsyncConsumer, AsyncProducer, NewTopic
from klamm_broker.server import BrokerServer
from klamm_controller.config import ControllerConfig
from klamm_controller.server import ControllerServer
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.server import CoordinatorServer
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.main import Server
from klamm_server.net.listeners import plain_listeners
from klamm_server.rpc.server import RpcServer
from tests.support.memory_transport import FIRST_PORT, MemoryTransport
from tests.support.waiting import patience

HOST = "127.0.0.1"
CONTROLLER_PORT = 49_000


class Served:
    """A server that listens in memory."""

    def __init__(self, server: Server, transport: MemoryTransport) -> None:
        self._server = server
        self._rpc = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100, transport=transport)
        self.port = 0

    async def start(self, port: int = 0) -> None:
        await self._server.open()
        self._server.register(self._rpc)
        self.port = await self._rpc.start(HOST, port)
        await self._server.start(plain_listeners(HOST, self.port))

    async def stop(self) -> None:
        await self._server.stop()
        await self._rpc.stop(0)


def settings(node_id: int, **others: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in others.items()}
    return {"node.id": str(node_id), "listeners": f"GRPC://{HOST}:0", **named}


def servers(tmp_path: Path, transport: MemoryTransport) -> list[tuple[Server, int]]:
    """Returns a controller, two brokers and a coordinator with the port of each. The port 0 means any port."""
    controllers = {"controller_quorum_bootstrap_servers": f"{HOST}:{CONTROLLER_PORT}"}
    internal = {"offsets_topic_num_partitions": "2", "offsets_topic_replication_factor": "1"}
    controller = load(ControllerConfig, settings(1, metadata_log_dir=str(tmp_path / "controller"), **internal))
    brokers = [
        load(BrokerConfig, settings(node_id, log_dirs=str(tmp_path / f"broker-{node_id}"), **controllers))
        for node_id in (1, 2)
    ]
    coordinator = load(CoordinatorConfig, {**settings(1, **controllers), "group.initial.rebalance.delay.ms": "0"})
    return [
        (ControllerServer(controller, transport=transport), CONTROLLER_PORT),
        *((BrokerServer(broker, transport=transport), 0) for broker in brokers),
        (CoordinatorServer(coordinator, transport=transport), 0),
    ]


async def use() -> None:
    """Produces a record to two replicas. A member of a group reads and commits it."""
    config = {"bootstrap.servers": f"{HOST}:{FIRST_PORT}"}
    async with AsyncAdmin(config) as admin:
        topic = NewTopic("t", 1, 2, configs={"min.insync.replicas": "2"})
        await admin.create_topics([topic])
    async with AsyncProducer({**config, "acks": "all"}) as producer:
        await producer.send_and_wait("t", b"value", key=b"key")
    group = {**config, "group.id": "g", "auto.offset.reset": "earliest"}
    async with AsyncConsumer(group) as consumer:
        consumer.subscribe(["t"])
        record = await anext(aiter(consumer))
        assert (record.key, record.value) == (b"key", b"value")
        await consumer.commit()


def test_a_cluster_and_its_clients_run_on_the_memory_transport_without_grpc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("gRPC is used")

    transport = MemoryTransport()
    monkeypatch.setattr(aio, "insecure_channel", refuse)
    monkeypatch.setattr(aio, "server", refuse)
    monkeypatch.setattr("klamm.cluster.client.GrpcTransport", lambda **_: transport)

    async def scenario() -> None:
        running: list[Served] = []
        try:
            for server, port in servers(tmp_path, transport):
                running.append(Served(server, transport))
                await running[-1].start(port)
            await use()
        finally:
            for served in reversed(running):
                await served.stop()

    asyncio.run(asyncio.wait_for(scenario(), patience()))
    used = {path.rpartition("/")[2] for path in transport.calls}
    assert {"WatchMetadata", "ReplicaFetch", "Produce", "Fetch", "OffsetCommit", "HoldSession"} <= used, used
