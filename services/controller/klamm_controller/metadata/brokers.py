"""Brokers: registration, fencing, controlled shutdown (KIP-631, KIP-841).

    (unknown) --register--> fenced <--unfence/fence--> active --want_shutdown--> shutting down --> fenced

A broker registers fenced and is unfenced by the first heartbeat that has replayed its own registration: it knows then
what it must host. It is fenced when its session ends. In a controlled shutdown it first loses its leaderships,
and may stop, fenced, as soon as it leads nothing; only a new registration brings it back.

The broker epoch is the index of the registration record, so it grows with every registration.
"""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    BrokerHeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterResponse,
)
from klamm.wire.v1.metadata_pb2 import BrokerChangeRecord, MetadataRecord, RegisterBrokerRecord
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.leader_election import changes_on_loss, changes_on_return, leads_any
from klamm_controller.metadata.registered import (
    UUID_BYTES,
    check_cluster_id,
    check_registration,
    registered_broker,
)
from klamm_server.metadata.image import BrokerImage, MetadataImage


def handle_register_broker(
    request: RegisterBrokerRequest, image: MetadataImage, *, session_live: bool
) -> Decision[RegisterResponse]:
    """Accepts a registration. `session_live`: the broker registered under this id has a session.

    A repetition (same incarnation) is answered as the first time."""
    known = image.brokers.get(request.broker_id)
    try:
        check_cluster_id(image, request.cluster_id)
        check_registration("broker", request.broker_id, request.incarnation_id, request.endpoint)
        _check_log_dirs(request)
        if known is not None and known.incarnation_id == request.incarnation_id:
            return Decision(reply=RegisterResponse(epoch=known.broker_epoch, cluster_id=image.cluster_id))
        if known is not None and session_live:
            _check_same_log_dirs(request, known)
    except Refusal as refusal:
        return Decision(reply=RegisterResponse(error_code=refusal.code, error_message=refusal.message))
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=image.end_index,
        endpoint=request.endpoint,
        rack=request.rack,
        fenced=True,
        log_dir_ids=request.log_dir_ids,
        static_configs=dict(request.static_configs),
    )
    return Decision(
        records=(
            MetadataRecord(register_broker=record),
            *changes_on_loss(image, request.broker_id, leave_isr=True),
        ),
        reply=RegisterResponse(epoch=image.end_index, cluster_id=image.cluster_id),
    )


def handle_broker_heartbeat(request: BrokerHeartbeatRequest, image: MetadataImage) -> Decision[HeartbeatResponse]:
    """A sign of life; records only when the broker's state changes by it."""
    try:
        broker = registered_broker(image, request.broker_id, request.broker_epoch)
    except Refusal as refusal:
        return Decision(reply=HeartbeatResponse(error_code=refusal.code, error_message=refusal.message))
    if request.want_shutdown:
        return _shut_down(image, broker)
    caught_up = request.metadata_end_index > broker.broker_epoch
    if broker.fenced and not broker.in_controlled_shutdown and caught_up:
        return Decision(
            records=(_change(broker, fenced=False), *changes_on_return(image, broker.broker_id)),
            reply=HeartbeatResponse(fenced=False),
        )
    return Decision(reply=HeartbeatResponse(fenced=broker.fenced))


def handle_broker_session_end(broker_id: int, image: MetadataImage) -> Decision[None]:
    """Fences a broker that was silent for too long."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return Decision(reply=None)
    return Decision(records=_fence(image, broker), reply=None)


def _shut_down(image: MetadataImage, broker: BrokerImage) -> Decision[HeartbeatResponse]:
    if broker.fenced:
        return Decision(reply=HeartbeatResponse(fenced=True, should_shutdown=True))
    if not broker.in_controlled_shutdown:
        start = _change(broker, fenced=False, in_controlled_shutdown=True)
        moves = changes_on_loss(image, broker.broker_id, leave_isr=False)
        return Decision(records=(start, *moves), reply=HeartbeatResponse(fenced=False))
    if leads_any(image, broker.broker_id):
        return Decision(reply=HeartbeatResponse(fenced=False))
    return Decision(records=_fence(image, broker), reply=HeartbeatResponse(fenced=True, should_shutdown=True))


def _fence(image: MetadataImage, broker: BrokerImage) -> tuple[MetadataRecord, ...]:
    change = _change(broker, fenced=True, in_controlled_shutdown=broker.in_controlled_shutdown)
    return (change, *changes_on_loss(image, broker.broker_id, leave_isr=True))


def _change(broker: BrokerImage, *, fenced: bool, in_controlled_shutdown: bool = False) -> MetadataRecord:
    return MetadataRecord(
        broker_change=BrokerChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
        )
    )


def _check_log_dirs(request: RegisterBrokerRequest) -> None:
    ids = request.log_dir_ids
    if not ids or len(set(ids)) != len(ids) or any(len(log_dir_id) != UUID_BYTES for log_dir_id in ids):
        raise Refusal(
            ErrorCode.INVALID_REGISTRATION,
            f"broker {request.broker_id} must name the {UUID_BYTES}-byte ids of its log directories, each once;"
            f" it named {[log_dir_id.hex() for log_dir_id in ids]}",
        )


def _check_same_log_dirs(request: RegisterBrokerRequest, known: BrokerImage) -> None:
    """A log directory is locked by its process: whoever holds the same ones proves that the other is dead."""
    if set(request.log_dir_ids) != set(known.log_dir_ids):
        raise Refusal(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {request.broker_id} is registered at {known.host}:{known.port} with other log directories,"
            " and its session lasts: give one of the two another node.id",
        )
