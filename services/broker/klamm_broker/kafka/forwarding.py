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

from klamm.errors import EXCEPTIONS, ErrorCode, raise_for
from klamm.model import coordinator_shard
from klamm.retry import Backoff
from klamm.wire.service import ADMIN, Stub
from klamm_broker.metadata_waiters import MetadataWaiters
from klamm_server.clock import Clock
from klamm_server.controller_channel import ControllerChannel
from klamm_server.controllers import Controllers
from klamm_server.coordinator_channels import CoordinatorChannels
from klamm_server.metadata.image import MetadataImage

RETRY = Backoff(initial_ms=20, max_ms=500)
TIMEOUT_MS = 30_000
"""Of calls that do not say how long they may take."""
CATCH_UP_MAX_MS = 10_000

_NotCoordinatorError = EXCEPTIONS[ErrorCode.NOT_COORDINATOR]
_CoordinatorNotAvailableError = EXCEPTIONS[ErrorCode.COORDINATOR_NOT_AVAILABLE]
_RequestTimedOutError = EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT]


class Coordinators:
    """`close` it."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._channels = CoordinatorChannels(image)

    async def ask(self, topic: str, key: str, rpc: str, request: object, *, timeout_ms: int) -> Any:
        """The owner of a key's shard of an internal topic. Raises NotCoordinatorError: nobody owns it, or who does not
        answer."""
        internal = self._image().topic(topic)
        shard_count = 0 if internal is None else len(internal.partitions)
        shard = coordinator_shard(key, shard_count) if shard_count else -1
        return await self.ask_owner(topic, shard, rpc, request, timeout_ms=timeout_ms)

    async def ask_owner(self, topic: str, shard: int, rpc: str, request: object, *, timeout_ms: int) -> Any:
        """As `ask`, by the shard's number; -1: the topic does not exist yet."""
        stub = self._channels.owner_of(topic, shard)
        if stub is None:
            raise _NotCoordinatorError(f"nobody owns shard {shard} of {topic} at the moment")
        return await _asked(stub, rpc, request, timeout_ms)

    async def ask_all(self, rpc: str, request: object, *, timeout_ms: int) -> list[Any]:
        """Every live coordinator. Raises CoordinatorNotAvailableError when one does not answer."""
        stubs = [self._channels.to(coordinator) for coordinator in self._image().live_coordinators()]
        try:
            return await asyncio.gather(*(_asked(stub, rpc, request, timeout_ms) for stub in stubs))
        except _NotCoordinatorError as error:
            raise _CoordinatorNotAvailableError(error.message) from error

    async def close(self) -> None:
        """Ends the calls under way."""
        await self._channels.close()


class ActiveController:
    """The Admin API of whichever controller is active; `close` it."""

    def __init__(
        self,
        controllers: Controllers,
        metadata: MetadataWaiters,
        clock: Clock,
        service: ServiceDescriptor = ADMIN,
    ) -> None:
        self._channel = ControllerChannel(controllers, service)
        self._metadata = metadata
        self._clock = clock
        self._rng = random.Random()
        self._moving = asyncio.Lock()

    async def ask(self, rpc: str, request: object, *, timeout_ms: int) -> Any:
        """The active controller's answer. Raises BrokerError when that is an error as a whole; RequestTimedOutError:
        nobody knows whether it had an effect."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        failures, why = 0, "no time was given"
        while (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            address = self._channel.address
            try:
                response = await getattr(self._channel.stub(), rpc)(request, timeout=left_ms / 1000)
                if response.error_code != ErrorCode.NOT_CONTROLLER:
                    raise_for(response.error_code, getattr(response, "error_message", ""))
                    return response
                why = f"{address} is not the active controller"
                await self._turn(address, response.controller)
            except grpc.RpcError as error:
                why = f"{address}: {error.code().name}"
                await self._turn(address, None)
            failures += 1
            await asyncio.sleep(min(left_ms, RETRY.delay_ms(failures, self._rng)) / 1000)
        raise _RequestTimedOutError(f"{rpc}: no active controller answered within {timeout_ms} ms ({why})")

    async def change(self, rpc: str, request: object, *, timeout_ms: int) -> Any:
        """As `ask`, for what changes metadata: returns when this broker's own metadata shows the result. A client looks
        at once for what it has changed, and takes a topic that it does not find for one that was not made.

        A broker that is cut off from the controllers' log waits for half of the time that is left, and for no more than
        `CATCH_UP_MAX_MS`: the change was made all the same, and its client must hear so before it gives up. Some name a
        longer time than they wait for an answer."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        answer = await self.ask(rpc, request, timeout_ms=timeout_ms)
        left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        await self._metadata.reach(answer.metadata_end_index, timeout_ms=min(left_ms // 2, CATCH_UP_MAX_MS))
        return answer

    async def close(self) -> None:
        await self._channel.close()

    async def _turn(self, address: str, controller: Any) -> None:
        """Away from a controller that did not help, once for all who asked it."""
        async with self._moving:
            if self._channel.address == address:
                await (self._channel.rotate() if controller is None else self._channel.redirect(controller))


async def _asked(stub: Stub, rpc: str, request: object, timeout_ms: int) -> Any:
    """Raises NotCoordinatorError when there is no answer."""
    try:
        return await getattr(stub, rpc)(request, timeout=timeout_ms / 1000)
    except grpc.RpcError as error:
        # grpc.aio turns a cancellation that meets the end of a call into a status.
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError from error
        raise _NotCoordinatorError(f"{rpc}: {error.code().name}: {error.details()}") from error
