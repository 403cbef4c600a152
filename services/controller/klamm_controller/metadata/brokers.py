"""Brokers: registration, fencing, controlled shutdown (KIP-631, KIP-841).

    (unknown) --register--> fenced <--unfence/fence--> active --want_shutdown--> shutting down --> fenced

A broker registers as fenced. It is unfenced by its first heartbeat after it has replayed its own registration, because
it then knows its replicas. It is fenced when its session ends. In a controlled shutdown, the broker first loses its
leaderships and leaves all in-sync sets. Once it is in no in-sync set, it is fenced and may stop. Only a new
registration makes it active again.

A broker that registers without one of its former log directories may have lost the replicas in it. So its last stop
does not count as clean, and it is no longer the last known leader of any partition. It fetches its replicas again from
their leaders.

The broker epoch is the index of the registration record, so it grows with every registration.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    BrokerHeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from klamm.wire.v1.metadata_pb2 import (
    BrokerChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.electorate import Electorate
from klamm_controller.metadata.leader_election import Stop, after_loss, after_return, end_of_life
from klamm_controller.metadata.registered import (
    UUID_BYTES,
    check_cluster_id,
    check_listeners,
    check_registration,
    registered_broker,
)
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT, Sweep
from klamm_server.metadata.entities import BrokerImage
from klamm_server.metadata.image import MetadataImage


class BrokerRegistration:
    """A broker's request to register, handled in parts. Before a broker is registered again, it leaves the in-sync
    sets. If it crashed, it also leaves the eligible leader replicas.

    Between the parts, the broker is fenced and in controlled shutdown. Only a registration ends this state, so the
    broker does not return to any in-sync set meanwhile. If the registration begins again, perhaps on another
    controller, it continues from there."""

    def __init__(self, request: RegisterBrokerRequest, *, changes_max: int = CHANGES_PER_EVENT) -> None:
        self._request = request
        self._changes_max = changes_max
        self._ending: tuple[int, Sweep] | None = None
        """The (broker epoch of the registration that ends, sweep of its partitions), or None before the first part."""

    def next_part(self, image: MetadataImage, *, session_live: bool) -> Decision[RegisterResponse]:
        """Returns the decision on the next part of the request.

        `session_live` is True if the broker that is registered under this id has a session. A repeated request (same
        incarnation) gets the same answer as the first one."""
        request = self._request
        known = image.brokers.get(request.broker_id)
        try:
            check_cluster_id(image, request.cluster_id)
            check_registration("broker", request.broker_id, request.incarnation_id, request.endpoint)
            check_listeners("broker", request.broker_id, request.listeners)
            _check_log_dirs(request)
            if known is not None and known.incarnation_id == request.incarnation_id:
                return Decision(reply=RegisterResponse(epoch=known.broker_epoch, cluster_id=image.cluster_id))
            if known is not None and session_live:
                _check_same_log_dirs(request, known)
        except Refusal as refusal:
            return Decision(reply=RegisterResponse(error_code=refusal.code, error_message=refusal.message))
        changes, is_last = self._end_life(known, image)
        reply = RegisterResponse(epoch=image.end_index, cluster_id=image.cluster_id)
        if is_last:
            return Decision(records=(self._register(image), *changes), reply=reply)
        if known is not None and not (known.fenced and known.in_controlled_shutdown):
            changes = (_change(known, fenced=True, in_controlled_shutdown=True), *changes)
        return Decision(records=changes, reply=reply, is_last=False)

    def _end_life(self, known: BrokerImage | None, image: MetadataImage) -> tuple[tuple[MetadataRecord, ...], bool]:
        """Returns the changes of the next partitions of the registration that ends, and whether these are the last."""
        broker_id = self._request.broker_id
        epoch = known.broker_epoch if known is not None else 0
        if self._ending is None or self._ending[0] != epoch:
            sweep = Sweep(
                f"end of a life of broker {broker_id}",
                image.index.hosted_by(broker_id),
                end_of_life(broker_id, self._stop(known)),
                changes_max=self._changes_max,
            )
            self._ending = (epoch, sweep)
        _, sweep = self._ending
        return sweep.next_changes(image, Electorate(image, lost=broker_id)), sweep.is_done

    def _stop(self, known: BrokerImage | None) -> Stop:
        # The controller does not know the former log directories of a broker that was unregistered.
        if known is None or gone_log_dirs(self._request.log_dir_ids, known):
            return Stop.LOG_DIRS_GONE
        return Stop.CLEAN if self._request.previous_broker_epoch == known.broker_epoch else Stop.UNCLEAN

    def _register(self, image: MetadataImage) -> MetadataRecord:
        request = self._request
        return MetadataRecord(
            register_broker=RegisterBrokerRecord(
                broker_id=request.broker_id,
                incarnation_id=request.incarnation_id,
                broker_epoch=image.end_index,
                endpoint=request.endpoint,
                rack=request.rack,
                fenced=True,
                log_dir_ids=request.log_dir_ids,
                static_configs=dict(request.static_configs),
                kafka_endpoint=request.kafka_endpoint if request.HasField("kafka_endpoint") else None,
                listeners=request.listeners,
            )
        )


def handle_broker_heartbeat(request: BrokerHeartbeatRequest, image: MetadataImage) -> Decision[HeartbeatResponse]:
    """Handles a heartbeat of a broker. Makes records only if the broker's state changes."""
    try:
        broker = registered_broker(image, request.broker_id, request.broker_epoch)
    except Refusal as refusal:
        return Decision(reply=HeartbeatResponse(error_code=refusal.code, error_message=refusal.message))
    if request.want_shutdown:
        return _shut_down(image, broker)
    caught_up = request.metadata_end_index > broker.broker_epoch
    if broker.fenced and not broker.in_controlled_shutdown and caught_up:
        changes, sweep = after_return(image, broker.broker_id)
        return Decision(
            records=(_change(broker, fenced=False), *changes), reply=HeartbeatResponse(fenced=False), sweep=sweep
        )
    return Decision(reply=HeartbeatResponse(fenced=broker.fenced))


