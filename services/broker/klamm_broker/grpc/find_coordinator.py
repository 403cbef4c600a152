"""FindCoordinator over gRPC, for several keys (KIP-699). It returns the addresses of the coordinator processes."""

from __future__ import annotations

from klamm.errors import BrokerError, ErrorCode
from klamm.wire.v1.broker_pb2 import FindCoordinatorRequest, FindCoordinatorResponse, FoundCoordinator
from klamm_broker.handlers.find_coordinator import CoordinatorFinder
from klamm_broker.messages.nodes import coordinator_node
from klamm_server.net.listeners import CAME_BY


class FindCoordinatorRpc:
    """Handles FindCoordinator requests."""

    def __init__(self, finder: CoordinatorFinder) -> None:
        self._finder = finder

    async def find_coordinator(self, request: FindCoordinatorRequest, context: object) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(coordinators=[self._find(request.key_type, key) for key in request.keys])

    def _find(self, key_type: int, key: str) -> FoundCoordinator:
        try:
            node = coordinator_node(self._finder.owner(key_type, key))
        except BrokerError as error:
            return FoundCoordinator(key=key, error_code=error.code, error_message=error.message)
        if not node.HasField("endpoint"):
            message = f"coordinator {node.node_id} has no listener {CAME_BY.get()}"
            return FoundCoordinator(key=key, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=message)
        return FoundCoordinator(key=key, node=node)
