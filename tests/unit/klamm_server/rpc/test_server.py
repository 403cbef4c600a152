"""Tests which calls a server has at its listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.wire.v1.broker_rpc import REPLICATION
from klamm_server.rpc.server import RpcServer
from klamm_server.rpc.transport import Handler
from klamm_server.security.operations import UncheckedCallError
from tests.support.memory_transport import MemoryTransport


def test_a_service_with_a_call_without_a_check_is_refused() -> None:
    server = RpcServer(max_message_bytes=1_000, max_concurrent_rpcs=1, transport=MemoryTransport())
    service: Any = SimpleNamespace(methods=[SimpleNamespace(name="open", path="/klamm.v1.Vault/Open")])
    with pytest.raises(UncheckedCallError, match="Vault/Open"):
        server.add_service(service, SimpleNamespace(open=None))


@pytest.mark.parametrize(("servers_listener", "is_served"), [("INTERNAL", False), ("CLIENTS", True), (None, True)])
def test_a_listener_of_clients_lacks_the_calls_between_servers(servers_listener: str | None, is_served: bool) -> None:
    async def scenario() -> None:
        server = RpcServer(
            max_message_bytes=1_000,
            max_concurrent_rpcs=1,
            transport=Listening(),
            servers_listener=servers_listener,
        )
        names = [method.name for method in REPLICATION.methods]
        server.add_service(REPLICATION, SimpleNamespace(**dict.fromkeys(names)))
        await server.start("localhost", 0, "CLIENTS")

    class Listening(MemoryTransport):
        def server(self, limits: Any) -> Any:
            return SimpleNamespace(listen=self.listen)

        async def listen(
            self, bind: str, port: int, listener: str, handlers: Sequence[Handler], tls: Any, *, refusal: Any
        ) -> int:
            served = {handler.method.name for handler in handlers}
            assert "describe_server" in served
            assert ("replica_fetch" in served) == is_served
            return port

    asyncio.run(scenario())
