"""Asks coordinators and controllers on behalf of Kafka clients, which see brokers only.

A coordinator is asked once: who lost its shard answers NOT_COORDINATOR, and the client asks again, as it does with
Kafka. The active controller is looked for until the request's time is over.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc import aio

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import coordinator_shard
from klamm.retry import Backoff
from klamm.wire.service import ADMIN, COORDINATOR, Stub
from klamm_server.clock import Clock
from klamm_server.controller_channel import ControllerChannel
from klamm_server.controllers import Controllers
from klamm_server.metadata.image import CoordinatorImage, MetadataImage

RETRY = Backoff(initial_ms=20, max_ms=500)
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A coordinator that hangs sends no FIN; servers take a ping every 5 seconds.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
]

_NotCoordinatorError = EXCEPTIONS[ErrorCode.NOT_COORDINATOR]
_CoordinatorNotAvailableError = EXCEPTIONS[ErrorCode.COORDINATOR_NOT_AVAILABLE]
_RequestTimedOutError = EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT]


class Coordinators:
    """One channel to each coordinator that was needed; `close` them."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._channels: dict[tuple[str, int], tuple[aio.Channel, Stub]] = {}

    async def ask(self, topic: str, key: str, rpc: str, request: object, *, timeout_ms: int) -> Any:
        """The owner of a key's shard of an internal topic. Raises NotCoordinatorError: nobody owns it, or who does not
        answer."""
        owner = self._owner(topic, key)
        if owner is None:
            raise _NotCoordinatorError(f"nobody owns the shard of {key!r} in {topic} at the moment")
        return await self.ask_one(owner, rpc, request, timeout_ms=timeout_ms)

    async def ask_one(self, coordinator: CoordinatorImage, rpc: str, request: object, *, timeout_ms: int) -> Any:
        """Raises NotCoordinatorError when it does not answer."""
        try:
            return await getattr(self._stub(coordinator.host, coordinator.port), rpc)(
                request, timeout=timeout_ms / 1000
            )
        except grpc.RpcError as error:
            raise _refusal(error, coordinator) from error

    async def ask_all(self, rpc: str, request: object, *, timeout_ms: int) -> list[Any]:
        """Every live coordinator. Raises CoordinatorNotAvailableError when one does not answer."""
        coordinators = self._image().live_coordinators()
        try:
            return await asyncio.gather(
                *(self.ask_one(each, rpc, request, timeout_ms=timeout_ms) for each in coordinators)
            )
        except _NotCoordinatorError as error:
            raise _CoordinatorNotAvailableError(error.message) from error

    async def close(self) -> None:
        """Ends the calls under way."""
        channels, self._channels = self._channels, {}
        for channel, _ in channels.values():
            await channel.close()

    def _owner(self, topic: str, key: str) -> CoordinatorImage | None:
        image = self._image()
        internal = image.topic(topic)
        return None if internal is None else image.shard_owner(topic, coordinator_shard(key, len(internal.partitions)))

    def _stub(self, host: str, port: int) -> Stub:
        if (host, port) not in self._channels:
            channel = aio.insecure_channel(f"{host}:{port}", options=_OPTIONS)
            self._channels[host, port] = channel, Stub(channel, COORDINATOR)
        return self._channels[host, port][1]


class ActiveController:
    """The Admin API of whichever controller is active; `close` it."""

    def __init__(self, controllers: Controllers, clock: Clock, service: ServiceDescriptor = ADMIN) -> None:
        self._channel = ControllerChannel(controllers, service)
        self._clock = clock
        self._rng = random.Random()
        self._moving = asyncio.Lock()

    async def ask(self, rpc: str, request: object, *, timeout_ms: int) -> Any:
        """The active controller's answer. Raises RequestTimedOutError: nobody knows whether it had an effect."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        failures, why = 0, "no time was given"
        while (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            address = self._channel.address
            try:
                response = await getattr(self._channel.stub(), rpc)(request, timeout=left_ms / 1000)
                if response.error_code != ErrorCode.NOT_CONTROLLER:
                    return response
                why = f"{address} is not the active controller"
                await self._turn(address, response.controller)
            except grpc.RpcError as error:
                why = f"{address}: {error.code().name}"
                await self._turn(address, None)
            failures += 1
            await asyncio.sleep(min(left_ms, RETRY.delay_ms(failures, self._rng)) / 1000)
        raise _RequestTimedOutError(f"{rpc}: no active controller answered within {timeout_ms} ms ({why})")

    async def close(self) -> None:
        await self._channel.close()

    async def _turn(self, address: str, controller: Any) -> None:
        """Away from a controller that did not help, once for all who asked it."""
        async with self._moving:
            if self._channel.address == address:
                await (self._channel.rotate() if controller is None else self._channel.redirect(controller))


def _refusal(error: grpc.RpcError, coordinator: CoordinatorImage) -> BaseException:
    # grpc.aio turns a cancellation that meets the end of a call into a status.
    if (task := asyncio.current_task()) is not None and task.cancelling():
        return asyncio.CancelledError()
    return _NotCoordinatorError(f"coordinator {coordinator.coordinator_id}: {error.code().name}: {error.details()}")
