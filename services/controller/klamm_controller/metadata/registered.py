"""The rules that brokers and coordinators share: the checks of a registration, and the checks of a caller's epoch."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.errors import ErrorCode
from klamm.wire.v1.common_pb2 import AdvertisedListener, Endpoint
from klamm_controller.metadata.decision import Refusal
from klamm_server.metadata.entities import BrokerImage, CoordinatorImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import PORT_MAX

UUID_BYTES = 16


def registered_broker(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Returns the broker that calls. Raises Refusal unless this is the broker's current registration."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    _check_epoch("broker", broker_id, broker_epoch, broker.broker_epoch)
    return broker


def registered_coordinator(image: MetadataImage, coordinator_id: int, coordinator_epoch: int) -> CoordinatorImage:
    """Returns the coordinator that calls. Raises Refusal unless this is the coordinator's current registration."""
    coordinator = image.coordinators.get(coordinator_id)
    if coordinator is None:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"coordinator {coordinator_id} is not registered")
    _check_epoch("coordinator", coordinator_id, coordinator_epoch, coordinator.coordinator_epoch)
    return coordinator


def _check_epoch(kind: str, node_id: int, epoch: int, current: int) -> None:
    if epoch != current:
        raise Refusal(ErrorCode.STALE_BROKER_EPOCH, f"{kind} {node_id} is registered with epoch {current}, not {epoch}")


def check_cluster_id(image: MetadataImage, cluster_id: str) -> None:
    """Raises Refusal if the node belongs to another cluster. Accepts a node without a cluster, whose id is empty."""
    if cluster_id and cluster_id != image.cluster_id:
        raise Refusal(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the server belongs to cluster {image.cluster_id}, but the caller's data to cluster {cluster_id}",
        )


def check_registration(kind: str, node_id: int, incarnation_id: bytes, endpoint: Endpoint) -> None:
    """Raises Refusal(INVALID_REGISTRATION) for values that no node can have."""
    if node_id < 0:
        raise Refusal(ErrorCode.INVALID_REGISTRATION, f"the {kind}'s node.id {node_id} is negative")
    if len(incarnation_id) != UUID_BYTES:
        raise Refusal(
            ErrorCode.INVALID_REGISTRATION,
            f"the incarnation id of {kind} {node_id} has {len(incarnation_id)} bytes, expected {UUID_BYTES}",
        )
    _check_endpoint(kind, node_id, endpoint)


def check_listeners(kind: str, node_id: int, listeners: Sequence[AdvertisedListener]) -> None:
    """Raises Refusal(INVALID_REGISTRATION) if two listeners have the same name, or if a client could not dial one."""
    if len({listener.name for listener in listeners}) < len(listeners):
        names = ", ".join(listener.name for listener in listeners)
        raise Refusal(ErrorCode.INVALID_REGISTRATION, f"{kind} {node_id} names a listener twice: {names}")
    for listener in listeners:
        _check_endpoint(kind, node_id, listener.endpoint)


def _check_endpoint(kind: str, node_id: int, endpoint: Endpoint) -> None:
    if not endpoint.host or not 0 < endpoint.port <= PORT_MAX:
        raise Refusal(
            ErrorCode.INVALID_REGISTRATION,
            f"{kind} {node_id} cannot be reached at {endpoint.host!r}:{endpoint.port}",
        )
