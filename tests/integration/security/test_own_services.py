"""Tests that one address cannot take all places of gRPC's own services, health and reflection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from klamm_server.rpc import own_services
from klamm_server.rpc.server import RpcServer
from tests.support.source_relay import relayed
from tests.support.waiting import until

HOST = "127.0.0.1"


async def watch(channel: aio.Channel) -> Any:
    return health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())


async def reflect(channel: aio.Channel) -> Any:
    """Asks for the services, and leaves the call open."""
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    return call


@pytest.mark.parametrize("begin", [watch, reflect])
def test_an_address_has_a_share_of_the_calls_that_last(
    monkeypatch: pytest.MonkeyPatch, begin: Callable[[aio.Channel], Awaitable[Any]]
) -> None:
    monkeypatch.setattr(own_services, "LASTING_MAX", 4)

    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as stack:
            rpc = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100)
            port = await rpc.start(HOST, 0)
            stack.push_async_callback(rpc.stop, 0)
            greedy = await stack.enter_async_context(aio.insecure_channel(f"{HOST}:{port}"))
            calls = [await begin(greedy) for _ in range(3)]
            for call in calls:
                assert await call.read()
            with pytest.raises(aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
                await (await begin(greedy)).read()

            there = await stack.enter_async_context(relayed(f"{HOST}:{port}", source="127.0.0.2"))
            modest = await stack.enter_async_context(aio.insecure_channel(f"{HOST}:{there}"))
            other = await begin(modest)
            assert await other.read()
            for _ in range(2):
                calls.pop().cancel()

            async def is_free() -> bool:
                with contextlib.suppress(aio.AioRpcError):
                    calls.append(await begin(greedy))
                    return bool(await calls[-1].read())
                return False

            await until(is_free)
            for call in [*calls, other]:
                call.cancel()

    asyncio.run(scenario())
