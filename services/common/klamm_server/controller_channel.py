"""A connection to one of the controllers, and which one to try after it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from google.protobuf.descriptor import ServiceDescriptor
from grpc import aio

from klamm.wire.service import Stub
from klamm.wire.v1.common_pb2 import Endpoint

log = logging.getLogger(__name__)

RECEIVE_MAX_BYTES = 100 * 1024 * 1024
"""The longest message a controller may send; socket.request.max.bytes' default, which bounds what it receives."""

_OPTIONS = [
    ("grpc.max_receive_message_length", RECEIVE_MAX_BYTES),
    # Channels to one address otherwise share a connection, and its back-off of up to two minutes.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A stream that says nothing must still notice a dead peer (a pulled cable sends no FIN, nor does a process that
    # hangs), within a broker's session; servers take a ping every 5 seconds.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
]


class ControllerChannel:
    """One channel at a time, to the controller that is believed to be the right one.

    Knows the configured `controllers` (host, port) for ever; a redirection may name another one, which is
    forgotten at the next failure."""

    def __init__(self, controllers: Sequence[tuple[str, int]], service: ServiceDescriptor) -> None:
        assert controllers, "no controllers are configured"
        self._controllers = tuple(controllers)
        self._service = service
        self._next = 0
        self._channel: aio.Channel | None = None
        self.address = "{}:{}".format(*controllers[0])
        """host:port that `stub` talks to."""

    def stub(self) -> Stub:
        """The service at the current controller; connects lazily."""
        if self._channel is None:
            self._channel = aio.insecure_channel(self.address, options=_OPTIONS)
        return Stub(self._channel, self._service)

    async def rotate(self) -> None:
        """Turns to the next configured controller, after a failure."""
        self._next = (self._next + 1) % len(self._controllers)
        await self._turn_to("{}:{}".format(*self._controllers[self._next]))

    async def redirect(self, controller: Endpoint) -> None:
        """Turns to the controller that NOT_CONTROLLER named; without a name, to the next configured one."""
        if not controller.host:
            await self.rotate()
        else:
            await self._turn_to(f"{controller.host}:{controller.port}")

    async def close(self) -> None:
        """Ends the calls under way."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _turn_to(self, address: str) -> None:
        await self.close()
        self.address = address
