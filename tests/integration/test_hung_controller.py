"""What a client learns of a cluster one of whose controllers takes connections and never answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from klamm import AsyncAdmin
from klamm.wire.service import ADMIN, BROKER
from klamm.wire.v1.broker_pb2 import MetadataResponse
from klamm.wire.v1.common_pb2 import Endpoint, Node
from klamm.wire.v1.controller_pb2 import DescribeClusterResponse
from klamm_server.rpc_server import RpcServer


class Servicer:
    """A broker and a controller at one address, which know of the controller that hangs."""

    def __init__(self, hung_port: int) -> None:
        self._hung_port = hung_port
        self.port = 0

    def __getattr__(self, name):
        async def unused(request, context):
            raise AssertionError(f"{name} was called")

        return unused

    async def metadata(self, request, context):
        here, hung = (Endpoint(host="127.0.0.1", port=port) for port in (self.port, self._hung_port))
        return MetadataResponse(
            cluster_id="the-cluster",
            brokers=[Node(node_id=1, endpoint=here)],
            controllers=[Node(node_id=1, endpoint=hung), Node(node_id=2, endpoint=here)],
        )

    async def describe_cluster(self, request, context):
        return DescribeClusterResponse(cluster_id="the-cluster", controller_id=-1)


def test_the_next_controller_is_asked_while_there_is_time():
    async def describe():
        async with contextlib.AsyncExitStack() as stack:
            hung = stack.enter_context(contextlib.closing(socket.create_server(("127.0.0.1", 0))))
            servicer = Servicer(hung.getsockname()[1])
            server = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=10)
            stack.push_async_callback(server.stop, 0)
            for service in (BROKER, ADMIN):
                server.add_service(service, servicer)
            servicer.port = await server.start("127.0.0.1", 0)
            admin = await stack.enter_async_context(AsyncAdmin({"bootstrap.servers": f"127.0.0.1:{servicer.port}"}))
            return await admin.describe_cluster(timeout_ms=8_000)

    found = asyncio.run(describe())
    assert (found.cluster_id, found.controller_id) == ("the-cluster", -1)
