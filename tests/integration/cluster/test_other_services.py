"""Tests what a gRPC client learns that calls a service at a server of another kind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from grpc import aio

from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import plain_listeners
from klamm_server.rpc.other_services import ADDRESSES_MAX, KnownServers, OtherServices, Role
from klamm_server.rpc.server import RpcServer
from tests.support.coordinator_cluster import HOST, Cluster, cluster

CALLS = {
    "Admin/DescribeCluster": "controller",
    "Controller/RegisterBroker": "controller",
    "Raft/Introduce": "controller",
    "Broker/Metadata": "broker",
    "Replication/ReplicaFetch": "broker",
    "Coordinator/ListGroups": "coordinator",
}


def ports_of(running: Cluster) -> dict[str, int]:
    [coordinator] = running.coordinators.values()
    return {"controller": running.controller.port, "broker": running.broker.port, "coordinator": coordinator.port}


async def refusal(port: int, path: str) -> tuple[grpc.StatusCode, str]:
    """Calls `path` with an empty request. Returns the status of the call and its text."""
    async with aio.insecure_channel(f"{HOST}:{port}") as channel:
        with pytest.raises(grpc.RpcError) as refused:
            await channel.unary_unary(f"/klamm.v1.{path}")(b"")
    return refused.value.code(), refused.value.details()


def test_each_server_names_the_servers_that_have_a_service(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            ports = ports_of(running)
            for own, port in ports.items():
                for path, role in CALLS.items():
                    if role == own:
                        continue
                    service = path.partition("/")[0]
                    text = (
                        f"this {own} does not have the service klamm.v1.{service}: call a {role} ({HOST}:{ports[role]})"
                    )
                    assert await refusal(port, path) == (grpc.StatusCode.UNIMPLEMENTED, text)

    asyncio.run(scenario())


def test_a_call_that_no_server_has_gets_the_text_of_grpc(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            for path in ("Broker/Drink", "Tea/Drink"):
                assert await refusal(running.broker.port, path) == (
                    grpc.StatusCode.UNIMPLEMENTED,
                    "Method not found!",
                )

    asyncio.run(scenario())


def test_a_call_between_servers_names_the_listener_of_the_servers() -> None:
    async def scenario() -> None:
        rpc = RpcServer(max_message_bytes=1_000, max_concurrent_rpcs=10, servers_listener="INTERNAL")
        rpc.add_role(Role.CONTROLLER, KnownServers(MetadataImage.empty))
        port = await rpc.start(HOST, 0, "CLIENTS")
        try:
            code, text = await refusal(port, "Raft/Introduce")
            assert code is grpc.StatusCode.UNIMPLEMENTED
            assert text == "only servers call /klamm.v1.Raft/Introduce, at the listener INTERNAL"
        finally:
            await rpc.stop(0)

    asyncio.run(scenario())


def test_the_active_controller_is_the_first_of_at_most_five_addresses() -> None:
    controllers = [plain_listeners("host", 9_000 + number) for number in range(ADDRESSES_MAX + 1)]
    services = OtherServices(None)
    services.add(Role.BROKER, KnownServers(MetadataImage.empty, lambda: controllers))
    assert services.refusal("/klamm.v1.Admin/CreateTopics", "GRPC") == (
        "this broker does not have the service klamm.v1.Admin: call a controller"
        " (host:9000, host:9001, host:9002, host:9003, host:9004, the active controller first)"
    )
    assert services.refusal("/klamm.v1.Coordinator/Heartbeat", "GRPC") == (
        "this broker does not have the service klamm.v1.Coordinator: call a coordinator"
        " (no address of a coordinator is known for the listener GRPC)"
    )
    assert services.refusal("/klamm.v1.Broker/Metadata", "GRPC") is None