def handle_broker_session_end(broker_id: int, image: MetadataImage) -> Decision[None]:
    """Fences a broker that sent no heartbeat within its session time-out."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return Decision(reply=None)
    changes, sweep = after_loss(image, broker_id)
    fence = _change(broker, fenced=True, in_controlled_shutdown=broker.in_controlled_shutdown)
    return Decision(records=(fence, *changes), reply=None, sweep=sweep)


def handle_unregister_broker(
    request: UnregisterBrokerRequest, image: MetadataImage
) -> Decision[UnregisterBrokerResponse]:
    """Removes a broker's registration. The broker leaves the in-sync sets and the eligible leader replicas, but stays
    in its partitions' replicas."""
    broker_id = request.broker_id
    broker = image.brokers.get(broker_id)
    if broker is None:
        message = f"broker {broker_id} is not registered"
        return Decision(
            reply=UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=message)
        )
    sweep = Sweep(f"end of broker {broker_id}", image.index.hosted_by(broker_id), end_of_life(broker_id, Stop.UNCLEAN))
    changes = sweep.next_changes(image, Electorate(image, lost=broker_id))
    gone = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)
    return Decision(
        records=(*changes, MetadataRecord(unregister_broker=gone)), reply=UnregisterBrokerResponse(), sweep=sweep
    )


def _shut_down(image: MetadataImage, broker: BrokerImage) -> Decision[HeartbeatResponse]:
    if broker.fenced:
        return Decision(reply=HeartbeatResponse(fenced=True, should_shutdown=True))
    if not broker.in_controlled_shutdown:
        changes, sweep = after_loss(image, broker.broker_id)
        start = _change(broker, fenced=False, in_controlled_shutdown=True)
        return Decision(records=(start, *changes), reply=HeartbeatResponse(fenced=False), sweep=sweep)
    if image.index.tally(broker.broker_id).in_sync:
        # A leader is in sync too, so the broker leads nothing after this. The sweep is not done yet.
        return Decision(reply=HeartbeatResponse(fenced=False))
    fence = _change(broker, fenced=True, in_controlled_shutdown=True)
    return Decision(records=(fence,), reply=HeartbeatResponse(fenced=True, should_shutdown=True))


def _change(broker: BrokerImage, *, fenced: bool, in_controlled_shutdown: bool = False) -> MetadataRecord:
    return MetadataRecord(
        broker_change=BrokerChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
        )
    )


def gone_log_dirs(log_dir_ids: Iterable[bytes], known: BrokerImage) -> frozenset[bytes]:
    """Returns the log directories of the registration `known` that are not in `log_dir_ids` (KIP-858): they failed, are
    not mounted, or were replaced. The controller does not know which replicas were in them."""
    return frozenset(known.log_dir_ids) - frozenset(log_dir_ids)


def _check_log_dirs(request: RegisterBrokerRequest) -> None:
    ids = request.log_dir_ids
    if not ids or len(set(ids)) != len(ids) or any(len(log_dir_id) != UUID_BYTES for log_dir_id in ids):
        raise Refusal(
            ErrorCode.INVALID_REGISTRATION,
            f"broker {request.broker_id} must name the {UUID_BYTES}-byte ids of its log directories, each once;"
            f" the request has {[log_dir_id.hex() for log_dir_id in ids]}",
        )


def _check_same_log_dirs(request: RegisterBrokerRequest, known: BrokerImage) -> None:
    """Raises Refusal unless the request names the same log directories as the live registration. A process locks its
    log directories, so a process with the same ones proves that the other has ended."""
    if set(request.log_dir_ids) != set(known.log_dir_ids):
        raise Refusal(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {request.broker_id} is registered at {known.host}:{known.port} with other log directories,"
            " and its session is alive: give one of the two another node.id",
        )
