"""Tests a client of a cluster whose controllers mostly accept connections and never answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from klamm import AsyncAdmin
from klamm.wire.v1.broker_pb2 import MetadataResponse
from klamm.wire.v1.broker_rpc import BROKER
from klamm.wire.v1.common_pb2 import Endpoint, Node
from klamm.wire.v1.controller_pb2 import DescribeClusterResponse
from klamm.wire.v1.controller_rpc import ADMIN
from klamm_server.rpc.server import RpcServer


class Servicer:
    """A broker and a controller at one address, which know the hanging controllers."""

    def __init__(self, hung_ports: list[int]) -> None:
        self._hung_ports = hung_ports
        self._metadata_count = 0
        self.port = 0

    def __getattr__(self, name):
        async def unused(request, context):
            raise AssertionError(f"{name} was called")

        return unused

    async def metadata(self, request, context):
        self._metadata_count += 1
        if self._metadata_count % 2 == 0:  # the client asks for it twice after each failure: then in another order
            self._hung_ports.reverse()
        here = Endpoint(host="127.0.0.1", port=self.port)
        hung = [Endpoint(host="127.0.0.1", port=port) for port in self._hung_ports]
        return MetadataResponse(
            cluster_id="the-cluster",
            brokers=[Node(node_id=1, endpoint=here)],
            controllers=[Node(node_id=port, endpoint=each) for port, each in enumerate([*hung, here])],
        )

    async def describe_cluster(self, request, context):
        return DescribeClusterResponse(cluster_id="the-cluster", controller_id=-1)


def test_an_admin_asks_the_next_controller_when_one_hangs():
    async def describe():
        async with contextlib.AsyncExitStack() as stack:
            hung = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
            servicer = Servicer([each.getsockname()[1] for each in hung])
            server = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=10)
            stack.push_async_callback(server.stop, 0)
            for service in (BROKER, ADMIN):
                server.add_service(service, servicer)
            servicer.port = await server.start("127.0.0.1", 0)
            admin = await stack.enter_async_context(AsyncAdmin({"bootstrap.servers": f"127.0.0.1:{servicer.port}"}))
            return await admin.describe_cluster(timeout_ms=9_000)

    found = asyncio.run(describe())
    assert (found.cluster_id, found.controller_id) == ("the-cluster", -1)
