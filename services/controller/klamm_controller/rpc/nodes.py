"""The calls of the Controller service about registrations, heartbeats, sessions and producer ids of brokers and
coordinators."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

from klamm.wire.calls import CallContext
from klamm.wire.v1.controller_pb2 import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    CoordinatorHeartbeatRequest,
    HeartbeatResponse,
    HoldSessionRequest,
    HoldSessionResponse,
    RegisterBrokerRequest,
    RegisterCoordinatorRequest,
    RegisterResponse,
)
from klamm_controller.active.liveness import Liveness
from klamm_controller.metadata.producer_ids import handle_allocate_producer_ids
from klamm_controller.rpc.gateway import Gateway

log = logging.getLogger(__name__)

_AUTHORIZER: Final = "authorizer.class.name"

ResponseT = TypeVar("ResponseT", RegisterResponse, HeartbeatResponse)


class NodesRpcs:
    """Answers RegisterBroker, BrokerHeartbeat, RegisterCoordinator, CoordinatorHeartbeat, HoldSession and
    AllocateProducerIds."""

    def __init__(
        self,
        gateway: Gateway,
        brokers: Liveness[RegisterBrokerRequest, BrokerHeartbeatRequest],
        coordinators: Liveness[RegisterCoordinatorRequest, CoordinatorHeartbeatRequest],
        *,
        has_authorizer: bool = False,
    ) -> None:
        self._has_authorizer = has_authorizer
        self._gateway = gateway
        self._brokers = brokers
        self._coordinators = coordinators

    async def register_broker(self, request: RegisterBrokerRequest, context: CallContext) -> RegisterResponse:
        if self._has_authorizer and not request.static_configs.get(_AUTHORIZER):
            log.warning(
                "broker=%d registers without %s, so its clients are authorized for every operation",
                request.broker_id,
                _AUTHORIZER,
            )
        return self._with_controllers(await self._gateway.answer(self._brokers.register(request), RegisterResponse))

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, context: CallContext) -> HeartbeatResponse:
        return self._with_controllers(await self._gateway.answer(self._brokers.heartbeat(request), HeartbeatResponse))

    async def register_coordinator(self, request: RegisterCoordinatorRequest, context: CallContext) -> RegisterResponse:
        return self._with_controllers(
            await self._gateway.answer(self._coordinators.register(request), RegisterResponse)
        )

    async def coordinator_heartbeat(
        self, request: CoordinatorHeartbeatRequest, context: CallContext
    ) -> HeartbeatResponse:
        return self._with_controllers(
            await self._gateway.answer(self._coordinators.heartbeat(request), HeartbeatResponse)
        )

    async def hold_session(
        self, request: HoldSessionRequest, context: CallContext
    ) -> AsyncIterator[HoldSessionResponse]:
        is_broker = request.HasField("broker_id")
        nodes: Liveness[Any, Any] = self._brokers if is_broker else self._coordinators
        node_id = request.broker_id if is_broker else request.coordinator_id
        if nodes.may_hold(node_id, request.epoch):
            yield HoldSessionResponse()
            await nodes.hold(node_id, request.epoch)

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, context: CallContext
    ) -> AllocateProducerIdsResponse:
        decided = self._gateway.controller.submit(
            "AllocateProducerIds", lambda image: handle_allocate_producer_ids(request, image)
        )
        return await self._gateway.answer(decided, AllocateProducerIdsResponse)

    def _with_controllers(self, response: ResponseT) -> ResponseT:
        """Adds the current controllers to the response, because all controllers in the server's configuration may have
        been replaced."""
        quorum = self._gateway.quorum_for_servers()
        response.controllers.extend(member.controller for member in quorum)
        response.controller_listeners.extend(quorum)
        return response
