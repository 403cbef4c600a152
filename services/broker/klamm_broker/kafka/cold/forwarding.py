"""Forwards requests of Kafka clients to coordinators and controllers, because Kafka clients see only brokers.

A coordinator is asked once. If it has lost its shard, it answers NOT_COORDINATOR, and the client asks again, as with
Kafka. The active controller is searched for until the request's time is over.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol, TypeVar

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode, raise_for
from klamm.model import coordinator_shard
from klamm.retry import Backoff
from klamm.rpc.transport import Transport
from klamm.wire.calls import Unary
from klamm.wire.v1.controller_rpc import ADMIN, AdminStub
from klamm.wire.v1.coordinator_rpc import CoordinatorStub
from klamm_broker.metadata.metadata_waiters import MetadataWaiters
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener
from klamm_server.rpc.controller_channel import ControllerAnswer, ControllerChannel
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.coordinator_channels import CoordinatorChannels
from klamm_server.rpc.retries import ServerRetries
from klamm_server.runtime.clock import Clock
from klamm_server.security.gate import for_caller

RETRY = Backoff(initial_ms=20, max_ms=500)
TIMEOUT_MS = 30_000
"""The timeout of requests without their own timeout."""
CATCH_UP_MAX_MS = 10_000

_REFUSED = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.POLICY_VIOLATION})
"""Errors with which a server refuses the caller. Asking again, or asking another server, would not help."""
_NotCoordinatorError = EXCEPTIONS[ErrorCode.NOT_COORDINATOR]
_CoordinatorNotAvailableError = EXCEPTIONS[ErrorCode.COORDINATOR_NOT_AVAILABLE]
_RequestTimedOutError = EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT]

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
AnswerT = TypeVar("AnswerT", bound=ControllerAnswer)


class ChangeAnswer(ControllerAnswer, Protocol):
    """The answer to a change of metadata."""

    @property
    def metadata_end_index(self) -> int:
        """The index up to which metadata must be replayed to contain the change."""


ChangeT = TypeVar("ChangeT", bound=ChangeAnswer)


class Coordinators:
    """Forwards requests to coordinators. The owner must call `close`."""

    def __init__(self, transport: Transport, image: Callable[[], MetadataImage], own: Listener) -> None:
        """`own` is the listener that this server uses to reach other servers."""
        self._image = image
        self._channels = CoordinatorChannels(transport, image, own)

    async def ask(
        self,
        topic: str,
        key: str,
        rpc: Unary[CoordinatorStub, RequestT, ResponseT],
        request: RequestT,
        *,
        timeout_ms: int,
    ) -> ResponseT:
        """Asks the owner of a key's shard of an internal topic. Raises NotCoordinatorError if no coordinator owns the
        shard, or its owner does not answer."""
        internal = self._image().topic(topic)
        shard_count = 0 if internal is None else len(internal.partitions)
        shard = coordinator_shard(key, shard_count) if shard_count else -1
        return await self.ask_owner(topic, shard, rpc, request, timeout_ms=timeout_ms)

    async def ask_owner(
        self,
        topic: str,
        shard: int,
        rpc: Unary[CoordinatorStub, RequestT, ResponseT],
        request: RequestT,
        *,
        timeout_ms: int,
    ) -> ResponseT:
        """Asks the coordinator of a shard (`ask`). The shard is -1 if the topic does not exist yet."""
        stub = self._channels.owner_of(topic, shard)
        if stub is None:
            raise _NotCoordinatorError(f"partition {shard} of {topic} has no live coordinator")
        try:
            with for_caller():
                return await rpc(stub, request, timeout_ms=timeout_ms)
        except BrokerError as error:
            if error.code in _REFUSED:
                raise
            raise _NotCoordinatorError(str(error)) from error

    async def ask_all(
        self, rpc: Unary[CoordinatorStub, RequestT, ResponseT], request: RequestT, *, timeout_ms: int
    ) -> list[ResponseT]:
        """Asks every live coordinator. Raises CoordinatorNotAvailableError if one does not answer."""
        stubs = [self._channels.to(coordinator) for coordinator in self._image().live_coordinators()]
        try:
            with for_caller():
                return await asyncio.gather(*(rpc(stub, request, timeout_ms=timeout_ms) for stub in stubs))
        except BrokerError as error:
            raise _CoordinatorNotAvailableError(str(error)) from error

    async def close(self) -> None:
        """Ends all running calls."""
        await self._channels.close()


class ActiveController:
    """Forwards requests to the Admin API of the active controller. The owner must call `close`."""

    def __init__(
        self,
        transport: Transport,
        controllers: Controllers,
        metadata: MetadataWaiters,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._channel = ControllerChannel(transport, controllers, ADMIN)
        self._metadata = metadata
        self._clock = clock
        self._rng = rng

    async def ask(self, rpc: Unary[AdminStub, RequestT, AnswerT], request: RequestT, *, timeout_ms: int) -> AnswerT:
        """Returns the active controller's answer. Raises BrokerError if the whole answer is an error. After
        RequestTimedOutError, it is unknown whether the request had an effect."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        retries = ServerRetries("forwarded request", rpc.__name__, RETRY, self._rng, warn_from=10, warn_every=10)
        why = "no time was given"
        while (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            try:
                with for_caller():
                    answer = await self._channel.ask(rpc, request, timeout_ms=left_ms)
            except BrokerError as error:
                if error.code in _REFUSED:
                    raise
                why = str(error)
                await asyncio.sleep(min(left_ms / 1000, retries.failed(why)))
                continue
            raise_for(answer.error_code, getattr(answer, "error_message", ""))
            return answer
        raise _RequestTimedOutError(f"{rpc.__name__}: no active controller answered within {timeout_ms} ms ({why})")

    async def change(self, rpc: Unary[AdminStub, RequestT, ChangeT], request: RequestT, *, timeout_ms: int) -> ChangeT:
        """Asks for a change of metadata (`ask`), and waits until this broker's metadata have the change. A client that
        does not find its new topic at once concludes that the creation failed.

        A broker without connection to the controllers waits for half of the time that is left, and for
        `CATCH_UP_MAX_MS` at most. The change has been made, so the client must get its answer before it times out. Some
        clients name a longer time than they wait for."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        answer = await self.ask(rpc, request, timeout_ms=timeout_ms)
        left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        await self._metadata.reach(answer.metadata_end_index, timeout_ms=min(left_ms // 2, CATCH_UP_MAX_MS))
        return answer

    async def close(self) -> None:
        await self._channel.close()
