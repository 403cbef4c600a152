"""Tests that no call waits for the answer of a broker that the controller has fenced."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.rpc.grpc_transport import GrpcTransport
from klamm.rpc.options import SERVERS
from klamm.wire.v1.broker_pb2 import FindCoordinatorRequest, FindCoordinatorResponse
from klamm.wire.v1.broker_rpc import BROKER
from klamm_server.rpc.channels import Channels
from klamm_server.rpc.server import RpcServer

HOST = "127.0.0.1"
REQUEST = FindCoordinatorRequest(keys=["g"])


class Hanging:
    """A broker that does not answer until `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.asked = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        async def answer(request: Any, context: Any) -> FindCoordinatorResponse:
            self.asked.set()
            await self.go_on.wait()
            return FindCoordinatorResponse()

        return answer


@contextlib.asynccontextmanager
async def serving(*brokers: Hanging) -> AsyncIterator[tuple[Channels, list[str]]]:
    """Yields channels to the running brokers, and the brokers' addresses."""
    servers = [RpcServer(max_message_bytes=2**20, max_concurrent_rpcs=10) for _ in brokers]
    addresses = []
    for server, broker in zip(servers, brokers, strict=True):
        server.add_service(BROKER, broker)
        addresses.append(f"{HOST}:{await server.start(HOST, 0)}")
    channels = Channels(GrpcTransport(), BROKER, SERVERS)
    try:
        yield channels, addresses
    finally:
        await channels.close()
        for server in servers:
            await server.stop(0)


def test_calls_to_a_fenced_server_fail_at_once_and_calls_to_other_servers_continue():
    async def scenario() -> None:
        fenced, live = Hanging(), Hanging()
        async with serving(fenced, live) as (channels, addresses):
            calls = [
                asyncio.create_task(channels.stub(address).find_coordinator(REQUEST, timeout_ms=300_000))
                for address in addresses
            ]
            await asyncio.gather(fenced.asked.wait(), live.asked.wait())
            channels.end_calls_except({addresses[1]})
            with pytest.raises(EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION], match=addresses[0]):
                await calls[0]
            live.go_on.set()
            assert await calls[1] == FindCoordinatorResponse()
            fenced.go_on.set()
            again = channels.stub(addresses[0]).find_coordinator(REQUEST, timeout_ms=300_000)
            assert await again == FindCoordinatorResponse()

    asyncio.run(scenario())


def test_cancelling_a_call_raises_cancelled_error():
    async def scenario() -> None:
        broker = Hanging()
        async with serving(broker) as (channels, (address,)):
            call = asyncio.create_task(channels.stub(address).find_coordinator(REQUEST, timeout_ms=300_000))
            await broker.asked.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(scenario())
