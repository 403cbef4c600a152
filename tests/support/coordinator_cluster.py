"""A controller, a broker and a coordinator on one event loop, each with a port of its own. They communicate by gRPC.

The coordinator can be stopped without notice (`crash`), started again, and joined by others.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from grpc import aio

from klamm.acls import ANONYMOUS
from klamm.errors import ErrorCode
from klamm.rpc.transport import Transport
from klamm.wire.v1.broker_pb2 import COORDINATOR_KEY_TYPE_GROUP, CoordinatorKeyType, FindCoordinatorRequest
from klamm.wire.v1.broker_rpc import BROKER
from klamm.wire.v1.controller_pb2 import CreateTopicsRequest, DeleteTopicsRequest, NewTopic
from klamm.wire.v1.controller_rpc import ADMIN
from klamm.wire.v1.coordinator_rpc import COORDINATOR
from klamm_broker.server import BrokerServer
from klamm_controller.config import ControllerConfig
from klamm_controller.server import ControllerServer
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.io.log_link import LogLink
from klamm_coordinator.io.write_memory import WriteMemory
from klamm_coordinator.runtime.shard_topic import ShardTopic
from klamm_coordinator.server import CoordinatorServer
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.metadata.entities import ShardImage
from klamm_server.net.listeners import plain_listeners
from klamm_server.rpc.broker_channels import BrokerChannels
from klamm_server.rpc.grpc_server import GrpcServerTransport
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.acls.authorizer import StandardAuthorizer
from tests.support.raw_stub import RawStub
from tests.support.waiting import patience, until

HOST = "127.0.0.1"
SHARD_COUNT = 8


class Running:
    """A server and its port."""

    def __init__(self, server: Any, rpc: RpcServer, port: int) -> None:
        self.server = server
        self.rpc = rpc
        self.port = port

    async def stop(self) -> None:
        await self.server.stop()
        await self.rpc.stop(0)

    async def crash(self) -> None:
        """Ends the server so that it looks like a kill -9 from outside: without farewell messages, and with broken
        connections."""
        await self.rpc.stop(0)
        self.server._registration = None  # nothing to hand over
        await self.server.stop()


async def run(server: Any, port: int = 0, host: str = HOST) -> Running:
    """Opens, registers and starts a server."""
    rpc = RpcServer(max_message_bytes=100 * 1024**2, max_concurrent_rpcs=10_000)
    await server.open()
    server.register(rpc)
    bound_port = await rpc.start(host, port)
    await server.start(plain_listeners(host, bound_port))
    return Running(server, rpc, bound_port)


class Cluster:
    """A cluster with `coordinators`, by id. With an `authorizer`, the coordinators use it, and the controller treats
    every caller as a super user. If the authorizer is `of_all`, every server uses it, and the broker has a listener for
    Kafka clients."""

    def __init__(
        self,
        data_dir: Path,
        *,
        authorizer: StandardAuthorizer | None = None,
        of_all: bool = False,
        **coordinator_settings: str,
    ) -> None:
        self._data_dir = data_dir
        self._authorizer = authorizer
        self._of_all = of_all
        self._settings = {
            "group.min.session.timeout.ms": "100",
            "group.initial.rebalance.delay.ms": "200",
            **coordinator_settings,
        }
        self._channels: dict[int, aio.Channel] = {}
        self.coordinators: dict[int, Running] = {}

    async def start(self, *, with_coordinator: bool) -> None:
        self.controller = await self._start_controller()
        self.broker = await self._start_broker()
        if with_coordinator:
            await self.start_coordinator(1)
        self.admin = RawStub(self._channel(self.controller.port), ADMIN)

    async def stop(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        for running in [*self.coordinators.values(), self.broker, self.controller]:
            await running.stop()

    async def start_coordinator(
        self, coordinator_id: int, *, port: int = 0, transport: Transport | None = None
    ) -> Running:
        properties = {
            "node.id": str(coordinator_id),
            "controller.quorum.bootstrap.servers": f"{HOST}:{self.controller.port}",
            "broker.heartbeat.interval.ms": "100",
            **self._settings,
        }
        config = load(CoordinatorConfig, properties)
        running = await run(CoordinatorServer(config, transport=transport, authorizer=self._authorizer), port)
        self.coordinators[coordinator_id] = running
        return running

    async def restart_broker(self) -> None:
        port = self.broker.port
        await self.broker.stop()
        self.broker = await self._start_broker(port)

    async def _start_controller(self) -> Running:
        properties = {
            "node.id": "1",
            "listeners": f"GRPC://{HOST}:0",
            "metadata.log.dir": str(self._data_dir / "controller"),
            "offsets.topic.num.partitions": str(SHARD_COUNT),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": str(SHARD_COUNT),
            "transaction.state.log.replication.factor": "1",
        }
        anybody = StandardAuthorizer(super_users=[ANONYMOUS], allow_everyone_if_no_acl_found=True)
        authorizer = self._authorizer if self._of_all or self._authorizer is None else anybody
        return await run(ControllerServer(load(ControllerConfig, properties), authorizer=authorizer))

    async def _start_broker(self, port: int = 0) -> Running:
        properties = {
            "node.id": "1",
            "listeners": f"GRPC://{HOST}:0" + (",PLAINTEXT://127.0.0.1:0" if self._of_all else ""),
            "controller.quorum.bootstrap.servers": f"{HOST}:{self.controller.port}",
            "log.dirs": str(self._data_dir / "broker"),
            "broker.heartbeat.interval.ms": "100",
            "offsets.topic.num.partitions": str(SHARD_COUNT),
        }
        authorizer = self._authorizer if self._of_all else None
        return await run(BrokerServer(load(BrokerConfig, properties), authorizer=authorizer), port)

    # What a client does

    async def create_topic(self, name: str, partition_count: int = 1) -> None:
        request = CreateTopicsRequest(
            topics=[NewTopic(name=name, partition_count=partition_count, replication_factor=1)], timeout_ms=5_000
        )
        (created,) = (await self.admin.create_topics(request)).topics
        assert created.error_code == 0, created

    async def delete_topic(self, name: str) -> None:
        (deleted,) = (await self.admin.delete_topics(DeleteTopicsRequest(topics=[name], timeout_ms=5_000))).results
        assert deleted.error_code == 0, deleted

    async def coordinator_of(self, key: str, key_type: CoordinatorKeyType = COORDINATOR_KEY_TYPE_GROUP) -> RawStub:
        """Waits until a coordinator owns the group or transactional id, and returns its stub."""
        broker = self.broker_stub()
        request = FindCoordinatorRequest(key_type=key_type, keys=[key])

        async def find() -> RawStub | None:
            (found,) = (await broker.find_coordinator(request)).coordinators
            return None if found.error_code else RawStub(self._channel(found.node.endpoint.port), COORDINATOR)

        return await eventually(find)

    async def ask(
        self, key: str, rpc: str, request: Any, key_type: CoordinatorKeyType = COORDINATOR_KEY_TYPE_GROUP
    ) -> Any:
        """Calls the coordinator of the group or transactional id. Repeats the call while the error is in `NOT_YET`."""

        async def call() -> Any:
            response = await getattr(await self.coordinator_of(key, key_type), rpc)(request, timeout=patience())
            return None if error_of(response) in NOT_YET else response

        return await eventually(call)

    async def claim_for_a_successor(self, topic: ShardTopic, shard: int) -> None:
        """Claims the log of a shard as its next owner does. The present owner does not learn of it."""
        image = self.coordinators[1].server.loaded_image()
        current = image.shards[topic.name, shard]
        channels = BrokerChannels(
            GrpcServerTransport(tls=None), lambda: image, plain_listeners(HOST, self.broker.port)[0]
        )
        link = LogLink(
            topic,
            shard,
            ShardImage(coordinator_id=1, producer_id=current.producer_id, writer_epoch=current.writer_epoch + 1),
            channels,
            clock=SystemClock(),
            rng=random.Random(1),
            append_max_bytes=1_000_000,
            load_buffer_bytes=1_000_000,
            load_slots=asyncio.Semaphore(1),
            memory=WriteMemory(1 << 30),
        )
        await link.claim()
        await channels.close()

    def broker_stub(self) -> RawStub:
        return RawStub(self._channel(self.broker.port), BROKER)

    def coordinator(self, coordinator_id: int) -> RawStub:
        return RawStub(self._channel(self.coordinators[coordinator_id].port), COORDINATOR)

    def _channel(self, port: int) -> aio.Channel:
        if port not in self._channels:
            options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 100)]
            self._channels[port] = aio.insecure_channel(f"{HOST}:{port}", options=options)
        return self._channels[port]


NOT_YET = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


def error_of(response: Any) -> int:
    """Returns the error code of the response, or of its first part."""
    for name in ("partitions", "groups", "results", "transactions"):
        parts = getattr(response, name, None)
        if parts and hasattr(parts[0], "error_code"):
            return int(parts[0].error_code)
    return int(getattr(response, "error_code", 0))


async def eventually(find: Callable[[], Awaitable[Any]]) -> Any:
    """Returns the first result of `find` that is not None. A refused connection counts as no result."""

    async def ask() -> tuple[Any] | None:
        with contextlib.suppress(aio.AioRpcError):
            if (found := await find()) is not None:
                return (found,)
        return None

    (found,) = await until(ask, pause_s=0.02)
    return found


@contextlib.asynccontextmanager
async def cluster(
    data_dir: Path,
    *,
    with_coordinator: bool = True,
    authorizer: StandardAuthorizer | None = None,
    of_all: bool = False,
    **coordinator_settings: str,
) -> AsyncIterator[Cluster]:
    """Yields a running cluster with a topic `t` of four partitions."""
    running = Cluster(data_dir, authorizer=authorizer, of_all=of_all, **coordinator_settings)
    await running.start(with_coordinator=with_coordinator)
    try:
        await running.create_topic("t", 4)
        yield running
    finally:
        await running.stop()
