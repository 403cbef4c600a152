"""Tests waiting for topics that requests create."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from klamm.errors import ErrorCode
from klamm.rpc.grpc_transport import GrpcTransport
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.controller_rpc import ADMIN
from klamm_broker.metadata.metadata_waiters import MetadataWaiters
from klamm_broker.metadata.topic_creator import TopicCreator
from klamm_server.metadata.image import MetadataImage
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.server import RpcServer
from tests.support.waiting import settle, until

LONG_MS = 60_000


class CreatingController:
    """A controller that creates topics by record 41 when the test permits it. It refuses the topic `bad`."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def create_topics(self, request: Any, context: Any) -> Any:
        await self.may_answer.wait()
        code = ErrorCode.INVALID_REPLICATION_FACTOR if request.topics[0].name == "bad" else ErrorCode.NONE
        created = pb.CreatedTopic(name=request.topics[0].name, error_code=code)
        return pb.CreateTopicsResponse(topics=[created], metadata_end_index=0 if code else 42)


for method in ADMIN.methods:
    if not hasattr(CreatingController, method.name):
        setattr(CreatingController, method.name, None)


class World:
    """A broker's metadata, and a creator that asks a real server."""

    def __init__(self, controller: CreatingController, port: int) -> None:
        self.controller = controller
        self.image = MetadataImage.empty()
        self.waiters = MetadataWaiters(lambda: self.image)
        self.creator = TopicCreator(
            GrpcTransport(), Controllers([("127.0.0.1", port)]), self.waiters, timeout_ms=10_000
        )

    def publish(self, end_index: int) -> None:
        self.image = dataclasses.replace(self.image, end_index=end_index)
        self.waiters.wake()


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        controller = CreatingController()
        server = RpcServer(max_message_bytes=1_000_000, max_concurrent_rpcs=10)
        server.add_service(ADMIN, controller)
        world = World(controller, await server.start("127.0.0.1", 0))
        task = asyncio.create_task(world.creator.run())
        try:
            await scenario(world)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await server.stop(0)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_wait_for_a_created_topic_ends_when_the_brokers_metadata_has_the_topic() -> None:
    async def scenario(world: World) -> None:
        assert world.creator.create("a") is ErrorCode.LEADER_NOT_AVAILABLE
        waiting = asyncio.create_task(world.creator.created(["a", "never asked for"], timeout_ms=LONG_MS))
        world.controller.may_answer.set()
        world.publish(41)
        await until(lambda: not world.creator._pending)
        await settle()
        assert not waiting.done()
        world.publish(42)
        await waiting

    play(scenario)


def test_a_topic_whose_creation_was_refused_is_not_waited_for() -> None:
    async def scenario(world: World) -> None:
        world.creator.create("bad")
        world.controller.may_answer.set()
        await world.creator.created(["bad"], timeout_ms=LONG_MS)

    play(scenario)


def test_a_wait_for_a_created_topic_ends_at_its_timeout() -> None:
    async def scenario(world: World) -> None:
        world.creator.create("a")
        await world.creator.created(["a"], timeout_ms=1)
        world.controller.may_answer.set()
        waiting = asyncio.create_task(world.creator.created(["a"], timeout_ms=LONG_MS))
        world.publish(42)
        await waiting

    play(scenario)
