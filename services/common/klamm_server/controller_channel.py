"""A connection to one of the controllers, and which one to try after it."""

from __future__ import annotations

import logging

from google.protobuf.descriptor import ServiceDescriptor
from grpc import aio

from klamm.wire.service import Stub
from klamm.wire.v1.common_pb2 import Endpoint
from klamm_server import tracing
from klamm_server.controllers import Address, Controllers

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

    A redirection may name one that is not among `controllers`; it is forgotten at the next failure."""

    def __init__(self, controllers: Controllers, service: ServiceDescriptor) -> None:
        self._controllers = controllers
        self._service = service
        self._channel: aio.Channel | None = None
        self._asked = controllers.to_try[0]

    @property
    def address(self) -> str:
        """host:port that `stub` talks to."""
        return "{}:{}".format(*self._asked)

    def stub(self) -> Stub:
        """The service at the current controller; connects lazily."""
        if self._channel is None:
            self._channel = aio.insecure_channel(
                self.address, options=_OPTIONS, interceptors=tracing.client_interceptors()
            )
        return Stub(self._channel, self._service)

    async def rotate(self) -> None:
        """Turns to the next controller, after a failure."""
        await self._turn_to(self._controllers.following(self._asked))

    async def redirect(self, controller: Endpoint) -> None:
        """Turns to the controller that NOT_CONTROLLER named; without a name, to the next one."""
        if not controller.host:
            await self.rotate()
        else:
            await self._turn_to((controller.host, controller.port))

    async def close(self) -> None:
        """Ends the calls under way."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _turn_to(self, address: Address) -> None:
        await self.close()
        self._asked = address
