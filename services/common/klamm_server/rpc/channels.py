"""One connection per server of a kind.

A fenced server may hang, and with it the callers that wait for its answer: so their calls end at once, like calls to a
server that is gone. The callers repeat them at the server that is responsible by then."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, TypeVar

from klamm.rpc.connection import Connection
from klamm.rpc.options import ChannelOptions
from klamm.rpc.transport import Transport
from klamm.wire.stubs import Service, Stub

StubT = TypeVar("StubT", bound=Stub)


class Channels(Generic[StubT]):
    """`stub` dials on first use; `end_calls_except` with each change of the live servers; `close` at the end."""

    def __init__(self, transport: Transport, service: Service[StubT, Any], options: ChannelOptions) -> None:
        self._transport = transport
        self._service = service
        self._options = options
        self._connections: dict[str, Connection] = {}

    def stub(self, address: str) -> StubT:
        """The calls of the server at that address."""
        if address not in self._connections:
            self._connections[address] = Connection(self._transport, address, self._options)
        return self._connections[address].stub(self._service)

    def end_calls_except(self, live: Collection[str]) -> None:
        """Calls to other addresses than these raise NetworkError."""
        for address, connection in self._connections.items():
            if address not in live:
                connection.end_calls()

    async def close(self) -> None:
        """Ends the calls under way."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()
