"""FindCoordinator: Kafka clients are sent to a broker, which passes on what they ask."""

from __future__ import annotations

from typing import Any

from klamm.errors import ErrorCode
from klamm.wire.v1 import broker_pb2 as pb
from klamm_broker.kafka.cluster_view import ClusterView
from klamm_broker.kafka.messages import Fields
from klamm_broker.kafka.requests import Request
from klamm_broker.rpc.find_coordinator import FindCoordinatorRpc


async def find_coordinator(request: Request, wanted: Any, handler: FindCoordinatorRpc, cluster: ClusterView) -> Fields:
    """A coordinator is some live broker, once the key's real one is there to be asked."""
    keys = list(wanted.coordinator_keys) if request.version >= 4 else [wanted.key]
    # The numbers are Kafka's on both sides.
    key_type: Any = getattr(wanted, "key_type", 0)
    ask = pb.FindCoordinatorRequest(key_type=key_type, keys=keys)
    answer = await handler.find_coordinator(ask, None)
    found = [_found(one, cluster) for one in answer.coordinators]
    return {"coordinators": found} if request.version >= 4 else found[0]


def _found(coordinator: pb.FoundCoordinator, cluster: ClusterView) -> Fields:
    broker = cluster.coordinator_of(coordinator.key)
    code, message = coordinator.error_code, coordinator.error_message
    if not code and broker is None:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker is live"
    if code or broker is None:
        return {
            "key": coordinator.key,
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": code,
            "error_message": message or None,
        }
    return {
        "key": coordinator.key,
        "node_id": broker.broker_id,
        "host": broker.kafka_host,
        "port": broker.kafka_port,
        "error_code": code,
        "error_message": None,
    }
