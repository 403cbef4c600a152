"""Starts brokers for the tests of this directory."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from klamm.wire.v1.controller_rpc import ADMIN, CONTROLLER
from klamm_broker.server import BrokerServer
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.net.listeners import plain_listeners
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.disk import Disk
from klamm_server.security.acls.authorizer import StandardAuthorizer
from tests.support.broker_harness import MESSAGE_BYTES_MAX, RunningBroker, ScriptedController, StartBroker, serving


@pytest.fixture
def start_broker(tmp_path: Path) -> StartBroker:
    """Returns a function for `async with start_broker() as (broker, controller)`.

    `controller=` takes one from an earlier start, and `configs=` the settings that differ from the defaults.
    """
    rng = random.Random(7)

    @contextlib.asynccontextmanager
    async def start(
        *,
        controller: ScriptedController | None = None,
        configs: Mapping[str, str] | None = None,
        disk: Disk | None = None,
        authorizer: StandardAuthorizer | None = None,
    ) -> AsyncIterator[tuple[RunningBroker, ScriptedController]]:
        scripted = controller or ScriptedController()
        async with serving({CONTROLLER: scripted, ADMIN: scripted}) as controller_port:
            properties = {
                "node.id": "1",
                "listeners": "GRPC://localhost:0",
                "controller.quorum.bootstrap.servers": f"localhost:{controller_port}",
                "log.dirs": str(tmp_path / "data"),
                "broker.heartbeat.interval.ms": "100",
                "initial.broker.registration.timeout.ms": "60000",
                "socket.request.max.bytes": str(MESSAGE_BYTES_MAX),
                **(configs or {}),
            }
            server = BrokerServer(
                load(BrokerConfig, properties),
                disk=disk,
                rng=rng,
                authorizer=authorizer,
            )
            rpc = RpcServer(max_message_bytes=MESSAGE_BYTES_MAX, max_concurrent_rpcs=10_000)
            await server.open()
            server.register(rpc)
            port = await rpc.start("localhost", 0)
            broker = RunningBroker(server, rpc, port)
            try:
                await server.start(plain_listeners("localhost", port))
                yield broker, scripted
            finally:
                await broker.stop()

    return start
