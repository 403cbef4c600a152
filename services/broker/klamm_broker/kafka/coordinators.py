"""FindCoordinator: Kafka clients are sent to a broker, which passes on what they ask."""

from __future__ import annotations

from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm_broker.kafka.cluster_view import ClusterView
from klamm_broker.kafka.messages import Fields
from klamm_broker.kafka.requests import Request
from klamm_broker.rpc.find_coordinator import FindCoordinatorRpc


async def find_coordinator(request: Request, wanted: Any, handler: FindCoordinatorRpc, cluster: ClusterView) -> Fields:
    """A coordinator is some live broker, once the key's real one is there to be asked."""
    keys = list(wanted.coordinator_keys) if request.version >= 4 else [wanted.key]
    # The numbers are Kafka's on both sides.
    key_type: int = getattr(wanted, "key_type", 0)
    found = [_found(key_type, key, handler, cluster) for key in keys]
    return {"coordinators": found} if request.version >= 4 else found[0]


def _found(key_type: int, key: str, handler: FindCoordinatorRpc, cluster: ClusterView) -> Fields:
    try:
        handler.owner(key_type, key)
        broker = cluster.coordinator_of(key)
        if broker is None:
            raise ErrorCode.COORDINATOR_NOT_AVAILABLE.exception("no broker is live")
    except BrokerError as error:
        return {
            "key": key,
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": error.code,
            "error_message": error.message or None,
        }
    return {
        "key": key,
        "node_id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "error_code": ErrorCode.NONE,
        "error_message": None,
    }
