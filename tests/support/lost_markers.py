"""A gRPC transport on which requests to write markers are never answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from klamm.rpc.options import ChannelOptions
from klamm.rpc.transport import Channel, StreamCall, UnaryCall
from klamm.wire.service import Method
from klamm_server.rpc.grpc_server import GrpcServerTransport


class LostMarkersTransport(GrpcServerTransport):
    """A transport that sends no WriteTxnMarkers request, and all other requests. The sender waits for the answer."""

    def channel(self, address: str, options: ChannelOptions) -> Channel:
        return _Channel(super().channel(address, options))


class _Channel:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def unary(self, method: Method) -> Callable[[Any, int], UnaryCall]:
        if method.name == "write_txn_markers":
            return lambda request, timeout_ms: asyncio.ensure_future(asyncio.Event().wait())
        return self._channel.unary(method)

    def stream(self, method: Method) -> Callable[[Any, int | None], StreamCall]:
        return self._channel.stream(method)

    async def close(self) -> None:
        await self._channel.close()
