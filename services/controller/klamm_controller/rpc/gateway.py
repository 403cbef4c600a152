"""Passes RPCs to the controller's queue. Maps time-outs, a full queue and a controller that is not active to error
responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.rpc.status import CallFailed, Status
from klamm.wire.v1.common_pb2 import Endpoint, Node
from klamm.wire.v1.controller_pb2 import ControllerListeners
from klamm_controller.active.controller import Controller
from klamm_controller.log.quorum import Quorum
from klamm_controller.metadata.decision import ReplyT
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener, encode, endpoint, own_listener
from klamm_server.runtime.event_queue import QueueFullError

NotControllerError = EXCEPTIONS[ErrorCode.NOT_CONTROLLER]
RequestTimedOutError = EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT]
ThrottlingQuotaExceededError = EXCEPTIONS[ErrorCode.THROTTLING_QUOTA_EXCEEDED]


class Gateway:
    """The connection of all RPC families to the controller and the quorum.

    `request_timeout_ms` bounds the wait of requests without a time-out of their own. `listeners` returns the listeners
    that clients dial, for the host:port of a controller."""

    def __init__(
        self,
        controller: Controller,
        quorum: Quorum,
        *,
        node_id: int,
        request_timeout_ms: int,
        listeners: Callable[[str], Sequence[Listener]],
    ) -> None:
        self.controller = controller
        self.quorum = quorum
        self._node_id = node_id
        self._listeners = listeners
        self._request_timeout_ms = request_timeout_ms

    async def answer(
        self, decided: Awaitable[ReplyT], response: Callable[..., ReplyT], *, timeout_ms: int = 0
    ) -> ReplyT:
        """Returns the decision. Returns a `response` with REQUEST_TIMED_OUT after a time-out. Returns one with
        NOT_CONTROLLER and the active controller's endpoint if another controller decides.

        After a time-out, the change may or may not happen. It does not happen if the queue had not yet run the request.
        Raises CallFailed (RESOURCE_EXHAUSTED) if the queue is full or too many records are uncommitted; the request
        then had no effect."""
        timeout_ms = timeout_ms if timeout_ms > 0 else self._request_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await decided
        except (TimeoutError, RequestTimedOutError):
            return response(error_code=ErrorCode.REQUEST_TIMED_OUT)
        except NotControllerError:
            return response(error_code=ErrorCode.NOT_CONTROLLER, controller=self.active_endpoint())
        except (QueueFullError, ThrottlingQuotaExceededError) as error:
            raise CallFailed(Status.RESOURCE_EXHAUSTED, str(error)) from error

    async def change(
        self, decided: Awaitable[ReplyT], response: Callable[..., ReplyT], *, timeout_ms: int = 0
    ) -> ReplyT:
        """Returns the decision like `answer`, and sets its `metadata_end_index`. The change is visible in metadata that
        are replayed up to this index. The index is the end of the committed metadata now, which may be a little later
        than necessary."""

        async def with_end_index() -> ReplyT:
            reply: Any = await decided
            reply.metadata_end_index = self.controller.committed.end_index
            return reply  # type: ignore[no-any-return]

        return await self.answer(with_end_index(), response, timeout_ms=timeout_ms)

    async def read(self, describe: Callable[[MetadataImage], ReplyT], response: Callable[..., ReplyT]) -> ReplyT:
        """Returns the response of `describe` for an image with all changes acknowledged before this call. Returns the
        same error responses as `answer`."""

        async def decided() -> ReplyT:
            return describe(await self.controller.confirm())

        return await self.answer(decided(), response)

    def active_endpoint(self) -> Endpoint | None:
        """Returns the address that the caller dials to reach the active controller, or None if it is unknown. Also
        returns None if this controller leads but is not active."""
        if self.quorum.leader_id == self._node_id:
            return None
        return self._for_caller(self.quorum.leader_address)

    def quorum_for_caller(self) -> list[Node]:
        """Returns the voters of the quorum, with the addresses that the caller dials to reach them."""
        return [
            Node(node_id=controller.node_id, endpoint=self._for_caller(controller.address))
            for controller in self.quorum.controllers()
        ]

    def quorum_for_servers(self) -> list[ControllerListeners]:
        """Returns the voters of the quorum, with the addresses that servers dial and the listeners that clients
        dial."""
        return [
            ControllerListeners(
                controller=endpoint_of(controller.address), listeners=encode(self._listeners(controller.address))
            )
            for controller in self.quorum.controllers()
            if controller.address
        ]

    def _for_caller(self, address: str) -> Endpoint | None:
        return endpoint(own_listener(self._listeners(address))) if address else None


def endpoint_of(address: str) -> Endpoint | None:
    """Parses host:port into an endpoint. Returns None for empty text."""
    host, _, port = address.rpartition(":")
    return Endpoint(host=host, port=int(port)) if host else None
