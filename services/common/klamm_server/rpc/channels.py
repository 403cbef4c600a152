"""One connection per server of a kind.

A fenced server may hang, and callers would then wait for its answer. So their calls end at once, like calls to a server
that is gone. The callers retry at the server that is then responsible."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, TypeVar

from klamm.rpc.connection import Connection
from klamm.rpc.options import ChannelOptions
from klamm.rpc.transport import Transport
from klamm.wire.stubs import Service, Stub

StubT = TypeVar("StubT", bound=Stub)


class Channels(Generic[StubT]):
    """Connections by address. `stub` connects at the first call. Call `end_calls_except` after each change of the live
    servers, and `close` at the end."""

    def __init__(self, transport: Transport, service: Service[StubT, Any], options: ChannelOptions) -> None:
        self._transport = transport
        self._service = service
        self._options = options
        self._connections: dict[str, Connection] = {}

    def stub(self, address: str) -> StubT:
        """Returns the stub of the server at that address."""
        if address not in self._connections:
            self._connections[address] = Connection(self._transport, address, self._options)
        return self._connections[address].stub(self._service)

    def end_calls_except(self, live: Collection[str]) -> None:
        """Ends calls to addresses that are not in `live`. These calls raise NetworkError."""
        for address, connection in self._connections.items():
            if address not in live:
                connection.end_calls()

    async def close(self) -> None:
        """Ends the calls under way."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()
