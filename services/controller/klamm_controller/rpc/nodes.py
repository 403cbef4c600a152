"""Controller: registrations, heartbeats and producer ids, for brokers and coordinators."""

from __future__ import annotations

from typing import Any

from klamm.wire.v1.controller_pb2 import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    CoordinatorHeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterCoordinatorRequest,
    RegisterResponse,
)
from klamm_controller.liveness import Liveness
from klamm_controller.metadata.producer_ids import handle_allocate_producer_ids
from klamm_controller.rpc.gateway import Gateway


class NodesRpcs:
    """RegisterBroker, BrokerHeartbeat, RegisterCoordinator, CoordinatorHeartbeat, AllocateProducerIds."""

    def __init__(
        self,
        gateway: Gateway,
        brokers: Liveness[RegisterBrokerRequest, BrokerHeartbeatRequest],
        coordinators: Liveness[RegisterCoordinatorRequest, CoordinatorHeartbeatRequest],
    ) -> None:
        self._gateway = gateway
        self._brokers = brokers
        self._coordinators = coordinators

    async def register_broker(self, request: RegisterBrokerRequest, context: Any) -> RegisterResponse:
        return await self._gateway.answer(context, self._brokers.register(request), RegisterResponse)

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, context: Any) -> HeartbeatResponse:
        return await self._gateway.answer(context, self._brokers.heartbeat(request), HeartbeatResponse)

    async def register_coordinator(self, request: RegisterCoordinatorRequest, context: Any) -> RegisterResponse:
        return await self._gateway.answer(context, self._coordinators.register(request), RegisterResponse)

    async def coordinator_heartbeat(self, request: CoordinatorHeartbeatRequest, context: Any) -> HeartbeatResponse:
        return await self._gateway.answer(context, self._coordinators.heartbeat(request), HeartbeatResponse)

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, context: Any
    ) -> AllocateProducerIdsResponse:
        decided = self._gateway.controller.submit(
            "AllocateProducerIds", lambda image: handle_allocate_producer_ids(request, image)
        )
        return await self._gateway.answer(context, decided, AllocateProducerIdsResponse)
