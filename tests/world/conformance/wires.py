"""A server and a client that reach each other by gRPC, or in a simulated world. The same scenarios run on both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from klamm.rpc.grpc_transport import GrpcTransport
from klamm.rpc.options import SERVERS
from klamm.rpc.transport import Channel, Transport
from klamm_server.rpc.grpc_server import GrpcServerTransport
from klamm_server.rpc.transport import Handler, ServerLimits, ServerTransport, TransportServer
from tests.support.waiting import patience
from tests.world.kernel import World
from tests.world.network import Network
from tests.world.process import SimProcess
from tests.world.transport import SimTransport

LIMITS = ServerLimits(receive_max_bytes=100_000, concurrent_calls_max=10, connections_max=10)
OPTIONS = replace(SERVERS, receive_max_bytes=100_000, reconnect_backoff_ms=100, reconnect_backoff_max_ms=200)
LISTENER = "SERVERS"
VIRTUAL_PATIENCE_S = 300


@dataclass
class Client:
    """What a scenario has."""

    transport: Transport
    address: str
    """The address of the server, as host:port."""
    stop_server: Callable[[float], Coroutine[Any, Any, None]]
    """Stops the server with a grace in seconds, and returns when it has stopped."""

    def channel(self) -> Channel:
        return self.transport.channel(self.address, OPTIONS)


Scenario = Callable[[Client], Awaitable[None]]
Refusal = Callable[[str, str], str | None]


async def listening(
    transport: ServerTransport, handlers: Sequence[Handler], refusal: Refusal | None
) -> tuple[TransportServer, int]:
    server = transport.server(LIMITS)
    return server, await server.listen("127.0.0.1", 0, LISTENER, handlers, refusal=refusal)


def run_over_grpc(scenario: Scenario, handlers: Sequence[Handler] = (), refusal: Refusal | None = None) -> None:
    async def run() -> None:
        async with asyncio.timeout(patience()):
            server, port = await listening(GrpcServerTransport(), handlers, refusal)
            try:
                await scenario(Client(GrpcTransport(), f"127.0.0.1:{port}", server.stop))
            finally:
                await server.stop(0)

    asyncio.run(run())


def run_in_a_world(scenario: Scenario, handlers: Sequence[Handler] = (), refusal: Refusal | None = None) -> None:
    """Runs the server and the scenario in two processes on two hosts."""
    world = World(1)
    network = Network(world)
    server_process = network.host("server").start(lambda _: None)
    client_process = network.host("client").start(lambda _: None)
    listens = server_process.spawn(listening(SimTransport(network, server_process), handlers, refusal), "listen")
    assert world.run(VIRTUAL_PATIENCE_S, listens.done)
    server, port = listens.result()

    async def stop(grace_s: float) -> None:
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        server_process.spawn(server.stop(grace_s), "stop").add_done_callback(lambda _: stopped.set_result(None))
        await stopped

    client = Client(SimTransport(network, client_process), f"server:{port}", stop)
    played = client_process.spawn(_awaited(scenario(client)), "scenario")
    try:
        assert world.run(VIRTUAL_PATIENCE_S, played.done), "the scenario does not end"
        played.result()
        assert not world.errors, world.errors
    finally:
        _end(world, server_process.spawn(server.stop(0), "end"), client_process, server_process)


async def _awaited(scenario: Awaitable[None]) -> None:
    await scenario


def _end(world: World, stopping: asyncio.Task[Any], *processes: SimProcess) -> None:
    """Stops the server and cancels what is left, so that no task is destroyed while it waits."""
    world.run(VIRTUAL_PATIENCE_S, stopping.done)
    for process in processes:
        for task in asyncio.all_tasks(process.loop):
            process.loop.call_soon(task.cancel)
    world.run(VIRTUAL_PATIENCE_S)
