"""Coordinators: registration and fencing as for brokers. Coordinators own shards of internal topics, where brokers lead
partitions.

Every change of the live coordinators has the new assignment of shards in the same batch. The coordinator epoch is the
index of the registration record.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    CoordinatorHeartbeatRequest,
    HeartbeatResponse,
    RegisterCoordinatorRequest,
    RegisterResponse,
)
from klamm.wire.v1.metadata_pb2 import CoordinatorChangeRecord, MetadataRecord, RegisterCoordinatorRecord
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.registered import (
    check_cluster_id,
    check_listeners,
    check_registration,
    registered_coordinator,
)
from klamm_controller.metadata.shards import assignment_records
from klamm_server.metadata.entities import CoordinatorImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay


def handle_register_coordinator(
    request: RegisterCoordinatorRequest, image: MetadataImage, *, session_live: bool
) -> Decision[RegisterResponse]:
    """Registers a coordinator or refuses it. `session_live` is True if the coordinator that is registered under this id
    has a session.

    A repeated request (same incarnation) gets the same answer as the first one."""
    known = image.coordinators.get(request.coordinator_id)
    try:
        check_cluster_id(image, request.cluster_id)
        check_registration("coordinator", request.coordinator_id, request.incarnation_id, request.endpoint)
        check_listeners("coordinator", request.coordinator_id, request.listeners)
        if known is not None and known.incarnation_id == request.incarnation_id:
            return Decision(reply=RegisterResponse(epoch=known.coordinator_epoch, cluster_id=image.cluster_id))
        if known is not None and session_live:
            _check_same_endpoint(request, known)
    except Refusal as refusal:
        return Decision(reply=RegisterResponse(error_code=refusal.code, error_message=refusal.message))
    record = RegisterCoordinatorRecord(
        coordinator_id=request.coordinator_id,
        incarnation_id=request.incarnation_id,
        coordinator_epoch=image.end_index,
        endpoint=request.endpoint,
        fenced=True,
        listeners=request.listeners,
    )
    return Decision(
        records=_with_shards(image, [MetadataRecord(register_coordinator=record)]),
        reply=RegisterResponse(epoch=image.end_index, cluster_id=image.cluster_id),
    )


def handle_coordinator_heartbeat(
    request: CoordinatorHeartbeatRequest, image: MetadataImage
) -> Decision[HeartbeatResponse]:
    """Handles a heartbeat of a coordinator. Makes records only if the coordinator's state changes."""
    try:
        coordinator = registered_coordinator(image, request.coordinator_id, request.coordinator_epoch)
    except Refusal as refusal:
        return Decision(reply=HeartbeatResponse(error_code=refusal.code, error_message=refusal.message))
    if request.want_shutdown:
        records = () if coordinator.fenced else _with_shards(image, [_change(coordinator, fenced=True)])
        return Decision(records=records, reply=HeartbeatResponse(fenced=True, should_shutdown=True))
    if coordinator.fenced and request.metadata_end_index > coordinator.coordinator_epoch:
        return Decision(
            records=_with_shards(image, [_change(coordinator, fenced=False)]),
            reply=HeartbeatResponse(fenced=False),
        )
    return Decision(reply=HeartbeatResponse(fenced=coordinator.fenced))


def handle_coordinator_session_end(coordinator_id: int, image: MetadataImage) -> Decision[None]:
    """Fences a coordinator that sent no heartbeat within its session time-out, and assigns its shards to others."""
    coordinator = image.coordinators.get(coordinator_id)
    if coordinator is None or coordinator.fenced:
        return Decision(reply=None)
    return Decision(records=_with_shards(image, [_change(coordinator, fenced=True)]), reply=None)


def _with_shards(image: MetadataImage, records: Sequence[MetadataRecord]) -> tuple[MetadataRecord, ...]:
    after = replay(image, records, image.end_index + len(records))
    return (*records, *assignment_records(after))


def _change(coordinator: CoordinatorImage, *, fenced: bool) -> MetadataRecord:
    return MetadataRecord(
        coordinator_change=CoordinatorChangeRecord(
            coordinator_id=coordinator.coordinator_id,
            coordinator_epoch=coordinator.coordinator_epoch,
            fenced=fenced,
        )
    )


def _check_same_endpoint(request: RegisterCoordinatorRequest, known: CoordinatorImage) -> None:
    """Raises Refusal unless the request has the same endpoint as the live registration. Only one process can bind a
    port, so a process with the same endpoint proves that the other has ended."""
    if (request.endpoint.host, request.endpoint.port) != (known.host, known.port):
        raise Refusal(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"coordinator {request.coordinator_id} is registered at {known.host}:{known.port}, and its session"
            " is alive: give one of the two another node.id",
        )
